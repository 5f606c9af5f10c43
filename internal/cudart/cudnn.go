//go:build cuda

package cudart

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/steadyrl/steady/internal/fault"
)

// Values of cuDNN's backend interface that are used here, from its documentation.
const (
	dnnFloat, dnnInt32, dnnBF16, dnnBoolean = 0, 4, 9, 11 // data types

	// Types of attributes.
	dnnIsHandle, dnnIsDataType, dnnIsBool, dnnIsInt64, dnnIsPtr, dnnIsHeurMode, dnnIsPointwise, dnnIsDescriptor, dnnIsReduction = 0, 1, 2, 3, 6, 8, 14, 15, 18

	// Kinds of descriptors.
	dnnPointwise, dnnEngineConfig, dnnEngineHeur, dnnPlan, dnnOpPointwise, dnnGraph, dnnVariants = 0, 3, 4, 5, 13, 15, 16
	dnnTensor, dnnMatmul, dnnOpMatmul, dnnReduction, dnnOpReduction, dnnOpReshape                = 17, 18, 19, 21, 22, 31

	// Names of attributes.
	dnnPointwiseMode, dnnPointwiseType, dnnPointwiseAxis                                                 = 0, 1, 9
	dnnHeurMode, dnnHeurGraph, dnnHeurResults                                                            = 200, 201, 202
	dnnPlanHandle, dnnPlanConfig, dnnPlanWorkspace                                                       = 400, 401, 402
	dnnPointwiseDesc, dnnPointwiseX, dnnPointwiseB, dnnPointwiseY, dnnPointwiseT                         = 750, 751, 752, 753, 758
	dnnGraphHandle, dnnGraphOps                                                                          = 800, 801
	dnnAlignment, dnnDataType, dnnDimensions, dnnStrides, dnnID, dnnVirtual, dnnByValue                  = 900, 901, 902, 903, 906, 907, 908
	dnnRagged                                                                                            = 913
	dnnPackIDs, dnnPackPointers, dnnPackWorkspace                                                        = 1000, 1001, 1003
	dnnMatmulType, dnnMatmulA, dnnMatmulB, dnnMatmulC, dnnMatmulDesc, dnnMatmulM, dnnMatmulN, dnnMatmulK = 1500, 1520, 1521, 1522, 1523, 1525, 1526, 1527
	dnnReductionMode, dnnReductionType, dnnReductionX, dnnReductionY, dnnReductionDesc                   = 1600, 1601, 1610, 1611, 1612
	dnnReshapeX, dnnReshapeY                                                                             = 2200, 2201

	// Operations.
	dnnMul, dnnAdd, dnnDiv, dnnSub, dnnExp, dnnLog, dnnIdentity = 1, 0, 6, 9, 13, 15, 21
	dnnLess, dnnGreaterEqual, dnnAnd, dnnIndex, dnnSelect       = 304, 303, 400, 501, 601
	dnnReduceAdd, dnnReduceMax                                  = 0, 3
	dnnHeurA                                                    = 3

	// dnnOldest is the first version whose packed attention takes fewer key heads than query heads.
	dnnOldest = 90600
)

// DNN is cuDNN on one context, for attention in both directions.
type DNN struct {
	// Path is the file; Version is as the library counts, for example 91400.
	Path    string
	Version int

	ctx    *Context
	handle uintptr
	// Plans by shape and direction, and memory that they need to run.
	plans     map[dnnKey]*dnnPlanOf
	refused   map[dnnKey]error // shapes that the library cannot do
	workspace Ptr
	room      int
	values    Memory // the scalars of all graphs: scale, -INF, 1

	create, set, get, finalize, execute, drop, message, destroy Proc
}

// Attention is the shape of a call: causal attention of Batch packed sequences of at most Length tokens each, with heads of width Width. Rows of the inputs
// and outputs have strides of their own, in elements: Q and O, K, and QKV of the values and of all three gradients.
type Attention struct {
	Batch, Length, Heads, KVHeads, Width int
	StrideQ, StrideK, StrideQKV          int
	Scale                                float32
}

// AttentionArgs are a call's addresses. Q, K and V point to the first head of the call in row 0, as do the gradients. Offsets are [Batch+1] int32: the elements
// before each sequence, for the strides of Q, of K and of QKV. Lengths is [Batch] int32. Stats is float32 [Batch,Heads,Length], Sums scratch of the same size.
// All addresses are multiples of 16.
type AttentionArgs struct {
	Q, K, V, O, Stats              Ptr
	OffsetsQ, OffsetsK, OffsetsQKV Ptr
	Lengths                        Ptr
	DO, DQ, DK, DV, Sums           Ptr
}

type dnnKey struct {
	Attention
	backward bool
}

// dnnPlanOf is a finished plan. ids are the tensors that Run has addresses for, in the order of pointers.
type dnnPlanOf struct {
	plan      uintptr
	objects   []uintptr // all descriptors, plan included
	ids       []uintptr
	workspace int
}

// NewDNN opens cuDNN for ctx. Errors: NotFound (no library, or too old a one), Lost.
func NewDNN(ctx *Context, explicit string) (*DNN, error) {
	const op = "cudart.NewDNN"
	l, err := Find(CUDNN, explicit)
	if err != nil {
		return nil, err
	}
	d := &DNN{Path: l.Path, ctx: ctx, plans: map[dnnKey]*dnnPlanOf{}, refused: map[dnnKey]error{}}
	var version, create, stream Proc
	err = l.procs(map[string]*Proc{
		"cudnnGetVersion": &version, "cudnnCreate": &create, "cudnnDestroy": &d.destroy, "cudnnSetStream": &stream, "cudnnGetLastErrorString": &d.message,
		"cudnnBackendCreateDescriptor": &d.create, "cudnnBackendDestroyDescriptor": &d.drop, "cudnnBackendSetAttribute": &d.set,
		"cudnnBackendGetAttribute": &d.get, "cudnnBackendFinalize": &d.finalize, "cudnnBackendExecute": &d.execute,
	})
	if err != nil {
		return nil, err
	}
	if d.Version = version.Call(); d.Version < dnnOldest {
		return nil, fault.New(fault.NotFound, op, "%s is version %d, the oldest that serves is %d", l.Path, d.Version, dnnOldest)
	}
	m := NewMemory(8)
	defer m.Free()
	if code := create.Call(m.Addr()); code != 0 {
		return nil, d.failed("cudnnCreate", code)
	}
	d.handle = m.Word(0)
	if code := stream.Call(d.handle, uintptr(ctx.streamPtr())); code != 0 {
		return nil, d.failed("cudnnSetStream", code)
	}
	d.values = NewMemory(16)
	d.values.SetInt32(1, int32(-0x800000)) // -INF
	d.values.SetInt32(2, 0x3f800000)       // 1
	return d, nil
}

func (d *DNN) failed(what string, code int) error {
	m := NewMemory(512)
	defer m.Free()
	d.message.Call(m.Addr(), 512)
	text, _, _ := strings.Cut(string(m.Bytes(512)), "\x00")
	return fault.New(fault.Lost, "cudart.DNN", "%s: status %d: %s", what, code, text)
}

// Close frees plans, workspace and handle.
func (d *DNN) Close() error {
	err := d.ctx.Free(d.workspace)
	for _, p := range d.plans {
		d.free(p.objects)
	}
	if code := d.destroy.Call(d.handle); code != 0 && err == nil {
		err = d.failed("cudnnDestroy", code)
	}
	d.values.Free()
	return err
}

func (d *DNN) free(objects []uintptr) {
	for i := len(objects) - 1; i >= 0; i-- {
		d.drop.Call(objects[i])
	}
}

// dnnGraphOf builds one graph; the first error stops the rest.
type dnnGraphOf struct {
	d       *DNN
	objects []uintptr
	ops     []uintptr
	next    uintptr // the next number of a tensor
	ids     []uintptr
	err     error
}

// tensor is a descriptor with its dimensions.
type dnnTensorOf struct {
	object        uintptr
	id            uintptr
	dims, strides [4]int
}

func (g *dnnGraphOf) object(kind int) uintptr {
	if g.err != nil {
		return 0
	}
	m := NewMemory(8)
	defer m.Free()
	if code := g.d.create.Call(uintptr(kind), m.Addr()); code != 0 {
		g.err = g.d.failed(fmt.Sprintf("descriptor of kind %d", kind), code)
		return 0
	}
	g.objects = append(g.objects, m.Word(0))
	return m.Word(0)
}

func (g *dnnGraphOf) words(object uintptr, name, kind int, values ...uintptr) {
	m := NewMemory(8 * len(values))
	defer m.Free()
	for i, v := range values {
		m.SetWord(i, v)
	}
	if g.err != nil {
		return
	}
	if code := g.d.set.Call(object, uintptr(name), uintptr(kind), uintptr(len(values)), m.Addr()); code != 0 {
		g.err = g.d.failed(fmt.Sprintf("attribute %d of %d values", name, len(values)), code)
	}
}

func (g *dnnGraphOf) finish(object uintptr, what string) {
	if g.err != nil {
		return
	}
	if code := g.d.finalize.Call(object); code != 0 {
		g.err = g.d.failed(what, code)
	}
}

// place says where a tensor lives.
type dnnPlace int

const (
	dnnOnDevice dnnPlace = iota
	dnnNowhere           // between operations only
	dnnOnHost            // one number in host memory
)

// dnnShape is a tensor before it has a descriptor. ragged, unless nil, are the offsets of its sequences.
func (g *dnnGraphOf) tensor(kind int, dims, strides [4]int, place dnnPlace, ragged *dnnTensorOf) *dnnTensorOf {
	t := &dnnTensorOf{object: g.object(dnnTensor), id: g.next + 1, dims: dims, strides: strides}
	g.next++
	four := func(x [4]int) (w []uintptr) {
		for _, v := range x {
			w = append(w, uintptr(v)) //nolint:gosec // a size
		}
		return w
	}
	flag := func(b bool) uintptr {
		if b {
			return 1
		}
		return 0
	}
	g.words(t.object, dnnID, dnnIsInt64, t.id)
	g.words(t.object, dnnDataType, dnnIsDataType, uintptr(kind))
	g.words(t.object, dnnDimensions, dnnIsInt64, four(dims)...)
	g.words(t.object, dnnStrides, dnnIsInt64, four(strides)...)
	g.words(t.object, dnnAlignment, dnnIsInt64, 16)
	g.words(t.object, dnnVirtual, dnnIsBool, flag(place == dnnNowhere))
	g.words(t.object, dnnByValue, dnnIsBool, flag(place == dnnOnHost))
	if ragged != nil {
		g.words(t.object, dnnRagged, dnnIsDescriptor, ragged.object)
	}
	g.finish(t.object, fmt.Sprintf("tensor %d %v %v", t.id, dims, strides))
	if place != dnnNowhere {
		g.ids = append(g.ids, t.id)
	}
	return t
}

func (g *dnnGraphOf) virtual(kind int, dims, strides [4]int) *dnnTensorOf {
	return g.tensor(kind, dims, strides, dnnNowhere, nil)
}

// pointwise adds y = op(x, b, t), for as many inputs as the operation has. axis is for dnnIndex.
func (g *dnnGraphOf) pointwise(op, kind int, y, x *dnnTensorOf, more ...*dnnTensorOf) *dnnTensorOf {
	p := g.object(dnnPointwise)
	g.words(p, dnnPointwiseMode, dnnIsPointwise, uintptr(op))
	g.words(p, dnnPointwiseType, dnnIsDataType, uintptr(kind))
	g.finish(p, "pointwise")
	return g.apply(p, y, x, more...)
}

func (g *dnnGraphOf) index(axis, kind int, y, x *dnnTensorOf) *dnnTensorOf {
	p := g.object(dnnPointwise)
	g.words(p, dnnPointwiseAxis, dnnIsInt64, uintptr(axis)) //nolint:gosec // 2 or 3
	g.words(p, dnnPointwiseType, dnnIsDataType, uintptr(kind))
	g.words(p, dnnPointwiseMode, dnnIsPointwise, dnnIndex)
	g.finish(p, "index")
	return g.apply(p, y, x)
}

func (g *dnnGraphOf) apply(p uintptr, y, x *dnnTensorOf, more ...*dnnTensorOf) *dnnTensorOf {
	o := g.object(dnnOpPointwise)
	g.words(o, dnnPointwiseDesc, dnnIsDescriptor, p)
	g.words(o, dnnPointwiseX, dnnIsDescriptor, x.object)
	for i, t := range more {
		g.words(o, []int{dnnPointwiseB, dnnPointwiseT}[i], dnnIsDescriptor, t.object)
	}
	g.words(o, dnnPointwiseY, dnnIsDescriptor, y.object)
	g.finish(o, "pointwise operation")
	g.ops = append(g.ops, o)
	return y
}

func (g *dnnGraphOf) matmul(c, a, b, m, n, k *dnnTensorOf) *dnnTensorOf {
	p := g.object(dnnMatmul)
	g.words(p, dnnMatmulType, dnnIsDataType, dnnFloat)
	g.finish(p, "matmul")
	o := g.object(dnnOpMatmul)
	for name, t := range map[int]*dnnTensorOf{dnnMatmulA: a, dnnMatmulB: b, dnnMatmulC: c, dnnMatmulM: m, dnnMatmulN: n, dnnMatmulK: k} {
		if t != nil {
			g.words(o, name, dnnIsDescriptor, t.object)
		}
	}
	g.words(o, dnnMatmulDesc, dnnIsDescriptor, p)
	g.finish(o, "matmul operation")
	g.ops = append(g.ops, o)
	return c
}

func (g *dnnGraphOf) reduce(op int, y, x *dnnTensorOf) *dnnTensorOf {
	p := g.object(dnnReduction)
	g.words(p, dnnReductionType, dnnIsDataType, dnnFloat)
	g.words(p, dnnReductionMode, dnnIsReduction, uintptr(op))
	g.finish(p, "reduction")
	o := g.object(dnnOpReduction)
	g.words(o, dnnReductionX, dnnIsDescriptor, x.object)
	g.words(o, dnnReductionY, dnnIsDescriptor, y.object)
	g.words(o, dnnReductionDesc, dnnIsDescriptor, p)
	g.finish(o, "reduction operation")
	g.ops = append(g.ops, o)
	return y
}

func (g *dnnGraphOf) reshape(y, x *dnnTensorOf) *dnnTensorOf {
	o := g.object(dnnOpReshape)
	g.words(o, dnnReshapeX, dnnIsDescriptor, x.object)
	g.words(o, dnnReshapeY, dnnIsDescriptor, y.object)
	g.finish(o, "reshape")
	g.ops = append(g.ops, o)
	return y
}

// plan turns the operations into the first plan that the library's rules offer and that can be made.
func (g *dnnGraphOf) plan() *dnnPlanOf {
	graph := g.object(dnnGraph)
	g.words(graph, dnnGraphHandle, dnnIsHandle, g.d.handle)
	g.words(graph, dnnGraphOps, dnnIsDescriptor, g.ops...)
	g.finish(graph, "graph")
	heur := g.object(dnnEngineHeur)
	g.words(heur, dnnHeurGraph, dnnIsDescriptor, graph)
	g.words(heur, dnnHeurMode, dnnIsHeurMode, dnnHeurA)
	g.finish(heur, "heuristics")
	if g.err != nil {
		return nil
	}
	count := NewMemory(8)
	defer count.Free()
	if code := g.d.get.Call(heur, dnnHeurResults, dnnIsDescriptor, 0, count.Addr(), 0); code != 0 {
		g.err = g.d.failed("number of plans", code)
		return nil
	}
	n := int(count.Word(0))
	list := NewMemory(8 * n)
	defer list.Free()
	for i := range n {
		list.SetWord(i, g.object(dnnEngineConfig))
	}
	if g.err == nil && n > 0 {
		if code := g.d.get.Call(heur, dnnHeurResults, dnnIsDescriptor, uintptr(n), count.Addr(), list.Addr()); code != 0 { //nolint:gosec // a count
			g.err = g.d.failed("list of plans", code)
		}
	}
	if g.err != nil {
		return nil
	}
	reason := errors.New("none is offered")
	for i := range int(count.Word(0)) {
		plan := g.object(dnnPlan)
		g.words(plan, dnnPlanHandle, dnnIsHandle, g.d.handle)
		g.words(plan, dnnPlanConfig, dnnIsDescriptor, list.Word(i))
		g.finish(plan, "plan")
		if g.err != nil {
			reason, g.err = g.err, nil
			continue
		}
		if code := g.d.get.Call(plan, dnnPlanWorkspace, dnnIsInt64, 1, count.Addr(), list.Addr()); code != 0 {
			g.err = g.d.failed("workspace of a plan", code)
			return nil
		}
		return &dnnPlanOf{plan: plan, objects: g.objects, ids: g.ids, workspace: int(list.Word(0))}
	}
	g.err = fmt.Errorf("none of %d plans can be made for the graph of %d operations: %w", n, len(g.ops), reason)
	return nil
}

// mask keeps scores of keys that are in the sequence (padding) or not after the query (causal) and makes the others -INF.
func (g *dnnGraphOf) mask(scores, lengths, low *dnnTensorOf, causal bool) *dnnTensorOf {
	kind := dnnFloat
	if !causal {
		kind = dnnInt32
	}
	like := func(kind int) *dnnTensorOf { return g.virtual(kind, scores.dims, scores.strides) }
	row := g.index(2, kind, like(dnnInt32), scores)
	column := g.index(3, kind, like(dnnInt32), scores)
	var keep *dnnTensorOf
	if causal {
		keep = g.pointwise(dnnGreaterEqual, dnnBoolean, like(dnnBoolean), row, column)
	} else {
		in := g.pointwise(dnnLess, dnnBoolean, like(dnnBoolean), row, lengths)
		seen := g.pointwise(dnnLess, dnnBoolean, like(dnnBoolean), column, lengths)
		keep = g.pointwise(dnnAnd, dnnBoolean, like(dnnBoolean), in, seen)
	}
	return g.pointwise(dnnSelect, dnnFloat, like(dnnFloat), scores, low, keep)
}

// attention builds the graph of one direction. The order of the device's and the host's tensors is that of addresses.
func (g *dnnGraphOf) attention(a Attention, backward bool) {
	b, s, h, kv, w := a.Batch, a.Length, a.Heads, a.KVHeads, a.Width
	ones, column := [4]int{1, 1, 1, 1}, [4]int{b, h, s, 1}
	columnStride := [4]int{h * s, s, 1, 1}
	square, squareStride := [4]int{b, h, s, s}, [4]int{h * s * s, s * s, s, 1}
	turned := [4]int{h * s * s, s * s, 1, s}
	offsets := func() *dnnTensorOf { return g.tensor(dnnInt32, [4]int{b + 1, 1, 1, 1}, ones, dnnOnDevice, nil) }
	offQ, offK, offAll := offsets(), offsets(), offsets()
	lengths := g.tensor(dnnInt32, [4]int{b, 1, 1, 1}, ones, dnnOnDevice, nil)
	rows := func(heads, stride int, off *dnnTensorOf) *dnnTensorOf {
		return g.tensor(dnnBF16, [4]int{b, heads, s, w}, [4]int{s * stride, w, stride, 1}, dnnOnDevice, off)
	}
	across := func(heads, stride int, off *dnnTensorOf) *dnnTensorOf {
		return g.tensor(dnnBF16, [4]int{b, heads, w, s}, [4]int{s * stride, w, 1, stride}, dnnOnDevice, off)
	}
	q, k := rows(h, a.StrideQ, offQ), across(kv, a.StrideK, offK)
	var v *dnnTensorOf
	if backward {
		v = across(kv, a.StrideQKV, offAll)
	} else {
		v = rows(kv, a.StrideQKV, offAll)
	}
	o := rows(h, a.StrideQ, offQ)
	stats := g.tensor(dnnFloat, column, columnStride, dnnOnDevice, nil)
	number := func() *dnnTensorOf { return g.tensor(dnnFloat, ones, ones, dnnOnHost, nil) }
	scale, low, one := number(), number(), number()
	_ = one
	float := func(dims, strides [4]int) *dnnTensorOf { return g.virtual(dnnFloat, dims, strides) }
	if !backward {
		x := g.matmul(float(square, squareStride), q, k, lengths, lengths, nil)
		x = g.pointwise(dnnMul, dnnFloat, float(square, squareStride), x, scale)
		x = g.mask(x, lengths, low, false)
		x = g.mask(x, lengths, low, true)
		top := g.reduce(dnnReduceMax, float(column, columnStride), x)
		x = g.pointwise(dnnSub, dnnFloat, float(square, squareStride), x, top)
		e := g.pointwise(dnnExp, dnnFloat, float(square, squareStride), x)
		sum := g.reduce(dnnReduceAdd, float(column, columnStride), e)
		logs := g.pointwise(dnnLog, dnnFloat, float(column, columnStride), sum)
		g.pointwise(dnnAdd, dnnFloat, stats, top, logs)
		p := g.pointwise(dnnDiv, dnnFloat, g.virtual(dnnBF16, square, squareStride), e, sum)
		g.matmul(o, p, v, lengths, nil, lengths)
		return
	}
	do := rows(h, a.StrideQ, offQ)
	dq := rows(h, a.StrideQKV, offAll)
	dk, dv := rows(kv, a.StrideQKV, offAll), rows(kv, a.StrideQKV, offAll)
	sums := g.tensor(dnnFloat, column, columnStride, dnnOnDevice, nil)
	// dO O, summed over the width.
	x := g.pointwise(dnnMul, dnnFloat, float([4]int{b, h, s, w}, [4]int{h * s * w, s * w, h * w, 1}), do, o)
	x = g.reduce(dnnReduceAdd, float(column, columnStride), x)
	g.pointwise(dnnMul, dnnFloat, sums, x, one)
	// P, and dV = P^T dO.
	x = g.matmul(float(square, squareStride), q, k, lengths, lengths, nil)
	x = g.pointwise(dnnMul, dnnFloat, float(square, squareStride), x, scale)
	x = g.mask(x, lengths, low, false)
	x = g.pointwise(dnnSub, dnnFloat, float(square, squareStride), x, stats)
	x = g.mask(x, lengths, low, true)
	p := g.pointwise(dnnExp, dnnFloat, float(square, squareStride), x)
	heads := func(out, left, right *dnnTensorOf) {
		if h == kv {
			g.matmul(out, left, right, lengths, nil, lengths)
			return
		}
		all := g.virtual(dnnBF16, [4]int{b, h, s, w}, [4]int{h * s * w, s * w, w, 1})
		g.matmul(all, left, right, lengths, nil, lengths)
		g.reduce(dnnReduceAdd, out, all)
	}
	heads(dv, g.reshape(g.virtual(dnnBF16, square, turned), p), do)
	// dS = P (dO V^T - sums), and dK = dS^T Q.
	x = g.matmul(float(square, squareStride), do, v, lengths, lengths, nil)
	x = g.pointwise(dnnSub, dnnFloat, float(square, squareStride), x, sums)
	x = g.pointwise(dnnMul, dnnFloat, float(square, squareStride), x, p)
	ds := g.pointwise(dnnMul, dnnFloat, float(square, squareStride), x, scale)
	heads(dk, g.reshape(g.virtual(dnnBF16, square, turned), ds), q)
	// dQ = dS K, in one piece: no sums by atomic additions.
	keys := g.tensor(dnnBF16, [4]int{b, kv, s, w}, [4]int{s * a.StrideK, w, a.StrideK, 1}, dnnNowhere, offK)
	g.matmul(dq, ds, g.reshape(keys, k), lengths, nil, lengths)
}

// AttentionPlan makes the plan of a shape and direction unless there is one, and returns the bytes of workspace that running it needs. Errors: NotFound
// (the library has none).
func (d *DNN) AttentionPlan(a Attention, backward bool) (workspace int, err error) {
	key := dnnKey{a, backward}
	if p := d.plans[key]; p != nil {
		return p.workspace, nil
	}
	if err := d.refused[key]; err != nil {
		return 0, err
	}
	g := &dnnGraphOf{d: d}
	g.attention(a, backward)
	p := g.plan()
	if g.err != nil {
		d.free(g.objects)
		d.refused[key] = fault.New(fault.NotFound, "cudart.AttentionPlan", "attention %+v (backward %v): %w", a, backward, g.err)
		return 0, d.refused[key]
	}
	d.plans[key] = p
	return p.workspace, nil
}

// Reserve provides workspace of at least so many bytes; what is there grows.
func (d *DNN) Reserve(bytes int) error {
	if bytes <= d.room {
		return nil
	}
	if err := d.ctx.Sync(); err != nil {
		return err
	}
	err := d.ctx.Free(d.workspace)
	d.workspace, d.room = 0, 0
	if err != nil {
		return err
	}
	if d.workspace, err = d.ctx.Alloc(bytes); err != nil {
		return err
	}
	d.room = bytes
	return nil
}

// Release gives the workspace back.
func (d *DNN) Release() error {
	if err := d.ctx.Sync(); err != nil {
		return err
	}
	at := d.workspace
	d.workspace, d.room = 0, 0
	return d.ctx.Free(at)
}

// Attend runs attention forwards (O and Stats are written) or backwards (DQ, DK and DV are written) on the context's stream. Rows outside of the sequences
// are not written. The backward pass has one order of summation.
func (d *DNN) Attend(a Attention, args AttentionArgs, backward bool) error {
	workspace, err := d.AttentionPlan(a, backward)
	if err != nil {
		return err
	}
	if err := d.Reserve(workspace); err != nil {
		return err
	}
	d.values.SetInt32(0, int32(math.Float32bits(a.Scale))) //nolint:gosec // bits
	p := d.plans[dnnKey{a, backward}]
	host := d.values.Addr()
	pointers := []uintptr{
		uintptr(args.OffsetsQ), uintptr(args.OffsetsK), uintptr(args.OffsetsQKV), uintptr(args.Lengths), uintptr(args.Q), uintptr(args.K), uintptr(args.V),
		uintptr(args.O), uintptr(args.Stats), host, host + 4, host + 8,
	}
	if backward {
		pointers = append(pointers, uintptr(args.DO), uintptr(args.DQ), uintptr(args.DK), uintptr(args.DV), uintptr(args.Sums))
	}
	ids := p.ids
	if !backward { // the 1 is not part of the forward graph
		pointers, ids = pointers[:len(pointers)-1], ids[:len(ids)-1]
	}
	g := &dnnGraphOf{d: d}
	pack := g.object(dnnVariants)
	g.words(pack, dnnPackWorkspace, dnnIsPtr, uintptr(d.workspace))
	g.words(pack, dnnPackPointers, dnnIsPtr, pointers...)
	g.words(pack, dnnPackIDs, dnnIsInt64, ids...)
	g.finish(pack, "addresses")
	if g.err == nil {
		if code := d.execute.Call(d.handle, p.plan, pack); code != 0 {
			g.err = d.failed("cudnnBackendExecute", code)
		}
	}
	d.free(g.objects)
	return g.err
}
