//go:build cuda

package cuda

import (
	"math"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/fault"
)

// row is one token of a step: its id, its sequence's table and its position.
type row struct{ token, table, position int32 }

// sum is a result in parts, which are added in order by who reads it: float32, apart elements from each other.
type sum struct {
	at           cudart.Ptr
	parts, apart int
}

// whole is a result in one part.
func whole(at cudart.Ptr) sum { return sum{at, 1, 0} }

// product writes y [rows,m.rows] = x [rows,m.colsP] m^T in float32.
func (d *device) product(y, x cudart.Ptr, m *matrix, rows int) error {
	if d.own != nil {
		_, err := d.own.run(d.ctx, ownJob{y: y, x: x, w: m, rows: rows})
		return err
	}
	p, err := d.plan(cudart.Shape{Rows: tile, Out: m.rows, In: m.colsP})
	if err != nil {
		return err
	}
	if p == nil {
		return d.ctx.Launch(d.k.gemm, pad(m.rows, plainSide)/plainSide, pad(rows, plainSide)/plainSide, plainThreads, 0,
			y.Arg(), x.Arg(), m.at.Arg(), cudart.Int(rows), cudart.Int(m.rows), cudart.Int(m.colsP))
	}
	// Buffers have whole tiles; rows behind the last are computed and not read.
	if n := (rows + tile - 1) / tile; n > 1 {
		many, err := d.repeat(p, n)
		if err != nil {
			return err
		}
		if many != nil {
			return many.Run(y, x, m.at)
		}
	}
	for r := 0; r < rows; r += tile {
		if err := p.Run(y.Add(r*m.rows*4), x.Add(r*m.colsP*d.opts.Precision.elemBytes()), m.at); err != nil {
			return err
		}
	}
	return nil
}

// repeated is a number of products of a shape.
type repeated struct {
	shape cudart.Shape
	n     int
}

// repeat returns the plan of n products at once, or nil where they run one after the other.
func (d *device) repeat(p *cudart.Plan, n int) (*cudart.Plan, error) {
	key := repeated{p.Shape, n}
	many, known := d.many[key]
	if known {
		return many, nil
	}
	many, err := p.Repeat(n)
	if err != nil {
		return nil, err
	}
	d.many[key] = many
	return many, nil
}

// plan returns how cuBLASLt computes a product, or nil where a plain kernel serves.
func (d *device) plan(s cudart.Shape) (*cudart.Plan, error) {
	if d.blas == nil {
		return nil, nil
	}
	p, known := d.plans[s]
	if known {
		return p, nil
	}
	p, err := d.blas.NewPlan(s)
	if err != nil && !fault.Is(err, fault.NotFound) { // it has no algorithm for some odd shapes
		return nil, err
	}
	d.plans[s] = p
	return p, nil
}

// batch collects launches; the first error stops the rest.
type batch struct {
	d   *device
	err error
	// early lets kernels that wait by themselves begin while the one before ends.
	early bool
}

// follow launches a kernel that begins with await.
func (b *batch) follow(f *cudart.Function, gridX, gridY, threads int, args ...cudart.Arg) {
	if !b.early {
		b.launch(f, gridX, gridY, threads, args...)
	} else if b.err == nil {
		b.err = b.d.ctx.LaunchEarly(f, gridX, gridY, threads, args...)
	}
}

// do runs f unless something failed before.
func (b *batch) do(f func() error) {
	if b.err == nil {
		b.err = f()
	}
}

func (b *batch) launch(f *cudart.Function, gridX, gridY, threads int, args ...cudart.Arg) {
	if b.err == nil {
		b.err = b.d.ctx.Launch(f, gridX, gridY, threads, 0, args...)
	}
}

func (b *batch) product(y, x cudart.Ptr, m *matrix, rows int) { b.productIn(y, x, m, rows, 0) }

// productIn is product, in parts where they fit in a result with room for so many rows.
func (b *batch) productIn(y, x cudart.Ptr, m *matrix, rows, room int) sum {
	s := whole(y)
	b.do(func() (err error) {
		if b.d.own == nil {
			return b.d.product(y, x, m, rows)
		}
		s, err = b.d.own.run(b.d.ctx, ownJob{y: y, x: x, w: m, rows: rows, room: room, early: b.early})
		return err
	})
	return s
}

// activate writes the activations h of n rows of x: silu of the product with the first half of m's rows, times that with the second. gu, with room for so many
// rows, is for what is between.
func (b *batch) activate(h, gu, x cudart.Ptr, m *matrix, n, room int) {
	d := b.d
	if d.own == nil || !d.own.pairs(m) {
		b.siluMul(h, b.productIn(gu, x, m, n, room), n)
		return
	}
	b.do(func() error {
		_, err := d.own.run(d.ctx, ownJob{y: h, x: x, w: m, rows: n, paired: true, early: b.early})
		return err
	})
}

// addNormThreads is the size of a block that has a row of addnorm: four elements a thread, up to a bound.
func (s sizes) addNormThreads() int { return min(pad(pad(s.Hidden, 4)/4, 32), mostNormThreads) }

// addNorm adds delta (or nothing, if that is nowhere) to x and writes to y the norm of n rows, chosen by index if that is not 0.
func (b *batch) addNorm(y, x cudart.Ptr, delta sum, w *matrix, index cudart.Ptr, n int) {
	d := b.d
	b.follow(d.k.addnorm, n, 1, d.addNormThreads(), y.Arg(), x.Arg(), delta.at.Arg(), w.at.Arg(), index.Arg(), cudart.Int(d.Hidden), cudart.Int(d.hiddenP),
		cudart.Float(float32(d.RMSEps)), cudart.Int(delta.parts), cudart.Uint64Arg(uint64(delta.apart))) //nolint:gosec // a size
}

// forward runs rows through all layers: afterwards x + last is the output of the last one. Keys and values of the rows are in the cache;
// rows of a sequence come in order and see what the cache holds of those before. tables[i] are the pages of table i.
func (g *gpu) forward(rows []row, tables [][]int32) error {
	n := len(rows)
	ints := make([]int32, 3*g.opts.Rows)
	for i, r := range rows {
		ints[i], ints[g.opts.Rows+i], ints[2*g.opts.Rows+i] = r.token, r.table, r.position
	}
	pages := make([]int32, len(tables)*g.seqPages)
	for i, t := range tables {
		copy(pages[i*g.seqPages:], t)
	}
	b := &batch{d: &g.device}
	if b.err = cudart.Upload(g.ctx, g.ints, ints); b.err == nil {
		b.err = cudart.Upload(g.ctx, g.tables, pages)
	}
	b.do(func() error {
		return g.attend.load(&g.device, g.planAttention(ints[g.opts.Rows:][:n], ints[2*g.opts.Rows:][:n]))
	})
	tokens, table, position := g.ints, g.ints.Add(4*g.opts.Rows), g.ints.Add(8*g.opts.Rows)
	b.launch(g.k.embed, n, 1, threads, g.x.Arg(), g.w.embed.at.Arg(), tokens.Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	var delta sum // nothing to add before the first layer
	for i, l := range g.w.layers {
		place := []cudart.Arg{cudart.Int(g.seqPages), cudart.Int(i), cudart.Int(g.Layers), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.HeadDim)}
		b.addNorm(g.n, g.x, delta, l.norm1, 0, n)
		qkv := b.productIn(g.qkv, g.n, l.qkv, n, g.qkvRows)
		b.heads(g.q, g.cache, qkv, l, g.tables, table, position, place, n)
		b.attend(&g.attend, g.att, 0, append(append([]cudart.Arg{
			g.q.Arg(), g.cache.Arg(), g.tables.Arg(), table.Arg(), position.Arg(),
		}, place...), cudart.Int(g.queriesP), g.scale()))
		delta = b.productIn(g.delta, g.att, l.out, n, g.deltaRows)
		b.addNorm(g.n, g.x, delta, l.norm2, 0, n)
		b.activate(g.h, g.gu, g.n, l.gateUp, n, g.opts.Rows)
		delta = b.productIn(g.delta, g.h, l.down, n, g.deltaRows)
	}
	g.last = delta
	return b.err
}

// ask is what the sampler does with a row of logits; answer is what comes back. The layout is that of the kernel's structs.
type ask struct {
	stream   [4]uint32
	position uint32
	inverse  float32
	target   int32
	top      int32
}

type answer struct {
	id               int32
	logProb, entropy float32
	bad              int32
}

// Sizes of the structs in the kernels, in bytes.
const askBytes, answerBytes = 32, 16

// words and the reverse keep the structs out of unsafe casts: both sides are lists of 4-byte words.
func (a ask) words() []uint32 {
	return []uint32{a.stream[0], a.stream[1], a.stream[2], a.stream[3], a.position, math.Float32bits(a.inverse), uint32(a.target), uint32(a.top)} //nolint:gosec // bits
}

func answerOf(w []uint32) answer {
	return answer{int32(w[0]), math.Float32frombits(w[1]), math.Float32frombits(w[2]), int32(w[3])} //nolint:gosec // bits
}

// sample answers asks for the rows with these indices among those of the last forward; a row may be named once after each forward.
func (g *gpu) sample(index []int32, asks []ask) ([]answer, []record, error) {
	answers, records := make([]answer, 0, len(asks)), make([]record, 0, len(asks))
	for len(asks) > 0 {
		n := min(tile, len(asks))
		a, r, err := g.sampleTile(index[:n], asks[:n])
		if err != nil {
			return nil, nil, err
		}
		answers, records = append(answers, a...), append(records, r...)
		index, asks = index[n:], asks[n:]
	}
	return answers, records, nil
}

// sampleTile computes the logits of at most tile rows and answers their asks.
func (g *gpu) sampleTile(index []int32, asks []ask) ([]answer, []record, error) {
	b := &batch{d: &g.device}
	chosen := g.ints.Add(12 * g.opts.Rows)
	b.err = cudart.Upload(g.ctx, chosen, index)
	b.addNorm(g.n, g.x, g.last, g.w.final, chosen, len(index))
	b.product(g.logits, g.n, g.w.head, len(index))
	if b.err != nil {
		return nil, nil, b.err
	}
	return g.answer(asks)
}

// answer answers asks for the first rows of logits.
func (g *gpu) answer(asks []ask) ([]answer, []record, error) {
	n, width := len(asks), 0
	var words []uint32
	for _, a := range asks {
		words = append(words, a.words()...)
		width = max(width, int(a.top))
	}
	r := &g.results
	if err := r.grow(&g.device, tile, width); err != nil {
		return nil, nil, err
	}
	b := &batch{d: &g.device}
	b.err = cudart.Upload(g.ctx, g.asks, words)
	b.sample(r, g.logits, g.asks, 0, n, n, r.width, 0, 0)
	host := make([]uint32, r.words(n))
	if b.err == nil {
		b.err = cudart.Download(g.ctx, host, r.answers)
	}
	if b.err != nil {
		return nil, nil, b.err
	}
	answers, records := make([]answer, n), make([]record, n)
	for i := range answers {
		answers[i], records[i] = readRow(host, n, i, int(asks[i].top), r.width)
		if id := answers[i].id; answers[i].bad == 0 && (id < 0 || int(id) >= g.Vocab) {
			return nil, nil, fault.New(fault.Internal, "cuda.sample", "id %d was drawn from a vocabulary of %d", id, g.Vocab)
		}
	}
	return answers, records, nil
}
