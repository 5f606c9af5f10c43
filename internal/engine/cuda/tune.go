//go:build cuda

package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

// tuned are measured choices of algorithms for the products of the fast training step. Another algorithm gives other roundings, so a choice is made once and kept
// in a file: later processes on this machine compute the same bits. A run keeps its own (Trainer.Choices), which go before the file's. Without a folder for files
// nothing is measured, and the library's first proposal serves.
type tuned struct {
	file string
	// Device is a digest of the card and the library: algorithms are of no use elsewhere.
	device string
	// Algorithms by shape, in hexadecimal.
	known map[string]string
	done  map[cudart.Shape]bool
}

func newTuned(d *device) *tuned {
	if d.blas == nil || d.opts.KernelDir == "" {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", d.blas.Version, d.ctx.Name, d.ctx.Arch()))
	device := hex.EncodeToString(sum[:16])
	t := &tuned{
		file: filepath.Join(d.opts.KernelDir, "products-"+device+".json"), device: device, known: map[string]string{}, done: map[cudart.Shape]bool{},
	}
	if data, err := os.ReadFile(t.file); err == nil {
		_ = json.Unmarshal(data, &t.known) // a damaged file is written again
	}
	return t
}

// choices is the form in which a run keeps them.
type choices struct {
	Device   string            `json:"device"`
	Products map[string]string `json:"products"`
}

func (t *tuned) choices() []byte {
	if t == nil || len(t.known) == 0 {
		return nil
	}
	data, err := json.Marshal(choices{t.device, t.known})
	if err != nil {
		return nil // of strings: cannot be
	}
	return data
}

// bind takes the choices of a run over those that are known. Those of shapes that this process has used are set again.
func (t *tuned) bind(data []byte) error {
	var c choices
	if err := json.Unmarshal(data, &c); err != nil || c.Device == "" {
		return fault.New(fault.Corrupt, "cuda.SetChoices", "no choice of algorithms: %d bytes, %v", len(data), err)
	}
	if t == nil || c.Device != t.device {
		return nil
	}
	maps.Copy(t.known, c.Products)
	clear(t.done)
	return nil
}

// tune chooses algorithms for the shapes of a micro-batch that are new. It overwrites gradients and what is between layers.
func (g *trainGPU) tune(b *engine.Batch, m *micro, scale float64) error {
	t := g.fast.tuned
	if t == nil {
		return nil
	}
	n := len(m.targets)
	rows, l := g.padRows(len(m.tokens)), g.w.layers[0]
	heads := []int{g.padRows(min(n, fastHeadRows))}
	if n > fastHeadRows && n%fastHeadRows > 0 {
		heads = append(heads, g.padRows(n%fastHeadRows))
	}
	type job struct {
		shape             cudart.Shape
		result, in, other cudart.Ptr
	}
	var jobs []job
	add := func(j job) {
		if !t.done[j.shape] {
			t.done[j.shape] = true
			jobs = append(jobs, j)
		}
	}
	// The buffers have no addresses before the micro-batch has its place, so jobs are made twice: to see whether there are any, and to run them.
	list := func() {
		f := g.fast
		s := fastSlot{}
		if f.slots.at != 0 {
			s, _ = g.activations(0)
		}
		for _, p := range []struct {
			m            *matrix
			x, y, dy, dx cudart.Ptr
		}{
			{l.qkv, s.n1, s.qkv, f.dqkv.at, f.dn.at},
			{l.out, s.att, f.delta.at, f.dy.at, f.datt.at},
			{l.gateUp, s.n2, s.gu, f.dgu.at, f.dn.at},
			{l.down, f.h.at, f.delta.at, f.dy.at, f.dh.at},
		} {
			add(job{cudart.Shape{Rows: rows, Out: p.m.rows, In: p.m.colsP, Half: true}, p.y, p.x, p.m.at})
			add(job{cudart.Shape{Product: cudart.InputGrad, Rows: rows, Out: p.m.rows, In: p.m.colsP, Half: true}, p.dx, p.dy, p.m.at})
			add(job{cudart.Shape{Product: cudart.WeightsGrad, Rows: rows, Out: p.m.rows, In: p.m.colsP}, g.grad(p.m), p.dy, p.x})
		}
		for _, r := range heads {
			h := g.w.head
			add(job{cudart.Shape{Rows: r, Out: h.rows, In: h.colsP}, f.logits.at, f.hx.at, h.at})
			add(job{cudart.Shape{Product: cudart.InputGrad, Rows: r, Out: h.rows, In: h.colsP, Half: true}, f.dhn.at, f.dlogits.at, h.at})
			add(job{cudart.Shape{Product: cudart.WeightsGrad, Rows: r, Out: h.rows, In: h.colsP}, g.grad(h), f.dlogits.at, f.hx.at})
		}
	}
	list()
	if len(jobs) == 0 {
		return nil
	}
	for _, j := range jobs {
		delete(t.done, j.shape)
	}
	jobs = nil
	if err := g.fastPlace(b, m, scale); err != nil {
		return err
	}
	list()
	fresh := false
	for _, j := range jobs {
		p, err := g.plan(j.shape)
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		name := fmt.Sprintf("%+v", j.shape)
		if known, err := hex.DecodeString(t.known[name]); err == nil && p.SetAlgorithm(known) == nil {
			continue
		}
		if !fresh {
			if err := g.noise(rows); err != nil {
				return err
			}
			fresh = true
		}
		if err := g.fastest(p, j.result, j.in, j.other); err != nil {
			return err
		}
		t.known[name] = hex.EncodeToString(p.Algorithm())
	}
	if !fresh {
		return nil
	}
	data, err := json.MarshalIndent(t.known, "", "\t")
	if err == nil {
		err = keep(filepath.Dir(t.file), t.file, data)
	}
	if err != nil {
		return fault.New(fault.Infrastructure, "cuda.tune", "cannot keep the choice of algorithms: %w", err).WithHint("choose a writable folder, or none")
	}
	return nil
}

// noise fills the inputs of products.
func (g *trainGPU) noise(rows int) error {
	f := g.fast
	b := &batch{d: &g.device}
	fill := func(at cudart.Ptr, n int) {
		b.each(f.k.noise, n, cudart.Ptr(0).Arg(), at.Arg(), cudart.Uint64Arg(uint64(n)), cudart.Float(0.5), cudart.Int(1)) //nolint:gosec // a size
	}
	fill(f.dy.at, rows*g.Hidden)
	fill(f.h.at, rows*g.Intermediate)
	fill(f.dgu.at, rows*2*g.Intermediate)
	fill(f.dqkv.at, rows*g.sizes.qkv)
	fill(f.hx.at, f.hx.bytes/2)
	fill(f.dlogits.at, f.dlogits.bytes/2)
	s, _ := g.activations(0)
	fill(s.att, rows*g.queries)
	fill(s.n1, rows*g.Hidden)
	fill(s.n2, rows*g.Hidden)
	return b.err
}

// fastest measures a plan's candidates and uses the one with the smallest sum of times. They take turns: a card under load runs at the clock that its
// power allows, which changes within a second, and what counts is the speed there.
func (g *trainGPU) fastest(p *cudart.Plan, result, in, other cudart.Ptr) error {
	const rounds, runs = 5, 4
	times := make([]time.Duration, p.Candidates())
	for round := range rounds {
		for i := range times {
			p.Use(i)
			begin := time.Now()
			for range runs {
				if err := p.Run(result, in, other); err != nil {
					return err
				}
			}
			if err := g.ctx.Sync(); err != nil {
				return err
			}
			if round > 0 { // the first is for warming up
				times[i] += time.Since(begin)
			}
		}
	}
	best := 0
	for i, t := range times {
		if t < times[best] {
			best = i
		}
	}
	p.Use(best)
	return nil
}
