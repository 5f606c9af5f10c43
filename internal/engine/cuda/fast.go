//go:build cuda

package cuda

import (
	"errors"
	"slices"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
)

// Sizes of the fast kernels: the width of a head, rows of a block of gradients, and the widest row of a norm.
const (
	fastHead   = plan.HeadWidth
	fastRows   = 16
	fastHidden = plan.FastHidden
)

// fastHeadRows is the number of trained tokens whose logits exist at once.
const fastHeadRows = plan.HeadRows

// attendRoom bounds the workspace of one call of attention, in bytes: batch * heads * length^2 * 2. Longer sequences go in fewer heads a call.
const attendRoom = plan.AttendRoom

// fastKernels are the functions of kernels/fast.cu by name.
type fastKernels struct {
	norm, normGrad, colSum, heads, headsGrad, silu, siluGrad, loss, attend, attendGradQ, attendGradKV, noise *cudart.Function
}

// fastTrain is the training step in BF16 for models whose heads are 128 wide. Products take all rows of a micro-batch at once and attention runs in cuDNN, where
// these libraries are. Values between products are BF16; the residual stream, its gradient, sums and logits are float32.
//
// Of a layer its input is kept, and the products' results too for as many of the last layers as fit in memory, and all inputs of products where they fit
// for all layers; the rest is computed again, by the same kernels from the same inputs. So the figures do not depend on the memory that is free. They
// differ from the sampler's by roundings.
type fastTrain struct {
	k     fastKernels
	dnn   *cudart.DNN // nil for the plain kernels
	tuned *tuned      // nil when nothing is measured

	x, dx                    buffer // [layers+1][rows,hidden] and [rows,hidden] float32
	n, dn, dy, delta         buffer // [rows,hidden]
	q, keys                  buffer // [rows,queries], [rows,kv heads * d]
	datt                     buffer // [rows,queries]
	dqkv, dgu                buffer // [rows,qkv], [rows,2 inter]
	h, dh                    buffer // [rows,inter]
	sums                     buffer // of attention's backward pass
	part                     buffer // partial sums of norms' gradients
	hx, dhn, logits, dlogits buffer // of a chunk of trained tokens
	ints                     buffer // what the host says of a micro-batch
	words, recordIDs, logQ   buffer // and of its trained tokens
	head, stats              buffer // of the loss
	slots                    buffer // activations of layers
	slot                     fastSlot
	count                    int  // of slots
	rich                     bool // slots have the inputs of products too
	embed                    buffer

	m fastMicro
}

// fastSlot are one layer's activations; as a layout, the offsets in bytes and, as bytes, their sum.
type fastSlot struct {
	mid, qkv, att, gu, stats cudart.Ptr
	n1, n2, q, keys          cudart.Ptr // in rich slots; else in buffers that all layers share
	bytes                    int
}

// fastMicro is the micro-batch at hand.
type fastMicro struct {
	rows                             int // with padding
	tokens, position, sequence, last cudart.Ptr
	index                            cudart.Ptr // by trained token
	calls                            []attendCall
	k                                int  // width of the record
	fresh                            bool // the first of a step: the matrices' gradients hold nothing yet
	scale                            float64
}

// attendCall is one call of cuDNN: sequences of similar length, all heads or some of them.
type attendCall struct {
	shape cudart.Attention
	head  int // the first key head
	args  cudart.AttentionArgs
	stats int // offset of its statistics, in elements
}

// suits says whether the fast kernels can do a model.
func suits(s sizes, o Options) bool {
	return plan.Fast(s.planned(), o.Precision.elemBytes()) && !o.Exact
}

func newFast(d *device) (*fastTrain, error) {
	f := &fastTrain{tuned: newTuned(d)}
	for name, to := range map[string]**cudart.Function{
		"fnorm": &f.k.norm, "fnormgrad": &f.k.normGrad, "fcolsum": &f.k.colSum, "fheads": &f.k.heads, "fheadsgrad": &f.k.headsGrad, "fsilu": &f.k.silu,
		"fsilugrad": &f.k.siluGrad, "floss": &f.k.loss, "fattend": &f.k.attend, "fattendgradq": &f.k.attendGradQ,
		"fattendgradkv": &f.k.attendGradKV, "fnoise": &f.k.noise,
	} {
		var err error
		if *to, err = d.k.module.Function(name, 0); err != nil {
			return nil, err
		}
	}
	if d.opts.PlainProducts {
		return f, nil
	}
	var err error
	if f.dnn, err = cudart.NewDNN(d.ctx, d.opts.CUDNN); err != nil && (d.opts.CUDNN != "" || !fault.Is(err, fault.NotFound)) {
		return nil, err
	}
	return f, nil
}

// bucket is the length that attention is planned for: the next power of two from 128 on.
func bucket(length int) int {
	return plan.Bucket(length)
}

// padRows is the number of rows of the products: few shapes serve any number of rows.
func (g *trainGPU) padRows(n int) int {
	return plan.PadRows(n, g.blas != nil)
}

// order sorts a micro-batch's sequences by their bucket, longest first.
func order(b *engine.Batch, indices []int) []int {
	out := slices.Clone(indices)
	slices.SortStableFunc(out, func(i, j int) int { return bucket(len(b.Sequences[j].Tokens)) - bucket(len(b.Sequences[i].Tokens)) })
	return out
}

// planCalls divides the micro-batch's attention into calls. lengths are those of the sequences, in the order of buckets.
func planCalls(s sizes, lengths []int) (calls []attendCall, stats int) {
	group := s.Heads / s.KVHeads
	planned, stats := plan.Calls(s.planned(), lengths)
	for _, p := range planned {
		calls = append(calls, attendCall{
			shape: cudart.Attention{
				Batch: p.Batch, Length: p.Length, Heads: p.KVHeads * group, KVHeads: p.KVHeads, Width: s.HeadDim, StrideQ: s.queries,
				StrideK: s.KVHeads * s.HeadDim, StrideQKV: s.qkv, Scale: s.scaleOf(),
			},
			head: p.Head, stats: p.Stats,
		})
	}
	return calls, stats
}

// packer collects what is uploaded at once; each list begins at a multiple of 16 bytes.
type packer struct{ ints []int32 }

func (p *packer) add(list ...int32) (offset int) {
	for len(p.ints)%4 != 0 {
		p.ints = append(p.ints, 0)
	}
	offset = 4 * len(p.ints)
	p.ints = append(p.ints, list...)
	return offset
}

// layoutOf places a layer's activations of so many rows.
func (g *trainGPU) layoutOf(rows, stats int, rich bool) fastSlot {
	var s fastSlot
	at := map[string]*cudart.Ptr{
		"mid": &s.mid, "qkv": &s.qkv, "att": &s.att, "gu": &s.gu, "stats": &s.stats, "n1": &s.n1, "n2": &s.n2, "q": &s.q, "keys": &s.keys,
	}
	for _, p := range plan.SlotParts(g.planned(), rows, stats, rich) {
		*at[p.Name] = cudart.Ptr(s.bytes) //nolint:gosec // an offset
		s.bytes += p.Bytes
	}
	return s
}

// activations returns layer i's, and whether they are kept from the forward to the backward pass.
func (g *trainGPU) activations(i int) (s fastSlot, kept bool) {
	f := g.fast
	at := g.Layers - 1 - i
	if f.count < g.Layers { // the last slot serves all other layers in turn
		kept = at < f.count-1
		at = min(at, f.count-1)
	} else {
		kept = true
	}
	base := f.slots.at.Add(at * f.slot.bytes)
	s = fastSlot{
		base + f.slot.mid, base + f.slot.qkv, base + f.slot.att, base + f.slot.gu, base + f.slot.stats, base + f.slot.n1, base + f.slot.n2, base + f.slot.q,
		base + f.slot.keys, f.slot.bytes,
	}
	if !f.rich {
		s.n1, s.n2, s.q, s.keys = f.n.at, f.n.at, f.q.at, f.keys.at
	}
	return s, kept
}

// fastPlace makes room for a micro-batch and uploads what the kernels have to know of it. Kept activations give way to everything else.
func (g *trainGPU) fastPlace(b *engine.Batch, m *micro, scale float64) error {
	return g.inRoom(func() error { return g.tryPlace(b, m, scale) }, func() error { return g.drop(&g.fast.slots) })
}

// buffers are the buffers of a micro-batch by their names in the memory plan.
func (f *fastTrain) buffers() map[string]*buffer {
	return map[string]*buffer{
		"x": &f.x, "dx": &f.dx, "n": &f.n, "dn": &f.dn, "dy": &f.dy, "delta": &f.delta, "q": &f.q, "keys": &f.keys, "datt": &f.datt, "dqkv": &f.dqkv,
		"dgu": &f.dgu, "h": &f.h, "dh": &f.dh, "sums": &f.sums, "part": &f.part, "hx": &f.hx, "dhn": &f.dhn, "logits": &f.logits, "dlogits": &f.dlogits,
		"ints": &f.ints, "words": &f.words, "logQ": &f.logQ, "recordIDs": &f.recordIDs, "head": &f.head, "stats": &f.stats, "embed": &f.embed,
	}
}

func (g *trainGPU) tryPlace(b *engine.Batch, m *micro, scale float64) error {
	f, n := g.fast, len(m.tokens)
	rows := g.padRows(n)
	f.m = fastMicro{rows: rows, k: recordWidth(b.Objective), scale: scale}
	var lengths []int
	start := 0
	for _, last := range m.last {
		lengths = append(lengths, int(last)+1-start)
		start = int(last) + 1
	}
	plain := rows * g.Heads
	stats, workspace := plain, 0
	// With a key head for every query head, version 9.14 wrote wrong gradients side by side into one array; no model of this architecture has that.
	if f.dnn != nil && g.Heads > g.KVHeads {
		f.m.calls, stats = planCalls(g.sizes, lengths)
		for _, c := range f.m.calls {
			for _, backward := range []bool{false, true} {
				bytes, err := f.dnn.AttentionPlan(c.shape, backward)
				if fault.Is(err, fault.NotFound) {
					f.m.calls, stats = nil, plain
					break
				}
				if err != nil {
					return err
				}
				workspace = max(workspace, bytes)
			}
			if f.m.calls == nil {
				break
			}
		}
	}
	chunk := g.padRows(min(fastHeadRows, len(m.targets)))
	targets := len(m.targets)
	p := &packer{}
	offsets := []int{p.add(m.tokens...), p.add(m.position...), p.add(m.table...), p.add(m.last...), p.add(rowsOf(m.targets)...)}
	f.packCalls(p, lengths)
	if err := g.needAll(f.buffers(), plan.FastParts(g.planned(), plan.Micro{
		Rows: rows, Tokens: n, Targets: targets, Stats: stats, Record: f.m.k, Ints: len(p.ints), Chunk: chunk,
	})); err != nil {
		return err
	}
	if f.dnn != nil && workspace > 0 {
		if err := f.dnn.Reserve(workspace); err != nil {
			return err
		}
	}
	if err := g.chooseSlots(rows, stats); err != nil {
		return err
	}
	base := f.ints.at
	for i, to := range []*cudart.Ptr{&f.m.tokens, &f.m.position, &f.m.sequence, &f.m.last, &f.m.index} {
		*to = base.Add(offsets[i])
	}
	for i := range f.m.calls {
		a := &f.m.calls[i].args
		a.OffsetsQ, a.OffsetsK, a.OffsetsQKV, a.Lengths = base+a.OffsetsQ, base+a.OffsetsK, base+a.OffsetsQKV, base+a.Lengths
	}
	return errors.Join(cudart.Upload(g.ctx, base, p.ints), g.fastClear(n))
}

// packCalls adds the calls' offsets; args get places in the list until fastPlace knows addresses.
func (f *fastTrain) packCalls(p *packer, lengths []int) {
	row, at := 0, 0
	for i := range f.m.calls {
		c := &f.m.calls[i]
		if c.head == 0 && i > 0 {
			at += f.m.calls[i-1].shape.Batch
			for _, n := range lengths[at-f.m.calls[i-1].shape.Batch : at] {
				row += n
			}
		}
		var tokens, q, k, qkv []int32
		end := row
		for j := 0; j <= c.shape.Batch; j++ {
			q = append(q, int32(end*c.shape.StrideQ))       //nolint:gosec // checked by fits
			k = append(k, int32(end*c.shape.StrideK))       //nolint:gosec // as above
			qkv = append(qkv, int32(end*c.shape.StrideQKV)) //nolint:gosec // as above
			if j < c.shape.Batch {
				tokens = append(tokens, int32(lengths[at+j])) //nolint:gosec // below the model's positions
				end += lengths[at+j]
			}
		}
		c.args = cudart.AttentionArgs{
			OffsetsQ: cudart.Ptr(p.add(q...)), OffsetsK: cudart.Ptr(p.add(k...)), //nolint:gosec // offsets
			OffsetsQKV: cudart.Ptr(p.add(qkv...)), Lengths: cudart.Ptr(p.add(tokens...)), //nolint:gosec // as above
		}
	}
}

// chooseSlots makes room for the activations of as many layers as fit.
func (g *trainGPU) chooseSlots(rows, stats int) error {
	f := g.fast
	free, _, err := g.ctx.MemInfo()
	if err != nil {
		return err
	}
	want := g.Layers
	if g.opts.slots > 0 {
		want = min(want, g.opts.slots)
	}
	room := max(f.slots.bytes, plan.SlotRoom(g.planned(), g.opts.Precision.elemBytes(), int(free)+f.slots.bytes)) //nolint:gosec // the memory of a card
	n, rich := plan.Slots(g.planned(), rows, stats, want, room)
	f.rich, f.slot = rich, g.layoutOf(rows, stats, rich)
	if n*f.slot.bytes > f.slots.bytes {
		if err := g.need(&f.slots, n*f.slot.bytes); err != nil {
			return err
		}
	}
	f.count = min(want, f.slots.bytes/f.slot.bytes)
	return nil
}

// fastClear zeroes the rows from n on: products of gradients take padded rows too.
func (g *trainGPU) fastClear(n int) error {
	f := g.fast
	tail := f.m.rows - n
	if tail == 0 {
		return nil
	}
	var errs []error
	empty := func(at cudart.Ptr, stride int) { errs = append(errs, g.ctx.Zero(at.Add(n*stride), tail*stride)) }
	for b, width := range map[*buffer]int{
		&f.n: g.Hidden, &f.dn: g.Hidden, &f.dy: g.Hidden, &f.delta: g.Hidden, &f.dqkv: g.sizes.qkv, &f.dgu: 2 * g.Intermediate, &f.h: g.Intermediate,
		&f.datt: g.queries,
	} {
		empty(b.at, 2*width)
	}
	for i := range f.count {
		slot := f.slots.at.Add(i * f.slot.bytes)
		empty(slot+f.slot.att, 2*g.queries)
		if f.rich {
			empty(slot+f.slot.n1, 2*g.Hidden)
			empty(slot+f.slot.n2, 2*g.Hidden)
		}
	}
	return errors.Join(errs...)
}

// micros lays the micro-batches out in the order of the plan, without those that have no trained token, and chooses algorithms for shapes that are new.
func (g *trainGPU) micros(b *engine.Batch, scale float64) ([]*micro, error) {
	var out []*micro
	for _, indices := range b.Plan.MicroBatches {
		if g.fast != nil {
			indices = order(b, indices)
		}
		m := layOut(b, indices)
		if len(m.targets) == 0 {
			continue // nothing of it enters the loss
		}
		out = append(out, m)
		if g.fast != nil {
			if err := g.tune(b, m, scale); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// fastMicro computes the gradient of one micro-batch.
func (g *trainGPU) fastMicro(b *engine.Batch, m *micro, scale float64, fresh bool) ([]tokenStats, error) {
	for _, step := range []func() error{
		func() error { return g.fits(m) },
		func() error { return g.fastPlace(b, m, scale) },
		func() error {
			g.fast.m.fresh = fresh
			return g.fastForward(m)
		},
		func() error { return g.fastLoss(b, m) },
		func() error { return g.fastBackward(m) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return g.fastStats(b, m)
}

// release gives back what grew for micro-batches.
func (f *fastTrain) release(d *device) error {
	for _, b := range f.buffers() {
		if err := d.drop(b); err != nil {
			return err
		}
	}
	if err := d.drop(&f.slots); err != nil || f.dnn == nil {
		return err
	}
	return f.dnn.Release()
}

// close frees the libraries' parts.
func (f *fastTrain) close() error {
	if f == nil || f.dnn == nil {
		return nil
	}
	return f.dnn.Close()
}

// fits refuses a micro-batch whose offsets do not fit in 32 bits.
func (g *trainGPU) fits(m *micro) error {
	if most := 1 << 31; len(m.tokens)*g.sizes.qkv >= most {
		return fault.New(fault.Invalid, "cuda.Update", "a micro-batch of %d tokens, at most %d", len(m.tokens), most/g.sizes.qkv).
			WithHint("plan smaller micro-batches")
	}
	return nil
}
