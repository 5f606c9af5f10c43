package cpu

import (
	"context"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/batched"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// pageTokens is the number of tokens of one cache page; it equals the kernels' panel width.
const pageTokens = padTo

// maxIdlePages bounds the pages that no sequence uses but that are kept for prompts with the same beginning.
const maxIdlePages = 256

// Sampler implements engine.Sampler: one goroutine runs the batch step by step on a pool of workers.
type Sampler struct {
	*batched.Scheduler
	core *core
	int8 bool // see Precision
}

var _ engine.Sampler = (*Sampler)(nil)

// device is the batch's side of the sampler: the workers, and the pages of the cache by number.
type device struct {
	core    *core
	pool    pool
	workers []*worker
	pages   [][]float32
}

// NewSampler starts a sampler without weights. Close stops it. Errors: Invalid.
func NewSampler(cfg model.Config, opts Options) (engine.Sampler, error) {
	if err := opts.Precision.check("cpu.NewSampler"); err != nil {
		return nil, err
	}
	c, err := newCore(cfg, opts, false, "cpu.NewSampler")
	if err != nil {
		return nil, err
	}
	d := &device{core: c, pool: pool{opts.threads()}}
	for range d.pool.threads {
		d.workers = append(d.workers, newWorker(c))
	}
	s := &Sampler{core: c, int8: opts.Precision == INT8, Scheduler: batched.New(batched.Options{
		Name: "cpu", Room: engine.Room{Vocab: cfg.Vocab, TopK: cfg.Vocab, Tokens: cfg.MaxPosition}, Rows: prefillRows * d.pool.threads, IdlePages: maxIdlePages,
	})}
	go s.Run(d)
	return s, nil
}

// SetWeights implements engine.Sampler.
func (s *Sampler) SetWeights(ctx context.Context, version int, w *model.Weights) error {
	const op = "cpu.SetWeights"
	if version < 0 {
		return fault.New(fault.Invalid, op, "version %d is negative", version)
	}
	if err := checkWeights(s.core.cfg, w, op); err != nil {
		return err
	}
	if s.int8 {
		w = quantized(w)
	}
	next := newPacked(s.core.layout, false)
	next.load(s.core.layout, w)
	return s.Swap(ctx, version, next)
}

// Install implements batched.Device.
func (d *device) Install(weights any) error {
	d.core.w = weights.(*packed) //nolint:forcetypeassert // of SetWeights
	return nil
}

// Step implements batched.Device.
func (d *device) Step(chunks []*batched.Chunk, version int) error {
	d.provide(chunks)
	d.spread(chunks)
	for _, w := range d.workers {
		w.version, w.pages = version, d.pages
	}
	d.pool.run(len(d.workers), func(_, unit int) { d.workers[unit].compute() })
	return nil
}

// provide makes pages that no sequence has had before.
func (d *device) provide(chunks []*batched.Chunk) {
	for _, c := range chunks {
		for _, p := range c.Seq.Pages {
			for int(p) >= len(d.pages) {
				d.pages = append(d.pages, nil)
			}
			if d.pages[p] == nil {
				d.pages[p] = make([]float32, d.core.cfg.Layers*d.core.cfg.KVHeads*2*pageTokens*d.core.HD)
			}
		}
	}
}

// Close implements batched.Device.
func (d *device) Close() error { return nil }
