//go:build cuda

package cudart

import (
	"fmt"

	"github.com/steadyrl/steady/internal/fault"
)

// Values of the interface that are used here, from its documentation.
const (
	ltCompute32F      = 68
	ltReal32F         = 0
	ltRealBF16        = 14
	ltDescTransA      = 3
	ltDescTransB      = 4
	ltPrefWorkspace   = 1
	ltPrefReduction   = 3 // mask of reduction schemes
	ltOutOfPlace      = 2 // parts of a split inner dimension are stored apart and added in a fixed order; others add in the order in which they come
	ltResultBytes     = 96
	ltResultWorkspace = 8 // word
	ltResultState     = 18
	ltWorkspaceBytes  = 64 << 20
	ltCandidates      = 8 // of algorithms
)

// BLAS is cuBLASLt on one context, for products of BF16 matrices with float32 sums.
type BLAS struct {
	// Path is the file; Version is as the library counts, for example 130100.
	Path    string
	Version int

	ctx       *Context
	handle    uintptr
	workspace Ptr
	scalars   Memory // alpha, beta

	destroy, matmul, heuristic, descCreate, descSet, descDestroy, layoutCreate, layoutDestroy Proc
	prefCreate, prefSet, prefDestroy                                                          Proc
}

// BLASVersion opens cuBLASLt as Find does and returns its file and version, without a GPU.
func BLASVersion(explicit string) (path string, version int, err error) {
	l, err := Find(CUBLASLt, explicit)
	if err != nil {
		return "", 0, err
	}
	p, err := l.Proc("cublasLtGetVersion")
	if err != nil {
		return "", 0, err
	}
	return l.Path, p.Call(), nil
}

// NewBLAS opens cuBLASLt for ctx. Errors: NotFound, Exhausted, Lost.
func NewBLAS(ctx *Context, explicit string) (*BLAS, error) {
	l, err := Find(CUBLASLt, explicit)
	if err != nil {
		return nil, err
	}
	b := &BLAS{Path: l.Path, ctx: ctx}
	var version, create Proc
	err = l.procs(map[string]*Proc{
		"cublasLtGetVersion": &version, "cublasLtCreate": &create, "cublasLtDestroy": &b.destroy, "cublasLtMatmul": &b.matmul,
		"cublasLtMatmulAlgoGetHeuristic": &b.heuristic, "cublasLtMatmulDescCreate": &b.descCreate, "cublasLtMatmulDescSetAttribute": &b.descSet,
		"cublasLtMatmulDescDestroy": &b.descDestroy, "cublasLtMatrixLayoutCreate": &b.layoutCreate, "cublasLtMatrixLayoutDestroy": &b.layoutDestroy,
		"cublasLtMatmulPreferenceCreate": &b.prefCreate, "cublasLtMatmulPreferenceSetAttribute": &b.prefSet,
		"cublasLtMatmulPreferenceDestroy": &b.prefDestroy,
	})
	if err != nil {
		return nil, err
	}
	b.Version = version.Call()
	m := NewMemory(8)
	defer m.Free()
	if err := status("cublasLtCreate", create.Call(m.Addr())); err != nil {
		return nil, err
	}
	b.handle = m.Word(0)
	if b.workspace, err = ctx.Alloc(ltWorkspaceBytes); err != nil {
		b.destroy.Call(b.handle)
		return nil, err
	}
	b.scalars = NewMemory(8)
	b.scalars.SetInt32(0, 0x3f800000) // alpha 1 as float32; beta stays 0
	return b, nil
}

func status(what string, code int) error {
	if code == 0 {
		return nil
	}
	return fault.New(fault.Lost, "cudart.BLAS", "%s: status %d", what, code)
}

// Close frees the handle. Plans are closed before.
func (b *BLAS) Close() error {
	err := b.ctx.Free(b.workspace)
	b.scalars.Free()
	if e := status("cublasLtDestroy", b.destroy.Call(b.handle)); err == nil {
		err = e
	}
	return err
}

// Product says which of the three products of a linear layer a plan computes. x is [rows,in] and W [out,in] in BF16, y [rows,out]; gradients dy
// are BF16 with a row stride of their own, results float32. All are row-major.
type Product int

// The products.
const (
	Forward     Product = iota // y = x W^T
	InputGrad                  // dx [rows,in] = dy W
	WeightsGrad                // dW [out,in] += dy^T x
)

// Shape is what a plan is made for. StrideY is the row stride of dy in elements; 0 for Out. Half makes the result BF16; that of WeightsGrad is always float32.
type Shape struct {
	Product                Product
	Rows, Out, In, StrideY int
	Half                   bool
}

// Plan is a product of one shape. It begins with the algorithm that the library's rules put first and keeps it unless Use or SetAlgorithm chooses
// another; where it splits the inner dimension, it adds the parts in a fixed order. So a row of y or dx depends on that row of x or dy and on W only.
type Plan struct {
	Shape
	b                *BLAS
	desc             uintptr
	shared           uintptr // instead of desc: another plan's
	layA, layB, layC uintptr
	results          Memory // of the candidates
	candidates, used int
}

// NewPlan chooses an algorithm. Errors: NotFound when the library has none for the shape.
func (b *BLAS) NewPlan(s Shape) (p *Plan, err error) {
	p = &Plan{b: b, Shape: s, results: NewMemory(ltCandidates * ltResultBytes)}
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	m := NewMemory(16)
	defer m.Free()
	made := func(what string, into *uintptr, f Proc, words ...uintptr) {
		if err != nil {
			return
		}
		if err = status(what, f.Call(append([]uintptr{m.Addr()}, words...)...)); err == nil {
			*into = m.Word(0)
		}
	}
	set := func(what string, f Proc, object uintptr, attribute int, value uintptr, bytes int) {
		if err != nil {
			return
		}
		m.SetWord(1, value)
		err = status(what, f.Call(object, uintptr(attribute), m.Addr()+8, uintptr(bytes)))
	}
	layout := func(into *uintptr, kind, rows, cols, stride int) {
		made("layout", into, b.layoutCreate, uintptr(kind), uintptr(rows), uintptr(cols), uintptr(stride)) //nolint:gosec // sizes
	}
	kind := ltReal32F
	if s.Half {
		kind = ltRealBF16
	}
	made("matmul descriptor", &p.desc, b.descCreate, ltCompute32F, ltReal32F)
	strideY := s.StrideY
	if strideY == 0 {
		strideY = s.Out
	}
	// Column-major, as the library counts, every matrix is its own transpose.
	switch s.Product {
	case Forward: // Y^T [out,rows] = W X^T
		set("transposition", b.descSet, p.desc, ltDescTransA, 1, 4)
		layout(&p.layA, ltRealBF16, s.In, s.Out, s.In)
		layout(&p.layB, ltRealBF16, s.In, s.Rows, s.In)
		layout(&p.layC, kind, s.Out, s.Rows, s.Out)
	case InputGrad: // dX^T [in,rows] = W^T dY^T
		layout(&p.layA, ltRealBF16, s.In, s.Out, s.In)
		layout(&p.layB, ltRealBF16, s.Out, s.Rows, strideY)
		layout(&p.layC, kind, s.In, s.Rows, s.In)
	case WeightsGrad: // dW^T [in,out] = X^T dY
		set("transposition", b.descSet, p.desc, ltDescTransB, 1, 4)
		layout(&p.layA, ltRealBF16, s.In, s.Rows, s.In)
		layout(&p.layB, ltRealBF16, s.Out, s.Rows, strideY)
		layout(&p.layC, ltReal32F, s.In, s.Out, s.In)
	default:
		return p, fault.New(fault.Internal, "cudart.NewPlan", "product %d is unknown", s.Product)
	}
	var pref uintptr
	made("preference", &pref, b.prefCreate)
	set("workspace", b.prefSet, pref, ltPrefWorkspace, ltWorkspaceBytes, 8)
	var reduction uintptr
	if s.Product == Forward {
		reduction = ltOutOfPlace
	}
	set("reduction", b.prefSet, pref, ltPrefReduction, reduction, 4)
	if err != nil {
		return p, err
	}
	defer b.prefDestroy.Call(pref)
	code := b.heuristic.Call(b.handle, p.desc, p.layA, p.layB, p.layC, p.layC, pref, ltCandidates, p.results.Addr(), m.Addr())
	for p.candidates < int(m.Int32(0)) && p.results.Int32(p.candidates*ltResultBytes/4+ltResultState) == 0 {
		p.candidates++
	}
	if code != 0 || p.candidates == 0 {
		return p, fault.New(fault.NotFound, "cudart.NewPlan", "no algorithm for %+v (status %d, %d found)", s, code, m.Int32(0))
	}
	return p, nil
}

// Candidates is the number of algorithms that Use can choose from.
func (p *Plan) Candidates() int { return p.candidates }

// Use chooses an algorithm by its place among the candidates.
func (p *Plan) Use(i int) { p.used = i }

// algorithm is the place of the chosen one.
func (p *Plan) algorithm() uintptr { return p.results.Addr() + uintptr(p.used*ltResultBytes) }

// Algorithm is the chosen algorithm in the library's form, which one version of it on one kind of GPU understands; SetAlgorithm chooses one that
// Algorithm returned. Errors: Invalid.
func (p *Plan) Algorithm() []byte {
	return append([]byte{}, p.results.Bytes((p.used + 1) * ltResultBytes)[p.used*ltResultBytes:]...)
}

// SetAlgorithm is the reverse of Algorithm.
func (p *Plan) SetAlgorithm(a []byte) error {
	if len(a) != ltResultBytes {
		return fault.New(fault.Invalid, "cudart.SetAlgorithm", "%d bytes, want %d", len(a), ltResultBytes)
	}
	p.used = 0
	copy(p.results.Bytes(ltResultBytes), a)
	return nil
}

// Run computes the product on the context's stream. Forward: y, x, W. InputGrad: dx, dy, W. WeightsGrad: dW, dy, x.
func (p *Plan) Run(result, rows, other Ptr) error {
	return p.run(result, rows, other, p.Product == WeightsGrad)
}

// Write is Run for WeightsGrad without adding: what was in dW does not count.
func (p *Plan) Write(result, rows, other Ptr) error { return p.run(result, rows, other, false) }

func (p *Plan) run(result, rows, other Ptr, add bool) error {
	b, beta := p.b, p.b.scalars.Addr()+4
	if add {
		beta = b.scalars.Addr() // 1
	}
	code := b.matmul.Call(b.handle, p.desc|p.shared, b.scalars.Addr(), uintptr(other), p.layA, uintptr(rows), p.layB, beta,
		uintptr(result), p.layC, uintptr(result), p.layC, p.algorithm(), uintptr(b.workspace), ltWorkspaceBytes, uintptr(b.ctx.streamPtr()))
	if code != 0 {
		return fmt.Errorf("%+v: %w", p.Shape, status("cublasLtMatmul", code))
	}
	return nil
}

// Close frees the plan.
func (p *Plan) Close() {
	for _, l := range []uintptr{p.layA, p.layB, p.layC} {
		if l != 0 {
			p.b.layoutDestroy.Call(l)
		}
	}
	if p.desc != 0 {
		p.b.descDestroy.Call(p.desc)
	}
	p.results.Free()
}
