//go:build cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
)

// Trainer implements engine.Trainer on one GPU, which holds master weights, moments and gradients in float32 and the published weights. Its forward pass has
// the bits of the sampler's of the same precision. After a failure of the GPU every method returns that error, or nil.
type Trainer struct {
	cfg    model.Config
	opts   Options
	steps  int
	calls  chan func() // nil when closed
	done   chan struct{}
	gpu    *trainGPU // belongs to the goroutine of run
	broken error
	end    error

	// Of ReadState and LoadState.
	places []place
	page   []float32
}

var _ engine.Trainer = (*Trainer)(nil)

// NewTrainer returns a trainer whose master weights are a copy of initial, all zero for nil, with zero moments. Of the options, those about the cache and the size of a
// step are for samplers. Errors: as for NewSampler.
func NewTrainer(c model.Config, initial *model.Weights, o Options) (engine.Trainer, error) {
	if err := checkModel(c); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Trainer{cfg: c, opts: o, calls: make(chan func()), done: make(chan struct{})}
	if initial != nil {
		if err := t.checkWeights(initial, "cuda.NewTrainer"); err != nil {
			return nil, err
		}
	}
	started := make(chan error)
	go t.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	if err := t.replace(&engine.State{Master: initial}, "cuda.NewTrainer"); err != nil {
		_ = t.Close() // the first error counts
		return nil, err
	}
	return t, nil
}

// run owns the GPU and does what it is called for, on a thread of its own.
func (t *Trainer) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(t.done)
	var err error
	if t.gpu, err = newTrainGPU(t.cfg, t.opts); err != nil {
		started <- err
		return
	}
	started <- nil
	for f := range t.calls {
		f()
	}
	t.end = t.gpu.close()
}

// do runs f in the goroutine that owns the GPU.
func (t *Trainer) do(op string, f func(g *trainGPU) error) error {
	if t.calls == nil {
		return fault.New(fault.Lost, op, "the trainer is closed")
	}
	if t.broken != nil {
		return t.broken
	}
	result := make(chan error)
	t.calls <- func() { result <- f(t.gpu) }
	err := <-result
	if fault.Is(err, fault.Lost) {
		t.broken = err
	}
	return err
}

// Close implements engine.Trainer. It may be called twice.
func (t *Trainer) Close() error {
	if t.calls != nil {
		close(t.calls)
		t.calls = nil
	}
	<-t.done
	return t.end
}

// Steps implements engine.Trainer.
func (t *Trainer) Steps() int { return t.steps }

// Published implements engine.Trainer: what the GPU computes with. It is nil after a failure of the GPU.
func (t *Trainer) Published() *model.Weights {
	w := model.NewWeights(t.cfg)
	if t.do("cuda.Published", func(g *trainGPU) error { return g.published(w) }) != nil {
		return nil
	}
	return w
}

// State implements engine.Trainer. It is nil after a failure of the GPU.
func (t *Trainer) State() *engine.State {
	s := &engine.State{Master: model.NewWeights(t.cfg), M: model.NewWeights(t.cfg), V: model.NewWeights(t.cfg), Steps: t.steps}
	err := t.do("cuda.State", func(g *trainGPU) error {
		return errors.Join(g.download(s.Master, g.master), g.download(s.M, g.m1), g.download(s.V, g.m2))
	})
	if err != nil {
		return nil
	}
	return s
}

// SetState implements engine.Trainer.
func (t *Trainer) SetState(s *engine.State) error {
	const op = "cuda.SetState"
	if s == nil || s.Steps < 0 {
		return fault.New(fault.Invalid, op, "no state, or a negative step")
	}
	for i, w := range []*model.Weights{s.Master, s.M, s.V} {
		if i > 0 && w == nil {
			continue
		}
		if err := t.checkWeights(w, op); err != nil {
			return err
		}
	}
	return t.replace(s, op)
}

// replace is SetState of weights that fit, or are nil for zeros.
func (t *Trainer) replace(s *engine.State, op string) error {
	err := t.do(op, func(g *trainGPU) error {
		if err := errors.Join(g.uploadSlab(g.master, s.Master), g.uploadSlab(g.m1, s.M), g.uploadSlab(g.m2, s.V)); err != nil {
			return err
		}
		return g.publish()
	})
	if err == nil {
		t.steps = s.Steps
	}
	return err
}

func (t *Trainer) checkWeights(w *model.Weights, op string) error {
	if w == nil || w.Config != t.cfg {
		return fault.New(fault.Invalid, op, "the weights belong to another model configuration").
			WithHint("load weights of the model that the engine was started with")
	}
	return nil
}

// Choices implements engine.Chooser: the algorithms of the products, for this kind of card and this version of cuBLASLt.
func (t *Trainer) Choices() (data []byte) {
	_ = t.do("cuda.Choices", func(g *trainGPU) error { // a broken trainer has none
		if g.fast != nil {
			data = g.fast.tuned.choices()
		}
		return nil
	})
	return data
}

// SetChoices implements engine.Chooser.
func (t *Trainer) SetChoices(data []byte) error {
	return t.do("cuda.SetChoices", func(g *trainGPU) error {
		if g.fast == nil {
			return nil
		}
		return g.fast.tuned.bind(data)
	})
}

// Update implements engine.Trainer. The context is looked at between micro-batches. Errors: also Exhausted, when a micro-batch does not fit in memory.
func (t *Trainer) Update(ctx context.Context, b engine.Batch) (out engine.StepMetrics, err error) {
	const op = "cuda.Update"
	tokens, err := b.Check(t.cfg)
	if err != nil {
		return engine.StepMetrics{}, err
	}
	err = t.do(op, func(g *trainGPU) error {
		out, err = g.gradient(ctx, &b, tokens)
		if err != nil {
			return err
		}
		return g.apply(b.Optim, t.steps+1, out.ClipFactor)
	})
	if err != nil {
		return engine.StepMetrics{}, err
	}
	t.steps++
	return out, nil
}

// gradient computes the gradient of a batch and its metrics.
func (g *trainGPU) gradient(ctx context.Context, b *engine.Batch, tokens int) (engine.StepMetrics, error) {
	const op = "cuda.Update"
	micros, err := g.micros(b, 1/float64(tokens))
	if err != nil {
		return engine.StepMetrics{}, err
	}
	if err := g.clearGrads(); err != nil {
		return engine.StepMetrics{}, err
	}
	var stats []tokenStats
	for i, m := range micros {
		if err := ctx.Err(); err != nil {
			return engine.StepMetrics{}, fmt.Errorf("%s: %w", op, err)
		}
		if g.fast != nil {
			s, err := g.fastMicro(b, m, 1/float64(tokens), i == 0)
			if err != nil {
				return engine.StepMetrics{}, err
			}
			stats = append(stats, s...)
			continue
		}
		if err := g.place(m, recordWidth(b.Objective)); err != nil {
			return engine.StepMetrics{}, err
		}
		if err := g.forward(m); err != nil {
			return engine.StepMetrics{}, err
		}
		s, err := g.headLoss(b, m, 1/float64(tokens))
		if err != nil {
			return engine.StepMetrics{}, err
		}
		stats = append(stats, s...)
		if err := g.backward(m); err != nil {
			return engine.StepMetrics{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return engine.StepMetrics{}, fmt.Errorf("%s: %w", op, err)
	}
	out, err := metrics(stats, b.Objective)
	if err != nil {
		return out, err
	}
	if out.GradNorm, err = g.norm(); err != nil {
		return out, err
	}
	if x := out.GradNorm + out.Loss; x-x != 0 {
		return out, fault.New(fault.Numeric, op, "loss %v or gradient norm %v is not finite", out.Loss, out.GradNorm).WithHint(unchanged)
	}
	if c := b.Optim.ClipNorm; c > 0 && out.GradNorm > c {
		out.ClipFactor = c / out.GradNorm
	}
	return out, nil
}

// clearGrads zeroes the sums of gradients, but not those that the first micro-batch of the fast step writes.
func (g *trainGPU) clearGrads() error {
	for i, m := range g.w.all {
		if g.fast != nil && m.rows > 0 && (m != g.w.embed || m == g.w.head) {
			continue
		}
		if err := g.ctx.Zero(g.grads[i], 4*m.size()); err != nil {
			return err
		}
	}
	return nil
}

// norm is the gradient's norm over all tensors: sums of chunks on the GPU, which are added here in order, in float64.
func (g *trainGPU) norm() (float64, error) {
	chunks := 0
	for _, m := range g.w.all {
		chunks += pad(m.size(), chunkSize) / chunkSize
	}
	b := &batch{d: &g.device}
	at := 0
	for i, m := range g.w.all {
		n := pad(m.size(), chunkSize) / chunkSize
		b.launch(g.k.squares, n, 1, plainThreads, g.squares.at.Add(8*at).Arg(), g.grads[i].Arg(), cudart.Uint64Arg(uint64(m.size()))) //nolint:gosec // a size
		at += n
	}
	parts := make([]float64, chunks)
	b.do(func() error { return cudart.Download(g.ctx, parts, g.squares.at) })
	var sum float64
	for _, x := range parts {
		sum += x
	}
	return math.Sqrt(sum), b.err
}

// apply takes AdamW step number step (from 1) and publishes the weights.
func (g *trainGPU) apply(o rl.AdamW, step int, clip float64) error {
	rest1, rest2 := 1-math.Pow(o.Beta1, float64(step)), 1-math.Pow(o.Beta2, float64(step))
	var settings []cudart.Arg
	for _, x := range []float64{
		o.Beta1, 1 - o.Beta1, o.Beta2, 1 - o.Beta2, o.LearningRate / rest1, 1 / math.Sqrt(rest2), o.Epsilon, 1 - o.LearningRate*o.WeightDecay, clip,
	} {
		settings = append(settings, cudart.Float(float32(x)))
	}
	b := &batch{d: &g.device}
	for i, m := range g.w.all {
		elems, floats := m.published()
		b.each(g.k.adamw, m.size(), append([]cudart.Arg{
			elems, floats, g.master[i].Arg(), g.m1[i].Arg(), g.m2[i].Arg(), g.grads[i].Arg(), cudart.Uint64Arg(uint64(m.size())), //nolint:gosec // a size
		}, settings...)...)
	}
	b.do(g.ctx.Sync)
	return b.err
}

// published is where the kernels put the rounded weights: as elements or, for vectors, as float32.
func (m *matrix) published() (elems, floats cudart.Arg) {
	if m.rows == 0 {
		return cudart.Ptr(0).Arg(), m.at.Arg()
	}
	return m.at.Arg(), cudart.Ptr(0).Arg()
}

// publish rounds the master weights.
func (g *trainGPU) publish() error {
	b := &batch{d: &g.device}
	for i, m := range g.w.all {
		elems, floats := m.published()
		b.each(g.k.publish, m.size(), elems, floats, g.master[i].Arg(), cudart.Uint64Arg(uint64(m.size()))) //nolint:gosec // a size
	}
	b.do(g.ctx.Sync)
	return b.err
}

// uploadSlab copies w, nil for zeros, to a float32 array for each matrix.
func (g *trainGPU) uploadSlab(to []cudart.Ptr, w *model.Weights) error {
	for i, m := range g.w.all {
		if w == nil {
			if err := g.ctx.Zero(to[i], 4*m.size()); err != nil {
				return err
			}
			continue
		}
		if m.cols == m.colsP { // no padding: a tensor lies there as it lies here
			for _, p := range m.parts {
				if err := cudart.Upload(g.ctx, to[i].Add(4*p.first*m.colsP), w.Get(p.tensor)); err != nil {
					return err
				}
			}
			continue
		}
		data := make([]float32, m.size())
		m.gather(w, data)
		if err := cudart.Upload(g.ctx, to[i], data); err != nil {
			return err
		}
	}
	return g.ctx.Sync()
}

// download is the reverse of uploadSlab.
func (g *trainGPU) download(w *model.Weights, from []cudart.Ptr) error {
	for i, m := range g.w.all {
		data := make([]float32, m.size())
		if err := cudart.Download(g.ctx, data, from[i]); err != nil {
			return err
		}
		m.scatter(w, data, nil)
	}
	return nil
}

// published downloads the rounded weights.
func (g *trainGPU) published(w *model.Weights) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, m := range g.w.all {
		var data []float32
		var half []uint16
		var err error
		if m.rows == 0 || g.opts.Precision == Float32 {
			data = make([]float32, m.size())
			err = cudart.Download(g.ctx, data, m.at)
		} else {
			half = make([]uint16, m.size())
			err = cudart.Download(g.ctx, half, m.at)
		}
		if err != nil {
			return err
		}
		running <- struct{}{}
		wait.Go(func() { // while the next one is copied
			m.scatter(w, data, half)
			<-running
		})
	}
	return nil
}

// gather copies the matrix's tensors to data, row by row with padding.
func (m *matrix) gather(w *model.Weights, data []float32) {
	for _, p := range m.parts {
		src := w.Get(p.tensor)
		for r := 0; r*m.cols < len(src); r++ {
			copy(data[(p.first+r)*m.colsP:], src[r*m.cols:][:m.cols])
		}
	}
}

// scatter copies from data or, if that is nil, from BF16 elements.
func (m *matrix) scatter(w *model.Weights, data []float32, half []uint16) {
	for _, p := range m.parts {
		dst := w.Get(p.tensor)
		for r := 0; r*m.cols < len(dst); r++ {
			row, at := dst[r*m.cols:][:m.cols], (p.first+r)*m.colsP
			if half == nil {
				copy(row, data[at:])
				continue
			}
			for c, x := range half[at:][:len(row)] {
				row[c] = math.Float32frombits(uint32(x) << 16)
			}
		}
	}
}
