//go:build cuda

package cuda

import (
	"errors"
	"math"
	"slices"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Rows of one product of gradients: the largest comes first, then what is left in smaller ones, so that few shapes serve any number of rows.
var gradBlocks = []int{2048, 1024, 512, 256, tile}

// headRows is the number of trained tokens whose logits exist at once; columnRows and chunk are COLUMN and CHUNK in the kernels.
const (
	headRows   = plan.ExactHeadRows
	columnRows = 64
	chunkSize  = plan.ChunkSize
)

// buffer is device memory that grows when a batch needs more. It is cleared when it grows.
type buffer struct {
	at    cudart.Ptr
	bytes int
}

// trainGPU is everything of a trainer that lives on the device.
//
// The forward pass of a layer is the sampler's, kernel for kernel, over a cache of that layer alone; a layer's input is kept and the rest computed
// again for the backward pass. Values and gradients between products are float32, the inputs of products elements.
type trainGPU struct {
	device
	attend attention
	fast   *fastTrain // nil where the sampler's forward pass serves
	// One float32 array for each matrix of the weights, in their layout; padding stays 0.
	master, m1, m2, grads []cudart.Ptr

	// Of the rows of a micro-batch.
	saved                   buffer // [layers+1][rows,hidden]
	mid, delta, dx          buffer // [rows,hidden]
	n1, n2, dy              buffer // [rows,hiddenP] elements
	qkv, gu                 buffer // [rows,qkv], [rows,2 inter]
	dqkv, dgu               buffer // the same as elements
	q, dq                   buffer // [rows,queries]
	dk, dv                  buffer // [rows,kv heads * d]
	att                     buffer // [rows,queriesP] elements
	datt                    buffer // [rows,queriesP]
	h                       buffer // [rows,interP] elements
	dh                      buffer // [rows,interP]
	dn                      buffer // [rows,hiddenP]
	parts                   buffer // [rows,(heads+kv) d]
	stats, dot              buffer // [rows,heads,2], [rows,heads]
	columns, sums           buffer // partial sums of columns, and their sum
	cache                   buffer // keys and values of one layer
	tokens, table, position buffer // [rows]
	tables, last            buffer // [sequences,pages], [sequences]
	ids, starts, order      buffer // of embedgrad

	// Of a chunk of trained tokens.
	hx, logits, dlogits, dhn    buffer
	index, targets, recordIDs   buffer
	recordLogQ, head, lossStats buffer
	squares                     buffer
}

// micro is a micro-batch laid out in rows.
type micro struct {
	tokens, table, position []int32
	last                    []int32 // by sequence
	tables                  []int32
	pages                   int // of a table
	cachePages              int
	targets                 []target
}

// target is one trained token: row predicts token at of a sequence.
type target struct{ row, seq, at int }

func newTrainGPU(c model.Config, o Options) (*trainGPU, error) {
	g := &trainGPU{}
	err := g.start(c, o)
	if err == nil && suits(g.sizes, o) {
		g.fast, err = newFast(&g.device)
	}
	for _, slab := range []*[]cudart.Ptr{&g.master, &g.m1, &g.m2, &g.grads} {
		if err != nil {
			break
		}
		*slab = make([]cudart.Ptr, len(g.w.all))
		for i, m := range g.w.all {
			if err = g.alloc(&(*slab)[i], 4*m.size()); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = g.need(&g.squares, plan.NormBytes(g.planned()))
	}
	if err != nil {
		_ = g.close() // the first error counts
		return nil, err
	}
	return g, nil
}

// close frees everything; the first error is returned.
func (g *trainGPU) close() error {
	if g.ctx == nil {
		return nil
	}
	return errors.Join(g.ctx.Sync(), g.fast.close(), g.device.close())
}

// size is the number of elements, padding included.
func (m *matrix) size() int { return max(m.rows, 1) * m.colsP }

// need makes room for bytes.
func (d *device) need(b *buffer, bytes int) error {
	if bytes <= b.bytes {
		return nil
	}
	if err := d.drop(b); err != nil {
		return err
	}
	var at cudart.Ptr
	if err := d.alloc(&at, bytes); err != nil {
		return err
	}
	*b = buffer{at, bytes}
	return nil
}

// drop gives a buffer's memory back.
func (d *device) drop(b *buffer) error {
	at, bytes := b.at, b.bytes
	*b = buffer{}
	if at == 0 {
		return nil
	}
	d.taken -= bytes
	d.owned = slices.DeleteFunc(d.owned, func(p cudart.Ptr) bool { return p == at })
	if err := d.ctx.Sync(); err != nil {
		return err
	}
	return d.ctx.Free(at)
}

// inRoom runs place, which grows buffers for a micro-batch. Where that does not fit, what giveWay drops goes first, then everything that other micro-batches
// made grow. What does not fit even so leaves nothing behind: the smaller micro-batch that is tried next finds all the memory.
func (g *trainGPU) inRoom(place func() error, giveWay ...func() error) error {
	for _, drop := range append(giveWay, g.release) {
		if err := place(); !fault.Is(err, fault.Exhausted) {
			return err
		}
		if err := drop(); err != nil {
			return err
		}
	}
	err := place()
	if fault.Is(err, fault.Exhausted) {
		return errors.Join(err, g.release())
	}
	return err
}

// release gives back everything that grew for micro-batches.
func (g *trainGPU) release() error {
	for _, b := range g.exactBuffers() {
		if err := g.drop(b); err != nil {
			return err
		}
	}
	for _, b := range []*buffer{&g.attend.wide, &g.attend.single, &g.attend.merge, &g.attend.parts, &g.attend.tiles} {
		if err := g.drop(b); err != nil {
			return err
		}
	}
	if g.fast == nil {
		return nil
	}
	return g.fast.release(&g.device)
}

func layOut(batch *engine.Batch, indices []int) *micro {
	m := &micro{}
	for _, i := range indices {
		m.pages = max(m.pages, pad(len(batch.Sequences[i].Tokens), pageTokens)/pageTokens)
	}
	for _, i := range indices {
		s := &batch.Sequences[i]
		first := len(m.tokens)
		m.tokens = append(m.tokens, s.Tokens...)
		for p := range s.Tokens {
			m.table, m.position = append(m.table, int32(len(m.last))), append(m.position, int32(p)) //nolint:gosec // below the model's positions
			if s.Mask[p] {
				m.targets = append(m.targets, target{row: first + p - 1, seq: i, at: p})
			}
		}
		m.last = append(m.last, int32(len(m.tokens)-1)) //nolint:gosec // as above
		for p := range m.pages {
			page := 0
			if p*pageTokens < len(s.Tokens) {
				page = m.cachePages
				m.cachePages++
			}
			m.tables = append(m.tables, int32(page)) //nolint:gosec // as above
		}
	}
	return m
}

// needAll makes room for planned parts; into says which buffer each is.
func (d *device) needAll(into map[string]*buffer, parts []plan.Part) error {
	for _, p := range parts {
		b := into[p.Name]
		if b == nil {
			return fault.New(fault.Internal, "cuda.need", "the memory plan has a part %q that the engine does not know", p.Name)
		}
		if err := d.need(b, p.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// exactBuffers are the buffers of the exact step by their names in the memory plan.
func (g *trainGPU) exactBuffers() map[string]*buffer {
	return map[string]*buffer{
		"saved": &g.saved, "mid": &g.mid, "delta": &g.delta, "dx": &g.dx, "n1": &g.n1, "n2": &g.n2, "dy": &g.dy, "qkv": &g.qkv, "gu": &g.gu, "dqkv": &g.dqkv,
		"dgu": &g.dgu, "q": &g.q, "dq": &g.dq, "dk": &g.dk, "dv": &g.dv, "att": &g.att, "datt": &g.datt, "h": &g.h, "dh": &g.dh, "dn": &g.dn, "parts": &g.parts,
		"stats": &g.stats, "dot": &g.dot, "columns": &g.columns, "sums": &g.sums, "cache": &g.cache, "tokens": &g.tokens, "table": &g.table,
		"position": &g.position, "tables": &g.tables, "last": &g.last, "ids": &g.ids, "starts": &g.starts, "order": &g.order,
		"hx": &g.hx, "logits": &g.logits, "dlogits": &g.dlogits, "dhn": &g.dhn, "index": &g.index, "targets": &g.targets, "recordIDs": &g.recordIDs,
		"recordLogQ": &g.recordLogQ, "head": &g.head, "lossStats": &g.lossStats,
	}
}

// place makes room for a micro-batch with records of a width, its loss included, and uploads its layout.
func (g *trainGPU) place(m *micro, k int) error {
	return g.inRoom(func() error { return g.tryExactPlace(m, k) })
}

func (g *trainGPU) tryExactPlace(m *micro, k int) error {
	n := len(m.tokens)
	if err := g.needAll(g.exactBuffers(), plan.ExactHeadParts(g.planned(), g.opts.Precision.elemBytes(), min(headRows, len(m.targets)), k)); err != nil {
		return err
	}
	if err := g.needAll(g.exactBuffers(), plan.ExactParts(g.planned(), g.opts.Precision.elemBytes(), plan.ExactMicro{
		Tokens: n, Sequences: len(m.last), CachePages: m.cachePages, TablePages: m.pages,
	})); err != nil {
		return err
	}
	for b, ints := range map[*buffer][]int32{
		&g.tokens: m.tokens, &g.table: m.table, &g.position: m.position, &g.tables: m.tables, &g.last: m.last,
	} {
		if err := cudart.Upload(g.ctx, b.at, ints); err != nil {
			return err
		}
	}
	if err := g.attend.load(&g.device, g.planAttention(m.table, m.position)); err != nil {
		return err
	}
	return g.clearTail(n, map[cudart.Ptr]int{
		g.n1.at: g.hiddenP, g.n2.at: g.hiddenP, g.dy.at: g.hiddenP, g.att.at: g.queriesP, g.h.at: g.interP, g.dqkv.at: g.sizes.qkv, g.dgu.at: 2 * g.Intermediate,
	})
}

// clearTail zeroes the rows from n to the end of n's tile: products of gradients take whole tiles. Values are row strides.
func (g *trainGPU) clearTail(n int, strides map[cudart.Ptr]int) error {
	elem := g.opts.Precision.elemBytes()
	for at, stride := range strides {
		if err := g.ctx.Zero(at.Add(n*stride*elem), (pad(n, tile)-n)*stride*elem); err != nil {
			return err
		}
	}
	return nil
}

// inputGrad writes dx [rows,m.colsP] = dy m, for elements dy [rows,stride].
func (b *batch) inputGrad(dx, dy cudart.Ptr, stride int, m *matrix, rows int) {
	d, elem := b.d, b.d.opts.Precision.elemBytes()
	b.gradBlocks(cudart.Shape{Product: cudart.InputGrad, Out: m.rows, In: m.colsP, StrideY: stride}, rows, func(p *cudart.Plan, r, n int) error {
		to, from := dx.Add(r*m.colsP*4), dy.Add(r*stride*elem)
		if p != nil {
			return p.Run(to, from, m.at)
		}
		return d.gemmGrad(to, 0, from, m.at, [3]int{n, m.colsP, m.rows}, [2]int{stride, 1}, [2]int{1, m.colsP}, false)
	})
}

// weightsGrad adds dy^T x to dw, the gradient of m, for elements dy [rows,stride] and x [rows,m.colsP].
func (b *batch) weightsGrad(dw, dy, x cudart.Ptr, stride int, m *matrix, rows int) {
	d, elem := b.d, b.d.opts.Precision.elemBytes()
	b.gradBlocks(cudart.Shape{Product: cudart.WeightsGrad, Out: m.rows, In: m.colsP, StrideY: stride}, rows, func(p *cudart.Plan, r, n int) error {
		from, other := dy.Add(r*stride*elem), x.Add(r*m.colsP*elem)
		if p != nil {
			return p.Run(dw, from, other)
		}
		return d.gemmGrad(dw, 0, from, other, [3]int{m.rows, m.colsP, n}, [2]int{1, stride}, [2]int{1, m.colsP}, true)
	})
}

// gradBlocks runs f for blocks of rows that cover all rows, in order.
func (b *batch) gradBlocks(s cudart.Shape, rows int, f func(p *cudart.Plan, row, n int) error) {
	if b.d.blas == nil {
		b.do(func() error { return f(nil, 0, rows) })
		return
	}
	for r := 0; r < rows; r += s.Rows {
		left := pad(rows-r, tile)
		s.Rows = gradBlocks[slices.IndexFunc(gradBlocks, func(n int) bool { return n <= left })]
		b.do(func() error {
			p, err := b.d.plan(s)
			if err != nil {
				return err
			}
			return f(p, r, s.Rows)
		})
	}
}

// gemmGrad runs the plain kernel: sizes m, n, k; strides of a by i and k and of b by j and k. The result is float32 at y, or elements at half.
func (d *device) gemmGrad(y, half, a, b cudart.Ptr, size [3]int, as, bs [2]int, accumulate bool) error {
	add := 0
	if accumulate {
		add = 1
	}
	return d.ctx.Launch(d.k.gemmgrad, pad(size[1], plainSide)/plainSide, pad(size[0], plainSide)/plainSide, plainThreads, 0, y.Arg(), half.Arg(), a.Arg(), b.Arg(),
		cudart.Int(size[0]), cudart.Int(size[1]), cudart.Int(size[2]), cudart.Int(size[1]), cudart.Int(as[0]), cudart.Int(as[1]), cudart.Int(bs[0]),
		cudart.Int(bs[1]), cudart.Int(add))
}

// each launches f over n elements.
func (b *batch) each(f *cudart.Function, n int, args ...cudart.Arg) {
	b.launch(f, pad(n, plainThreads)/plainThreads, 1, plainThreads, args...)
}

// sum writes out = x + y, or x where y is 0, for n float32.
func (b *batch) sum(out, x, y cudart.Ptr, n int) {
	b.each(b.d.k.add, n, out.Arg(), x.Arg(), y.Arg(), cudart.Uint64Arg(uint64(n))) //nolint:gosec // a size
}

// columnSums adds the sums of the c columns of in [rows,stride] to out, or writes them; columns is scratch.
func (b *batch) columnSums(out, in, columns cudart.Ptr, rows, c, stride int, accumulate bool) {
	blocks, add := pad(rows, columnRows)/columnRows, 0
	if accumulate {
		add = 1
	}
	b.launch(b.d.k.columnpart, pad(c, threads)/threads, blocks, threads, columns.Arg(), in.Arg(), cudart.Int(rows), cudart.Int(c), cudart.Int(stride))
	b.launch(b.d.k.columnsum, pad(c, threads)/threads, 1, threads, out.Arg(), columns.Arg(), cudart.Int(blocks), cudart.Int(c), cudart.Int(add))
}

// grad is where the gradient of m is summed.
func (g *trainGPU) grad(m *matrix) cudart.Ptr { return g.grads[slices.Index(g.w.all, m)] }

// input is the kept input of layer i; that of layer Layers is the output of the last.
func (g *trainGPU) input(i, rows int) cudart.Ptr {
	return g.saved.at.Add(i * pad(rows, tile) * g.Hidden * 4)
}

// forward runs the layers over a micro-batch and keeps their inputs.
func (g *trainGPU) forward(m *micro) error {
	n := len(m.tokens)
	b := &batch{d: &g.device}
	b.launch(g.k.embed, n, 1, threads, g.input(0, n).Arg(), g.w.embed.at.Arg(), g.tokens.at.Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	for i := range g.Layers {
		g.layer(b, m, i)
		b.product(g.delta.at, g.h.at, g.w.layers[i].down, n)
		b.sum(g.input(i+1, n), g.mid.at, g.delta.at, n*g.Hidden)
	}
	return b.err
}

// layer computes layer i from its input up to the last product: mid, and everything that the backward pass reads.
func (g *trainGPU) layer(b *batch, m *micro, i int) {
	n, l, in := len(m.tokens), g.w.layers[i], g.input(i, len(m.tokens))
	place := []cudart.Arg{cudart.Int(m.pages), cudart.Int(0), cudart.Int(1), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.HeadDim)}
	b.addNorm(g.n1.at, in, sum{}, l.norm1, 0, n)
	b.product(g.qkv.at, g.n1.at, l.qkv, n)
	b.launch(g.k.heads, n, g.Heads+2*g.KVHeads, threads, append(append([]cudart.Arg{
		g.q.at.Arg(), g.cache.at.Arg(), g.qkv.at.Arg(), l.qNorm.at.Arg(), l.kNorm.at.Arg(), g.cos.Arg(), g.sin.Arg(), g.tables.at.Arg(), g.table.at.Arg(),
		g.position.at.Arg(),
	}, place...), cudart.Float(float32(g.RMSEps)), cudart.Int(1), 0)...)
	b.attend(&g.attend, g.att.at, g.stats.at, append(append([]cudart.Arg{
		g.q.at.Arg(), g.cache.at.Arg(), g.tables.at.Arg(), g.table.at.Arg(), g.position.at.Arg(),
	}, place...), cudart.Int(g.queriesP), g.scale()))
	b.product(g.delta.at, g.att.at, l.out, n)
	b.sum(g.mid.at, in, g.delta.at, n*g.Hidden)
	b.addNorm(g.n2.at, g.mid.at, sum{}, l.norm2, 0, n)
	b.product(g.gu.at, g.n2.at, l.gateUp, n)
	b.launch(g.k.silumul, n, pad(g.interP, threads)/threads, threads, g.h.at.Arg(), g.gu.at.Arg(), cudart.Int(g.Intermediate), cudart.Int(g.interP),
		cudart.Int(1), 0)
}

// scale is what queries are multiplied by.
func (s sizes) scale() cudart.Arg { return cudart.Float(s.scaleOf()) }

func (s sizes) scaleOf() float32 { return float32(1 / math.Sqrt(float64(s.HeadDim))) }

// normGrad adds the gradient of a norm's input x to dx and that of its weights to their sum, from dn [rows,hiddenP], which it overwrites. index, unless 0,
// maps rows of dn to rows of x and dx.
func (g *trainGPU) normGrad(b *batch, dx, dn, x cudart.Ptr, w *matrix, index cudart.Ptr, rows int) {
	b.launch(g.k.normgrad, rows, 1, threads, dx.Arg(), dn.Arg(), x.Arg(), w.at.Arg(), index.Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP),
		cudart.Float(float32(g.RMSEps)))
	b.columnSums(g.grad(w), dn, g.columns.at, rows, g.Hidden, g.hiddenP, true)
}

// backward adds the gradients of a micro-batch to the sums, from dx, the gradient of the last layer's output.
func (g *trainGPU) backward(m *micro) error {
	b := &batch{d: &g.device}
	for i := g.Layers - 1; i >= 0; i-- {
		if i < g.Layers-1 { // the last layer's values are still there
			g.layer(b, m, i)
		}
		g.layerGrad(b, m, i)
	}
	ids, starts, order := byToken(m.tokens)
	for at, ints := range map[cudart.Ptr][]int32{g.ids.at: ids, g.starts.at: starts, g.order.at: order} {
		b.do(func() error { return cudart.Upload(g.ctx, at, ints) })
	}
	b.launch(g.k.embedgrad, len(ids), 1, threads, g.grad(g.w.embed).Arg(), g.dx.at.Arg(), g.ids.at.Arg(), g.starts.at.Arg(), g.order.at.Arg(),
		cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	return b.err
}

// byToken lists the different ids of tokens, and for each of them its rows in order: order[starts[i]:starts[i+1]].
func byToken(tokens []int32) (ids, starts, order []int32) {
	order = make([]int32, len(tokens))
	for i := range order {
		order[i] = int32(i) //nolint:gosec // a row
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(tokens[a]) - int(tokens[b]) })
	for i, r := range order {
		if i == 0 || tokens[r] != ids[len(ids)-1] {
			ids, starts = append(ids, tokens[r]), append(starts, int32(i)) //nolint:gosec // a row
		}
	}
	return ids, append(starts, int32(len(order))), order //nolint:gosec // a row
}

// layerGrad turns dx from the gradient of a layer's output into that of its input.
func (g *trainGPU) layerGrad(b *batch, m *micro, i int) {
	n, l, heads := len(m.tokens), g.w.layers[i], g.Heads+g.KVHeads
	narrow := func() {
		b.launch(g.k.narrow, n, pad(g.hiddenP, threads)/threads, threads, g.dy.at.Arg(), g.dx.at.Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	}
	narrow()
	b.weightsGrad(g.grad(l.down), g.dy.at, g.h.at, g.hiddenP, l.down, n)
	b.inputGrad(g.dh.at, g.dy.at, g.hiddenP, l.down, n)
	b.launch(g.k.silugrad, n, pad(g.Intermediate, threads)/threads, threads, g.dgu.at.Arg(), g.dh.at.Arg(), g.gu.at.Arg(), cudart.Int(g.Intermediate),
		cudart.Int(g.interP))
	b.weightsGrad(g.grad(l.gateUp), g.dgu.at, g.n2.at, 2*g.Intermediate, l.gateUp, n)
	b.inputGrad(g.dn.at, g.dgu.at, 2*g.Intermediate, l.gateUp, n)
	g.normGrad(b, g.dx.at, g.dn.at, g.mid.at, l.norm2, 0, n)

	narrow()
	b.weightsGrad(g.grad(l.out), g.dy.at, g.att.at, g.hiddenP, l.out, n)
	b.inputGrad(g.datt.at, g.dy.at, g.hiddenP, l.out, n)
	shape := []cudart.Arg{cudart.Int(m.pages), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.HeadDim), g.scale()}
	b.launch(g.k.attendgradq, n, g.Heads, threads, append([]cudart.Arg{
		g.dq.at.Arg(), g.dot.at.Arg(), g.datt.at.Arg(), cudart.Int(g.queriesP), g.att.at.Arg(), cudart.Int(g.queriesP), g.q.at.Arg(), g.cache.at.Arg(),
		g.tables.at.Arg(), g.table.at.Arg(), g.position.at.Arg(), g.stats.at.Arg(),
	}, shape...)...)
	b.launch(g.k.attendgradkv, n, g.KVHeads, threads, append([]cudart.Arg{
		g.dk.at.Arg(), g.dv.at.Arg(), g.datt.at.Arg(), cudart.Int(g.queriesP), g.dot.at.Arg(), g.q.at.Arg(), g.cache.at.Arg(),
		g.tables.at.Arg(), g.table.at.Arg(), g.position.at.Arg(), g.last.at.Arg(), g.stats.at.Arg(),
	}, shape...)...)
	b.launch(g.k.headsgrad, n, g.Heads+2*g.KVHeads, threads, g.dqkv.at.Arg(), g.parts.at.Arg(), g.dq.at.Arg(), g.dk.at.Arg(), g.dv.at.Arg(), g.qkv.at.Arg(),
		l.qNorm.at.Arg(), l.kNorm.at.Arg(), g.cos.Arg(), g.sin.Arg(), g.position.at.Arg(), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.HeadDim),
		cudart.Float(float32(g.RMSEps)))
	// Over the rows first, then over the heads.
	b.columnSums(g.sums.at, g.parts.at, g.columns.at, n, heads*g.HeadDim, heads*g.HeadDim, false)
	for _, w := range []struct {
		w           *matrix
		first, many int
	}{{l.qNorm, 0, g.Heads}, {l.kNorm, g.Heads, g.KVHeads}} {
		b.launch(g.k.columnsum, pad(g.HeadDim, threads)/threads, 1, threads, g.grad(w.w).Arg(), g.sums.at.Add(4*w.first*g.HeadDim).Arg(), cudart.Int(w.many),
			cudart.Int(g.HeadDim), cudart.Int(1))
	}
	b.weightsGrad(g.grad(l.qkv), g.dqkv.at, g.n1.at, g.sizes.qkv, l.qkv, n)
	b.inputGrad(g.dn.at, g.dqkv.at, g.sizes.qkv, l.qkv, n)
	g.normGrad(b, g.dx.at, g.dn.at, g.input(i, n), l.norm1, 0, n)
}
