//go:build cuda

package cuda

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/fault"
)

// lane is a sequence as the decoder takes it over: the last token, whose keys and values are not computed yet, its position, the sequence's pages
// and what to ask of the logits.
type lane struct {
	token, position int32
	pages           []int32
	ask             ask
}

// stepKey is what a captured step depends on.
type stepKey struct{ rows, splits, width int }

// decoder computes one token of many sequences at a time. Everything that a step needs is in device memory and a step leaves there what the next one
// needs: tokens, positions and asks move on by themselves, so steps can be started one behind the other. The launches of a step are a
// graph of the driver, one for each of few numbers of rows and splits; which one serves does not change results.
type decoder struct {
	rows                    int // capacity
	tokens, positions, asks cudart.Ptr
	tables                  cudart.Ptr // [rows, seqPages]
	parts, partStats        buffer
	arrivals                buffer // spans that are done, by row and heads; 0 between kernels
	results                 results
	landings                [2]landing
	next                    int
	loaded                  int // rows of the last load, idle ones included
	graphs                  map[stepKey]*cudart.Graph
}

// landing is where the host reads the results of a step.
type landing struct {
	memory cudart.Pinned
	bytes  int
	done   cudart.Event
}

// step is a started step.
type step struct {
	n, rows, width, landing int
}

// splitsOf is the number of partial results for rows up to a position, rounded up to one of few numbers.
func splitsOf(position int) int {
	return plan.SplitsOf(position)
}

// powerOfTwo is n rounded up to a power of two, at most most.
func powerOfTwo(n, most int) int {
	r := 1
	for r < n {
		r *= 2
	}
	return min(r, most)
}

// setUp allocates what does not depend on lengths.
func (d *decoder) setUp(g *gpu) error {
	d.rows, d.graphs = g.opts.Sequences, map[stepKey]*cudart.Graph{}
	into := map[string]*cudart.Ptr{"tokens": &d.tokens, "positions": &d.positions, "asks": &d.asks, "tables": &d.tables}
	if err := g.allocAll(into, plan.LaneParts(g.planned(), d.rows)); err != nil {
		return err
	}
	for i := range d.landings {
		var err error
		if d.landings[i].done, err = g.ctx.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// load makes lanes the rows of the next steps.
func (g *gpu) load(lanes []lane) error {
	d := &g.decoder
	n := powerOfTwo(len(lanes), d.rows)
	tokens, positions, asks := make([]int32, n), make([]int32, n), make([]uint32, 0, n*askBytes/4)
	tables := make([]int32, n*g.seqPages)
	for i := range tables {
		tables[i] = int32(g.pages) //nolint:gosec // the page of nobody
	}
	for i := range n {
		a := ask{inverse: 1, target: idle}
		if i < len(lanes) {
			l := lanes[i]
			tokens[i], positions[i], a = l.token, l.position, l.ask
			copy(tables[i*g.seqPages:], l.pages)
		}
		asks = append(asks, a.words()...)
	}
	d.loaded = n
	return errors.Join(cudart.Upload(g.ctx, d.tokens, tokens), cudart.Upload(g.ctx, d.positions, positions),
		cudart.Upload(g.ctx, d.asks, asks), cudart.Upload(g.ctx, d.tables, tables))
}

// begin starts a step of the first n lanes, of which none is behind position last and none asks for a record wider than width. It does not wait.
// At most two steps may be under way.
func (g *gpu) begin(n, last, width int) (step, error) {
	d := &g.decoder
	key := stepKey{d.loaded, splitsOf(last), width}
	if err := g.makeRoom(key); err != nil {
		return step{}, err
	}
	graph, seen := d.graphs[key]
	var err error
	if seen && graph == nil { // the second time: the first has loaded all code, which a capture cannot
		if graph, err = g.ctx.Capture(func() error { return g.steps(key) }); err != nil {
			return step{}, err
		}
		d.graphs[key] = graph
	}
	if graph != nil {
		err = g.ctx.Run(graph)
	} else {
		d.graphs[key] = nil
		err = g.steps(key)
	}
	if err != nil {
		return step{}, err
	}
	s := step{n, key.rows, width, d.next}
	p := &d.landings[s.landing]
	d.next = 1 - d.next
	bytes := s.bytes()
	if bytes > p.bytes {
		if err := p.memory.Release(); err != nil {
			return step{}, err
		}
		if p.memory, err = g.ctx.NewPinned(bytes); err != nil {
			return step{}, err
		}
		p.bytes = bytes
	}
	return s, errors.Join(g.ctx.DownloadAsync(p.memory, d.results.answers, bytes), g.ctx.Record(p.done))
}

func (s step) bytes() int { return s.rows * (answerBytes + 8*s.width) }

// makeRoom provides memory for a step. Captured steps know the old addresses and are given up when one changes.
func (g *gpu) makeRoom(key stepKey) error {
	d := &g.decoder
	parts := plan.PartialParts(g.planned(), key.rows, key.splits)
	if parts[0].Bytes <= d.parts.bytes && key.rows <= d.results.rows && key.width <= d.results.width {
		return nil
	}
	if err := g.ctx.Sync(); err != nil {
		return err
	}
	if err := d.forget(); err != nil {
		return err
	}
	into := map[string]*buffer{"parts": &d.parts, "partStats": &d.partStats, "arrivals": &d.arrivals}
	return errors.Join(g.needAll(into, parts), d.results.grow(&g.device, key.rows, key.width))
}

// forget gives all captured steps up.
func (d *decoder) forget() error {
	var errs []error
	for _, graph := range d.graphs {
		errs = append(errs, graph.Destroy())
	}
	clear(d.graphs)
	return errors.Join(errs...)
}

// finish waits for a step and returns its answers and records.
func (g *gpu) finish(s step, tops []int32) ([]answer, []record, error) {
	p := &g.decoder.landings[s.landing]
	if err := p.done.Wait(); err != nil {
		return nil, nil, err
	}
	raw := p.memory.Bytes(s.bytes())
	host := unsafe.Slice((*uint32)(unsafe.Pointer(&raw[0])), len(raw)/4) // the driver's memory is aligned
	answers, records := make([]answer, s.n), make([]record, s.n)
	for i := range s.n {
		answers[i], records[i] = readRow(host, s.rows, i, int(tops[i]), s.width)
		if id := answers[i].id; answers[i].bad == 0 && (id < 0 || int(id) >= g.Vocab) {
			return nil, nil, fault.New(fault.Internal, "cuda.finish", "id %d was drawn from a vocabulary of %d", id, g.Vocab)
		}
	}
	return answers, records, nil
}

// steps puts the launches of a step on the stream.
func (g *gpu) steps(key stepKey) error {
	b, d, n := &batch{d: &g.device, early: g.early}, &g.decoder, key.rows
	b.launch(g.k.embed, n, 1, threads, g.x.Arg(), g.w.embed.at.Arg(), d.tokens.Arg(), cudart.Int(g.Hidden), cudart.Int(g.hiddenP))
	var delta sum
	for i, l := range g.w.layers {
		place := []cudart.Arg{cudart.Int(g.seqPages), cudart.Int(i), cudart.Int(g.Layers), cudart.Int(g.Heads), cudart.Int(g.KVHeads), cudart.Int(g.HeadDim)}
		b.addNorm(g.n, g.x, delta, l.norm1, 0, n)
		qkv := b.productIn(g.qkv, g.n, l.qkv, n, g.qkvRows)
		b.heads(g.q, g.cache, qkv, l, d.tables, 0, d.positions, place, n)
		b.follow(g.k.attendsplit, n*g.headBlocks(8)*key.splits, 1, plan.SplitKeys/tensorKeys*32, append(append([]cudart.Arg{
			g.att.Arg(), d.parts.at.Arg(), d.partStats.at.Arg(), d.arrivals.at.Arg(), g.q.Arg(), g.cache.Arg(), d.tables.Arg(), d.positions.Arg(),
			cudart.Int(n), cudart.Int(key.splits),
		}, place...), cudart.Int(g.queriesP), g.scale())...)
		delta = b.productIn(g.delta, g.att, l.out, n, g.deltaRows)
		b.addNorm(g.n, g.x, delta, l.norm2, 0, n)
		b.activate(g.h, g.gu, g.n, l.gateUp, n, g.opts.Rows)
		delta = b.productIn(g.delta, g.h, l.down, n, g.deltaRows)
	}
	b.addNorm(g.n, g.x, delta, g.w.final, 0, n)
	for first := 0; first < n; first += tile {
		rows := min(tile, n-first)
		b.product(g.logits, g.n.Add(first*g.hiddenP*g.opts.Precision.elemBytes()), g.w.head, rows)
		b.sample(&d.results, g.logits, d.asks, first, rows, n, key.width, d.tokens, d.positions)
	}
	return b.err
}

// heads normalises and rotates queries and keys of n rows and writes keys and values to the cache.
func (b *batch) heads(q, cache cudart.Ptr, qkv sum, l layerWeights, tables, table, position cudart.Ptr, place []cudart.Arg, n int) {
	d := b.d
	b.follow(d.k.heads, n, pad(d.Heads+2*d.KVHeads, threads/32)/(threads/32), threads, slices.Concat([]cudart.Arg{
		q.Arg(), cache.Arg(), qkv.at.Arg(), l.qNorm.at.Arg(), l.kNorm.at.Arg(), d.cos.Arg(), d.sin.Arg(), tables.Arg(), table.Arg(), position.Arg(),
	}, place, []cudart.Arg{cudart.Float(float32(d.RMSEps)), cudart.Int(qkv.parts), cudart.Uint64Arg(uint64(qkv.apart))})...) //nolint:gosec // a size
}

// siluMul writes the activations h of n rows of gu.
func (b *batch) siluMul(h cudart.Ptr, gu sum, n int) {
	d := b.d
	b.follow(d.k.silumul, n, pad(d.interP, 4*threads)/(4*threads), threads, h.Arg(), gu.at.Arg(), cudart.Int(d.Intermediate), cudart.Int(d.interP),
		cudart.Int(gu.parts), cudart.Uint64Arg(uint64(gu.apart))) //nolint:gosec // a size
}

// close frees what the driver keeps for the decoder.
func (d *decoder) close() error {
	errs := []error{d.forget()}
	for _, p := range d.landings {
		errs = append(errs, p.memory.Release(), p.done.Destroy())
	}
	return errors.Join(errs...)
}
