//go:build cuda

package cuda

import (
	"math"

	"github.com/steadyrl/steady/internal/cudart"
	"github.com/steadyrl/steady/internal/engine/plan"
)

// Constants of the sampler's kernels.
const (
	sampleChunk  = 4096 // CHUNKED
	sampleGroup  = 128  // GROUP
	segment      = 1024 // SEGMENT
	candidates   = 1024 // CANDIDATES
	sortedWidth  = 1024 // SORTED
	rowBytes     = 16   // Row
	idle         = -2   // target of an ask that nobody made
	answerWords  = answerBytes / 4
	sampleThread = 256
)

// results is the sampler's memory for a number of rows and a width of the record. What the host reads lies in one piece: answers, ids, values.
type results struct {
	rows, width int
	tops, states, sums, candidates,
	answers, keys cudart.Ptr
}

// grow provides memory. The old one is freed with everything else: sizes grow once or twice in a run.
func (r *results) grow(d *device, rows, width int) error {
	if rows <= r.rows && width <= r.width {
		return nil
	}
	r.rows, r.width = max(rows, r.rows), max(width, r.width)
	into := map[string]*cudart.Ptr{
		"tops": &r.tops, "states": &r.states, "sums": &r.sums, "candidates": &r.candidates, "answers": &r.answers, "keys": &r.keys,
	}
	return d.allocAll(into, plan.ResultParts(d.planned(), r.rows, r.width))
}

func groups(vocab int) int { return plan.Groups(vocab) }

// words is the number of 4-byte words that the host reads for n rows.
func (r *results) words(n int) int { return n * (answerWords + 2*r.width) }

// sample answers the asks of n rows of logits. They are rows first, first+1, ... of total ones that the host reads, whose ids and values, of a width, lie
// behind their answers. tokens and positions, unless 0, are moved on.
func (b *batch) sample(r *results, logits, asks cudart.Ptr, first, n, total, width int, tokens, positions cudart.Ptr) {
	d, chunks := b.d, pad(b.d.Vocab, sampleChunk)/sampleChunk
	vocab, g := cudart.Int(d.Vocab), groups(d.Vocab)
	tops, states := r.tops.Add(first*g*4), r.states.Add(first*rowBytes)
	sums, list := r.sums.Add(first*2*(pad(d.Vocab, segment)/segment)*8), r.candidates.Add(first*candidates*8)
	ids := r.answers.Add(total * answerBytes)
	values := ids.Add(4 * total * width)
	at := func(p cudart.Ptr, bytes int) cudart.Ptr {
		if p == 0 {
			return 0
		}
		return p.Add(bytes)
	}
	asks = asks.Add(first * askBytes)
	b.follow(d.k.samplemax, n, chunks, sampleThread, tops.Arg(), logits.Arg(), asks.Arg(), vocab, cudart.Int(g))
	b.follow(d.k.samplebound, n, 1, sampleThread, states.Arg(), tops.Arg(), asks.Arg(), cudart.Int(g))
	b.follow(d.k.samplesum, n, chunks, threads, sums.Arg(), list.Arg(), states.Arg(), logits.Arg(), asks.Arg(), vocab)
	b.follow(d.k.samplepick, n, 1, sampleThread, r.answers.Add(first*answerBytes).Arg(), ids.Add(4*first*width).Arg(), values.Add(4*first*width).Arg(),
		at(r.keys, first*width*8).Arg(), states.Arg(), sums.Arg(), list.Arg(), logits.Arg(), asks.Arg(), vocab, cudart.Int(width), at(tokens, 4*first).Arg(),
		at(positions, 4*first).Arg())
}

// readRow takes row i of n, with records of a width, from what the host has read; the record's slices are new.
func readRow(host []uint32, n, i, top, width int) (answer, record) {
	a := answerOf(host[answerWords*i:])
	if a.bad != 0 || top == 0 {
		return a, record{}
	}
	ids := host[answerWords*n+i*width:][:top]
	values := host[(answerWords+width)*n+i*width:][:top]
	rec := record{make([]int32, top), make([]float32, top)}
	for j := range top {
		rec.ids[j], rec.values[j] = int32(ids[j]), math.Float32frombits(values[j]) //nolint:gosec // an id
	}
	if top > sortedWidth {
		rec.sort()
	}
	return a, rec
}
