//go:build cuda

package cuda

import (
	"math"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/fault"
)

// row is one token of a step: its id, its sequence's table and its position.
type row struct{ token, table, position int32 }

// product writes y [rows,m.rows] = x [rows,m.colsP] m^T in float32.
func (d *device) product(y, x cudart.Ptr, m *matrix, rows int) error {
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

func (b *batch) product(y, x cudart.Ptr, m *matrix, rows int) {
	if b.err == nil {
		b.err = b.d.product(y, x, m, rows)
	}
}

// addNorm adds delta (or nothing, if 0) to x and writes to y the norm of n rows, chosen by index if that is not 0.
func (b *batch) addNorm(y, x, delta cudart.Ptr, w *matrix, index cudart.Ptr, n int) {
	d := b.d
	b.follow(d.k.addnorm, n, 1, plainThreads, y.Arg(), x.Arg(), delta.Arg(), w.at.Arg(), index.Arg(), cudart.Int(d.Hidden), cudart.Int(d.hiddenP),
		cudart.Float(float32(d.RMSEps)))
}

// forward runs rows through all layers: afterwards x + delta is the output of the last one. Keys and values of the rows are in the cache;
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
	var delta cudart.Ptr // nothing to add before the first layer
	for i, l := range g.w.layers {
		place := []cudart.Arg{cudart.Int(g.seqPages), cudart.Int(i), cudart.Int(g.Layers), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.HeadDim)}
		b.addNorm(g.n, g.x, delta, l.norm1, 0, n)
		delta = g.delta
		b.product(g.qkv, g.n, l.qkv, n)
		b.heads(g.q, g.cache, g.qkv, l, g.tables, table, position, place, n)
		b.attend(&g.attend, g.att, 0, append(append([]cudart.Arg{
			g.q.Arg(), g.cache.Arg(), g.tables.Arg(), table.Arg(), position.Arg(),
		}, place...), cudart.Int(g.queriesP), g.scale()))
		b.product(g.delta, g.att, l.out, n)
		b.addNorm(g.n, g.x, delta, l.norm2, 0, n)
		b.product(g.gu, g.n, l.gateUp, n)
		b.siluMul(g.h, g.gu, n)
		b.product(g.delta, g.h, l.down, n)
	}
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
	b.addNorm(g.n, g.x, g.delta, g.w.final, chosen, len(index))
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
