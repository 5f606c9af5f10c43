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
	ltPrefWorkspace   = 1
	ltPrefReduction   = 3 // mask of reduction schemes; 0 allows none, so no split of the inner dimension
	ltResultBytes     = 96
	ltResultWorkspace = 8 // word
	ltResultState     = 18
	ltWorkspaceBytes  = 32 << 20
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

// Plan is the product y = x W^T of one shape: x [rows,in] and W [out,in] in BF16, y [rows,out] in float32, all row-major. One algorithm is
// chosen when it is made and kept, without a split of the inner dimension: a row's result depends on that row and W only.
type Plan struct {
	b                *BLAS
	Rows, Out, In    int
	desc             uintptr
	layW, layX, layY uintptr
	result           Memory
}

// NewPlan chooses an algorithm. Errors: NotFound when the library has none for the shape.
func (b *BLAS) NewPlan(rows, out, in int) (p *Plan, err error) {
	p = &Plan{b: b, Rows: rows, Out: out, In: in, result: NewMemory(ltResultBytes)}
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
	// Column-major, as the library counts: Y^T [out,rows] = W [in,out]^T X^T [in,rows].
	made("matmul descriptor", &p.desc, b.descCreate, ltCompute32F, ltReal32F)
	set("transposition", b.descSet, p.desc, ltDescTransA, 1, 4)
	made("layout", &p.layW, b.layoutCreate, ltRealBF16, uintptr(in), uintptr(out), uintptr(in))
	made("layout", &p.layX, b.layoutCreate, ltRealBF16, uintptr(in), uintptr(rows), uintptr(in))
	made("layout", &p.layY, b.layoutCreate, ltReal32F, uintptr(out), uintptr(rows), uintptr(out))
	var pref uintptr
	made("preference", &pref, b.prefCreate)
	set("workspace", b.prefSet, pref, ltPrefWorkspace, ltWorkspaceBytes, 8)
	set("reduction", b.prefSet, pref, ltPrefReduction, 0, 4)
	if err != nil {
		return p, err
	}
	defer b.prefDestroy.Call(pref)
	code := b.heuristic.Call(b.handle, p.desc, p.layW, p.layX, p.layY, p.layY, pref, 1, p.result.Addr(), m.Addr())
	if code != 0 || m.Int32(0) == 0 || p.result.Int32(ltResultState) != 0 {
		return p, fault.New(fault.NotFound, "cudart.NewPlan", "no algorithm for %d x %d x %d (status %d, %d found)", rows, out, in, code, m.Int32(0))
	}
	return p, nil
}

// Run computes y = x W^T on the context's stream.
func (p *Plan) Run(y, x, w Ptr) error {
	b := p.b
	code := b.matmul.Call(b.handle, p.desc, b.scalars.Addr(), uintptr(w), p.layW, uintptr(x), p.layX, b.scalars.Addr()+4,
		uintptr(y), p.layY, uintptr(y), p.layY, p.result.Addr(), uintptr(b.workspace), ltWorkspaceBytes, uintptr(b.ctx.streamPtr()))
	if code != 0 {
		return fmt.Errorf("%d x %d x %d: %w", p.Rows, p.Out, p.In, status("cublasLtMatmul", code))
	}
	return nil
}

// Close frees the plan.
func (p *Plan) Close() {
	for _, l := range []uintptr{p.layW, p.layX, p.layY} {
		if l != 0 {
			p.b.layoutDestroy.Call(l)
		}
	}
	if p.desc != 0 {
		p.b.descDestroy.Call(p.desc)
	}
	p.result.Free()
}
