//go:build cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/measure"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// randomWeights are weights that the GPU makes up, for measurements: the number is their seed.
type randomWeights uint32

// fillRandom gives the weights random numbers, and keys and values too, without the host: times do not depend on what they are, but zeros run faster.
func (g *gpu) fillRandom(seed uint32) error {
	b := &batch{d: &g.device}
	blocks := 16 * g.ctx.Processors
	for i, m := range g.w.all {
		n, next := cudart.Uint64Arg(uint64(m.size())), cudart.Int(int(seed)+i) //nolint:gosec // sizes
		if m.rows == 0 {
			b.launch(g.k.fill, blocks, 1, plainThreads, 0, m.at.Arg(), n, next, cudart.Float(1), cudart.Float(0.1))
			continue
		}
		b.launch(g.k.fill, blocks, 1, plainThreads, elemOf(g, m.at), floatOf(g, m.at), n, next, cudart.Float(0), cudart.Float(0.035))
	}
	elements := (g.pages + 1) * g.Layers * 2 * g.KVHeads * pageTokens * g.HeadDim
	b.launch(g.k.fill, blocks, 1, plainThreads, elemOf(g, g.cache), floatOf(g, g.cache), cudart.Uint64Arg(uint64(elements)), cudart.Int(int(seed)-1), //nolint:gosec // as above
		cudart.Float(0), cudart.Float(1))
	return errors.Join(b.err, g.ctx.Sync())
}

// elemOf and floatOf are the two first arguments of fill: one of them is null.
func elemOf(g *gpu, p cudart.Ptr) cudart.Arg {
	if g.opts.Precision == BF16 {
		return p.Arg()
	}
	return 0
}

func floatOf(g *gpu, p cudart.Ptr) cudart.Arg {
	if g.opts.Precision == BF16 {
		return 0
	}
	return p.Arg()
}

// benchLanes are n sequences of context tokens with pages of their own as far as there are any.
func benchLanes(g *gpu, n, context, top int) []lane {
	each := context/pageTokens + 1
	lanes := make([]lane, n)
	for i := range lanes {
		pages := make([]int32, each)
		for p := range pages {
			pages[p] = int32((i*each + p*7) % g.pages) //nolint:gosec // a page
		}
		lanes[i] = lane{int32(i), int32(context), pages, ask{position: uint32(context + 1), inverse: 1, target: -1, top: int32(top)}} //nolint:gosec // small
	}
	return lanes
}

// usualBandwidth is what an H200 copies, bytes a second, for where no copy can be measured; peak what it multiplies in BF16, operations a second.
const (
	usualBandwidth = 4.3e12
	peak           = 790e12
)

// Measure times the sampler's parts for a model with random weights: decode steps as the batch runs them, the cost of the record, prompts, and requests as a
// whole. report gets each figure when it is there. It takes a GPU for itself.
func Measure(ctx context.Context, c model.Config, o Options, report func(measure.Figure)) error {
	if err := checkModel(c); err != nil {
		return err
	}
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if o.Precision != BF16 || c.HeadDim%8 != 0 || c.HeadDim > tensorDim {
		return fault.New(fault.Invalid, "cuda.Measure", "only BF16 with heads of up to %d elements, in multiples of 8, is measured", tensorDim)
	}
	loads := [][2]int{{64, 1024}, {64, 4096}, {256, 1024}}
	for _, l := range loads {
		o.CacheTokens = max(o.CacheTokens, l[0]*(l[1]+2*pageTokens))
		c.MaxPosition = max(c.MaxPosition, l[1]+2*pageTokens)
	}
	parts := make(chan error)
	go func() { parts <- measureParts(c, o, loads, report) }()
	if err := <-parts; err != nil {
		return err
	}
	s, err := NewSampler(c, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.(*Sampler).Swap(ctx, 0, randomWeights(1)); err != nil { //nolint:forcetypeassert // NewSampler's
		return err
	}
	for range 2 { // the first captures the steps
		decode, whole, err := measure.Sampler(ctx, s, c, measure.Load{Sequences: 64, Context: 256, New: 128, TopK: 128})
		if err != nil {
			return err
		}
		report(measure.Figure{Name: "generate 64x(256+128)", Value: whole, Unit: "tok/s"})
		report(measure.Figure{Name: "  of it, while all decode", Value: decode, Unit: "tok/s"})
	}
	return nil
}

// measureParts runs on a thread of its own, to which the context belongs.
func measureParts(c model.Config, o Options, loads [][2]int, report func(measure.Figure)) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g, err := newGPU(c, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.fillRandom(1); err != nil {
		return err
	}
	t := &timer{g: g}
	if err := t.setUp(); err != nil {
		return err
	}
	defer t.close()
	bandwidth, bound := usualBandwidth, "memory at 4.3 TB/s"
	half := g.pages * g.pageBytes() / 2
	if ms, err := t.median(func() error { return g.ctx.Copy(g.cache, g.cache.Add(half), half) }); err == nil {
		bandwidth, bound = 2*float64(half)/ms*1e3, "memory at the speed of a copy"
		report(measure.Figure{Name: "copy", Value: bandwidth / 1e12, Unit: "TB/s"})
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	for _, l := range loads {
		n, context := l[0], l[1]
		var plain float64
		for _, top := range []int{0, 128} {
			if err := g.load(benchLanes(g, n, context, top)); err != nil {
				return err
			}
			last := context
			ms, err := t.median(func() error {
				s, err := g.begin(n, last, top)
				last++
				if err == nil {
					_, _, err = g.finish(s, make([]int32, n))
				}
				return err
			})
			if err != nil {
				return err
			}
			if top == 0 {
				plain = ms
				continue
			}
			name := fmt.Sprintf("decode %dx%d", n, context)
			floor := measure.Traffic(c, n, context, o.Precision.elemBytes()) / bandwidth
			report(measure.Figure{Name: name + ", record 128", Value: float64(n) / ms * 1e3, Unit: "tok/s", Roofline: float64(n) / floor, Bound: bound})
			report(measure.Figure{Name: "  a step", Value: ms, Unit: "ms"})
			report(measure.Figure{Name: "  of it, the record", Value: 100 * (ms/plain - 1), Unit: "%"})
		}
	}
	const prompt = 1024
	rows, pages := make([]row, prompt), make([]int32, prompt/pageTokens)
	for i := range int32(prompt) {
		rows[i] = row{i % int32(c.Vocab), 0, i} //nolint:gosec // an id
		pages[i/pageTokens] = i / pageTokens
	}
	ms, err := t.median(func() error { return g.forward(rows, [][]int32{pages}) })
	report(measure.Figure{
		Name: "prompt of 1024", Value: prompt / ms * 1e3, Unit: "tok/s", Roofline: prompt / (measure.Operations(c, prompt) / peak), Bound: "790 TFLOP/s",
	})
	return err
}

// timer measures work on the stream by events.
type timer struct {
	g          *gpu
	begin, end cudart.Event
}

func (t *timer) setUp() (err error) {
	if t.begin, err = t.g.ctx.NewEvent(); err == nil {
		t.end, err = t.g.ctx.NewEvent()
	}
	return err
}

func (t *timer) close() { _ = errors.Join(t.begin.Destroy(), t.end.Destroy()) }

// median runs f two times unmeasured, so that code is loaded and steps are captured, and then nine times; the result is in milliseconds.
func (t *timer) median(f func() error) (float64, error) {
	var all []float64
	for i := range 11 {
		err := errors.Join(t.g.ctx.Record(t.begin), f(), t.g.ctx.Record(t.end), t.end.Wait())
		if err != nil {
			return 0, err
		}
		ms, err := t.end.Since(t.begin)
		if err != nil {
			return 0, err
		}
		if i >= 2 {
			all = append(all, float64(ms))
		}
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
