//go:build cuda

package cudart

import "fmt"

// Candidates returns up to n plans for a shape, best first as the library guesses, with reduction schemes of this mask (0: no split of the inner
// dimension). They share what the first one owns: close that one last.
func (b *BLAS) Candidates(s Shape, n, reductions int) ([]*Plan, error) {
	first, err := b.NewPlan(s)
	if err != nil {
		return nil, err
	}
	m, results := NewMemory(16), NewMemory(n*ltResultBytes)
	defer m.Free()
	defer results.Free()
	if err := status("preference", b.prefCreate.Call(m.Addr())); err != nil {
		return nil, err
	}
	pref := m.Word(0)
	defer b.prefDestroy.Call(pref)
	m.SetWord(1, ltWorkspaceBytes)
	b.prefSet.Call(pref, ltPrefWorkspace, m.Addr()+8, 8)
	m.SetWord(1, uintptr(reductions))
	b.prefSet.Call(pref, ltPrefReduction, m.Addr()+8, 4)
	if err := status("heuristic", b.heuristic.Call(b.handle, first.desc, first.layA, first.layB, first.layC, first.layC, pref, uintptr(n), results.Addr(), m.Addr())); err != nil {
		return nil, err
	}
	plans := []*Plan{first}
	for i := range int(m.Int32(0)) {
		p := *first
		p.result = NewMemory(ltResultBytes)
		copy(p.result.Bytes(ltResultBytes), results.Bytes(n * ltResultBytes)[i*ltResultBytes:][:ltResultBytes])
		plans = append(plans, &p)
	}
	return plans, nil
}

// Describe says what an algorithm does, in the library's numbers.
func (p *Plan) Describe() string {
	l, err := Open(p.b.Path)
	if err != nil {
		return err.Error()
	}
	get, err := l.Proc("cublasLtMatmulAlgoConfigGetAttribute")
	if err != nil {
		return err.Error()
	}
	m := NewMemory(16)
	defer m.Free()
	out := ""
	for _, a := range []struct {
		name string
		id   int
	}{{"id", 0}, {"tile", 1}, {"splitk", 2}, {"reduction", 3}, {"swizzle", 4}, {"custom", 5}, {"stages", 6}, {"cluster", 8}} {
		m.SetWord(0, 0)
		get.Call(p.result.Addr(), uintptr(a.id), m.Addr(), 4, m.Addr()+8)
		out += fmt.Sprintf(" %s=%d", a.name, m.Int32(0))
	}
	return out
}

// Repeat returns a plan that computes n products of p's shape, whose rows follow each other in x and y, with p's algorithm. It shares what p owns but its
// layouts.
func (p *Plan) Repeat(n int) (*Plan, error) {
	l, err := Open(p.b.Path)
	if err != nil {
		return nil, err
	}
	set, err := l.Proc("cublasLtMatrixLayoutSetAttribute")
	if err != nil {
		return nil, err
	}
	m := NewMemory(16)
	defer m.Free()
	r := *p
	for _, layout := range []struct {
		into                     *uintptr
		kind, rows, cols, offset int
	}{{&r.layA, ltRealBF16, p.In, p.Out, 0}, {&r.layB, ltRealBF16, p.In, p.Rows, p.In * p.Rows}, {&r.layC, ltReal32F, p.Out, p.Rows, p.Out * p.Rows}} {
		if err := status("layout", p.b.layoutCreate.Call(m.Addr(), uintptr(layout.kind), uintptr(layout.rows), uintptr(layout.cols), uintptr(layout.rows))); err != nil {
			return nil, err
		}
		*layout.into = m.Word(0)
		m.SetWord(1, uintptr(n))
		if err := status("batch", set.Call(*layout.into, 5, m.Addr()+8, 4)); err != nil {
			return nil, err
		}
		m.SetWord(1, uintptr(layout.offset))
		if err := status("stride", set.Call(*layout.into, 6, m.Addr()+8, 8)); err != nil {
			return nil, err
		}
	}
	return &r, nil
}
