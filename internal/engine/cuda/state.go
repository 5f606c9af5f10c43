//go:build cuda

package cuda

import (
	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
)

var _ engine.StateReader = (*Trainer)(nil)

// place says where a tensor lies: in matrix m of the weights, from row first on, [rows, cols].
type place struct{ m, first, rows, cols int }

// places of the tensors of a model, by name.
func (d *weights) places() map[string]place {
	out := map[string]place{}
	for i, m := range d.all {
		for k, p := range m.parts {
			end := max(m.rows, 1)
			if k+1 < len(m.parts) {
				end = m.parts[k+1].first
			}
			out[p.tensor] = place{m: i, first: p.first, rows: end - p.first, cols: m.cols}
		}
	}
	return out
}

// ReadState implements engine.StateReader: it copies one tensor from the GPU into memory that the next call uses again.
func (t *Trainer) ReadState(p engine.StatePart, i int) ([]float32, error) {
	const op = "cuda.ReadState"
	if t.places == nil {
		t.places, t.specs = newWeights(sizesOf(t.cfg)).places(), t.cfg.Tensors()
	}
	if i < 0 || i >= len(t.specs) {
		return nil, fault.New(fault.Internal, op, "the model has no tensor %d", i)
	}
	at := t.places[t.specs[i].Name]
	var out []float32
	err := t.do(op, func(g *trainGPU) error {
		m := g.w.all[at.m]
		n := at.rows * m.colsP
		if cap(t.page) < n {
			t.page = make([]float32, n)
		}
		data := t.page[:n]
		from := map[engine.StatePart][]cudart.Ptr{engine.Master: g.master, engine.FirstMoment: g.m1, engine.SecondMoment: g.m2}[p]
		if from == nil {
			return fault.New(fault.Internal, op, "a state has no part %q", p)
		}
		if err := cudart.Download(g.ctx, data, from[at.m].Add(4*at.first*m.colsP)); err != nil {
			return err
		}
		for r := range at.rows { // rows without their padding, moved up
			copy(data[r*at.cols:], data[r*m.colsP:r*m.colsP+at.cols])
		}
		out = data[:at.rows*at.cols]
		return nil
	})
	return out, err
}
