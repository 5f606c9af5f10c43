package cpu

import (
	"context"
	"fmt"
	"math"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu/kernel"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rl"
	"github.com/steadyrl/steady/internal/weights"
)

// Trainer implements engine.Trainer. See the package text for what makes its results reproducible.
type Trainer struct {
	*core
	pool    pool
	state   engine.State
	working *model.Weights // BF16 rounding of state.Master
	grads   *model.Weights // gradient by tensor, after unfusing
	micro   microState
	g       gradState
	scratch []scratch
	ones    []float32 // [V]
	stats   []tokenStats
}

var _ engine.Trainer = (*Trainer)(nil)

// NewTrainer returns a trainer whose master weights are a copy of initial, with zero moments. Errors: Invalid.
func NewTrainer(cfg model.Config, initial *model.Weights, opts Options) (engine.Trainer, error) {
	c, err := newCore(cfg, opts, true, "cpu.NewTrainer")
	if err != nil {
		return nil, err
	}
	t := &Trainer{core: c, pool: pool{opts.threads()}, working: model.NewWeights(cfg), grads: model.NewWeights(cfg)}
	t.scratch = make([]scratch, t.pool.threads)
	for i := range t.scratch {
		s := &t.scratch[i]
		s.tmp, s.wide, s.expo = make([]float32, rowBlock*c.D), make([]float32, rowBlock*c.F), make([]float32, c.V)
		s.strip = make([]float32, gradDepth*(gradRows+padTo))
	}
	t.ones = make([]float32, c.V)
	fill(t.ones, 1)
	t.g.weights = make([][]float32, len(c.params))
	for i, p := range c.params {
		t.g.weights[i] = make([]float32, p.out*p.in)
	}
	if initial == nil {
		initial = model.NewWeights(cfg)
	}
	err = t.SetState(&engine.State{Master: initial})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Steps implements engine.Trainer.
func (t *Trainer) Steps() int { return t.state.Steps }

// Published implements engine.Trainer.
func (t *Trainer) Published() *model.Weights { return t.working.Clone() }

// State implements engine.Trainer.
func (t *Trainer) State() *engine.State {
	s := t.state
	return &engine.State{Master: s.Master.Clone(), M: s.M.Clone(), V: s.V.Clone(), Steps: s.Steps}
}

// SetState implements engine.Trainer.
func (t *Trainer) SetState(s *engine.State) error {
	const op = "cpu.SetState"
	if s == nil || s.Steps < 0 {
		return fault.New(fault.Invalid, op, "no state, or a negative step")
	}
	if err := checkWeights(t.cfg, s.Master, op); err != nil {
		return err
	}
	m, v := s.Moments()
	for _, w := range []*model.Weights{m, v} {
		if err := checkWeights(t.cfg, w, op); err != nil {
			return err
		}
	}
	t.state = engine.State{Master: s.Master.Clone(), M: m.Clone(), V: v.Clone(), Steps: s.Steps}
	t.publish()
	return nil
}

// Close implements engine.Trainer.
func (t *Trainer) Close() error { return nil }

func checkWeights(cfg model.Config, w *model.Weights, op string) error {
	if w == nil || w.Config != cfg {
		return fault.New(fault.Invalid, op, "the weights belong to another model configuration").
			WithHint("load weights of the model that the engine was started with")
	}
	return nil
}

// publish rounds the master weights to BF16 and packs them for the next forward pass.
func (t *Trainer) publish() {
	for i, src := range t.state.Master.Data {
		for j, x := range src {
			t.working.Data[i][j] = weights.RoundBF16(x)
		}
	}
	t.w.load(t.layout, t.working)
}

// Update implements engine.Trainer.
func (t *Trainer) Update(ctx context.Context, batch engine.Batch) (engine.StepMetrics, error) {
	var none engine.StepMetrics
	tokens, err := batch.Check(t.cfg)
	if err != nil {
		return none, err
	}
	for _, w := range t.g.weights {
		clear(w)
	}
	t.stats = t.stats[:0]
	for _, micro := range batch.Plan.MicroBatches {
		if err := ctx.Err(); err != nil {
			return none, fmt.Errorf("cpu.Update: %w", err)
		}
		targets := t.load(&batch, micro)
		t.forward()
		t.headLoss(&batch, targets, 1/float64(tokens))
		t.backward()
	}
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("cpu.Update: %w", err)
	}
	out, err := t.metrics(batch.Objective)
	if err != nil {
		return none, err
	}
	for i, w := range t.g.weights {
		t.unfuse(t.grads, i, w)
	}
	out.GradNorm = gradNorm(t.grads)
	if x := out.GradNorm + out.Loss; x-x != 0 {
		return none, fault.New(fault.Numeric, "cpu.Update", "loss %v or gradient norm %v is not finite", out.Loss, out.GradNorm).
			WithHint("the state is unchanged; go back to an earlier checkpoint or lower the learning rate")
	}
	if c := batch.Optim.ClipNorm; c > 0 && out.GradNorm > c {
		out.ClipFactor = c / out.GradNorm
	}
	t.apply(batch.Optim, out.ClipFactor)
	return out, nil
}

// load lays out the rows of a micro-batch and returns its trained tokens in order.
func (t *Trainer) load(batch *engine.Batch, micro []int) []target {
	m := &t.micro
	m.spans, m.tokens, m.pos = m.spans[:0], m.tokens[:0], m.pos[:0]
	var targets []target
	for _, i := range micro {
		s := &batch.Sequences[i]
		row := len(m.tokens)
		m.spans = append(m.spans, span{seq: i, row: row, n: len(s.Tokens)})
		m.tokens = append(m.tokens, s.Tokens...)
		for p := range s.Tokens {
			m.pos = append(m.pos, p)
			if s.Mask[p] {
				targets = append(targets, target{row: row + p - 1, seq: i, at: p})
			}
		}
	}
	m.resize(t.core, len(m.tokens))
	t.g.resize(t.core, len(m.tokens))
	return targets
}

// gradNorm returns the norm over all tensors in float64, in element order in four strided sums.
func gradNorm(w *model.Weights) float64 {
	var lanes [4]float64
	for _, d := range w.Data {
		i := 0
		for ; i+4 <= len(d); i += 4 {
			x0, x1, x2, x3 := float64(d[i]), float64(d[i+1]), float64(d[i+2]), float64(d[i+3])
			lanes[0] += float64(x0 * x0)
			lanes[1] += float64(x1 * x1)
			lanes[2] += float64(x2 * x2)
			lanes[3] += float64(x3 * x3)
		}
		for ; i < len(d); i++ {
			lanes[0] += float64(float64(d[i]) * float64(d[i]))
		}
	}
	return math.Sqrt((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))
}

// apply takes one AdamW step and publishes the new weights.
//
// Numerics: bias corrections by repeated multiplication in float64, which rounds alike everywhere.
func (t *Trainer) apply(o rl.AdamW, clip float64) {
	t.state.Steps++
	b1, b2 := 1.0, 1.0
	for range t.state.Steps {
		b1 *= o.Beta1
		b2 *= o.Beta2
	}
	p := kernel.AdamParams{
		Beta1: float32(o.Beta1), OneMinusBeta1: float32(1 - o.Beta1),
		Beta2: float32(o.Beta2), OneMinusBeta2: float32(1 - o.Beta2),
		Rate:               float32(o.LearningRate / (1 - b1)),
		InvSqrtCorrection2: float32(1 / math.Sqrt(1-b2)),
		Epsilon:            float32(o.Epsilon),
		Decay:              float32(1 - float64(o.LearningRate*o.WeightDecay)),
		GradScale:          float32(clip),
	}
	s := &t.state
	t.pool.run(len(s.Master.Data), func(_, i int) {
		t.k.AdamW(s.Master.Data[i], s.M.Data[i], s.V.Data[i], t.grads.Data[i], &p)
	})
	t.publish()
}
