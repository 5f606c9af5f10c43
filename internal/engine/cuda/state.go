//go:build cuda

package cuda

import (
	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

var (
	_ engine.StateReader = (*Trainer)(nil)
	_ engine.StateLoader = (*Trainer)(nil)
)

// place says where a tensor lies: in matrix m of the weights, from row first on, with size elements.
type place struct{ m, first, size int }

// findPlaces of the tensors of a model, in module order.
func findPlaces(c model.Config) []place {
	at := map[string]place{}
	for i, m := range newWeights(sizesOf(c)).all {
		for _, p := range m.parts {
			at[p.tensor] = place{m: i, first: p.first}
		}
	}
	var out []place
	for _, s := range c.Tensors() {
		p := at[s.Name]
		p.size = s.Size()
		out = append(out, p)
	}
	return out
}

// piece finds the float32 array of a part's matrix and the rows of a tensor's elements from index from on. Padding is between rows.
func (t *Trainer) piece(g *trainGPU, op string, p engine.StatePart, i, from, n int) (m *matrix, at cudart.Ptr, row int, err error) {
	if t.places == nil {
		t.places = findPlaces(t.cfg)
	}
	slabs := map[engine.StatePart][]cudart.Ptr{engine.Master: g.master, engine.FirstMoment: g.m1, engine.SecondMoment: g.m2}[p]
	switch {
	case slabs == nil:
		return nil, 0, 0, fault.New(fault.Internal, op, "a state has no part %q", p)
	case i < 0 || i >= len(t.places) || from < 0 || from+n > t.places[i].size:
		return nil, 0, 0, fault.New(fault.Internal, op, "the model has no elements %d to %d of tensor %d", from, from+n, i)
	}
	where := t.places[i]
	m = g.w.all[where.m]
	return m, slabs[where.m], where.first + from/m.cols, nil
}

// ReadState implements engine.StateReader.
func (t *Trainer) ReadState(p engine.StatePart, i, from int, into []float32) error {
	const op = "cuda.ReadState"
	return t.do(op, func(g *trainGPU) error {
		m, at, row, err := t.piece(g, op, p, i, from, len(into))
		if err != nil || len(into) == 0 {
			return err
		}
		skip := from % m.cols
		if m.cols == m.colsP {
			return cudart.Download(g.ctx, into, at.Add(4*(row*m.cols+skip)))
		}
		rows := (skip + len(into) + m.cols - 1) / m.cols
		if cap(t.page) < rows*m.colsP {
			t.page = make([]float32, rows*m.colsP)
		}
		data := t.page[:rows*m.colsP]
		if err := cudart.Download(g.ctx, data, at.Add(4*row*m.colsP)); err != nil {
			return err
		}
		for done := 0; done < len(into); { // rows without their padding
			done += copy(into[done:], data[skip:m.cols])
			data, skip = data[m.colsP:], 0
		}
		return nil
	})
}

// LoadState implements engine.StateLoader: pieces go to the GPU as they come, and this process holds no copy.
func (t *Trainer) LoadState(updates int, load func(put engine.PutState) error) error {
	const op = "cuda.LoadState"
	if updates < 0 {
		return fault.New(fault.Invalid, op, "a negative number of updates: %d", updates)
	}
	if err := load(func(p engine.StatePart, i, from int, data []float32) error {
		return t.do(op, func(g *trainGPU) error {
			m, at, row, err := t.piece(g, op, p, i, from, len(data))
			if err != nil {
				return err
			}
			for skip := from % m.cols; len(data) > 0; row++ {
				n := len(data)
				if m.cols < m.colsP { // row by row: padding stays zero
					n = min(n, m.cols-skip)
				}
				if err := cudart.Upload(g.ctx, at.Add(4*(row*m.colsP+skip)), data[:n]); err != nil {
					return err
				}
				data, skip = data[n:], 0
			}
			return g.ctx.Sync()
		})
	}); err != nil {
		return err
	}
	err := t.do(op, func(g *trainGPU) error { return g.publish() })
	if err == nil {
		t.steps = updates
	}
	return err
}
