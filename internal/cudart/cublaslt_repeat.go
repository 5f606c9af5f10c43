//go:build cuda

package cudart

// Numbers of the library's interface, as in cublaslt.go.
const (
	ltAlgoSplits   = 2
	ltLayoutBatch  = 5
	ltLayoutStride = 6
)

// splits is the number of parts into which the plan's algorithm splits the inner dimension; 0 when the library does not say.
func (p *Plan) splits() int {
	l, err := Open(p.b.Path)
	if err != nil {
		return 0
	}
	get, err := l.Proc("cublasLtMatmulAlgoConfigGetAttribute")
	if err != nil {
		return 0
	}
	m := NewMemory(16)
	defer m.Free()
	if get.Call(p.algorithm(), ltAlgoSplits, m.Addr(), 4, m.Addr()+8) != 0 {
		return 0
	}
	return int(m.Int32(0))
}

// Repeat returns a plan that computes n forward products of p's shape at once, whose rows follow each other in x and y, with p's algorithm and so with the
// same bits. It shares p's algorithm: p is closed after it. The result is nil when the algorithm cannot: it splits the inner dimension.
func (p *Plan) Repeat(n int) (*Plan, error) {
	if p.Product != Forward || p.splits() != 1 {
		return nil, nil
	}
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
	r := &Plan{Shape: p.Shape, b: p.b, results: NewMemory(ltResultBytes), candidates: 1, shared: p.desc}
	if err := r.SetAlgorithm(p.Algorithm()); err != nil {
		r.Close()
		return nil, err
	}
	for _, layout := range []struct {
		into                     *uintptr
		kind, rows, cols, stride int
	}{{&r.layA, ltRealBF16, p.In, p.Out, 0}, {&r.layB, ltRealBF16, p.In, p.Rows, p.In * p.Rows}, {&r.layC, ltReal32F, p.Out, p.Rows, p.Out * p.Rows}} {
		err := status("layout", p.b.layoutCreate.Call(m.Addr(), uintptr(layout.kind), uintptr(layout.rows), uintptr(layout.cols), uintptr(layout.rows))) //nolint:gosec // sizes
		if err == nil {
			*layout.into = m.Word(0)
			m.SetWord(1, uintptr(n)) //nolint:gosec // a count
			err = status("count of a batch", set.Call(*layout.into, ltLayoutBatch, m.Addr()+8, 4))
		}
		if err == nil {
			m.SetWord(1, uintptr(layout.stride)) //nolint:gosec // a size
			err = status("stride of a batch", set.Call(*layout.into, ltLayoutStride, m.Addr()+8, 8))
		}
		if err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}
