//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/plan"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/rng"
)

// The decoder's steps against the pass of many rows: the same token, log-probability and record bits for the same tokens, for lanes of different
// lengths on both sides of a border of partial results, with idle rows beside them, and when a step is started before the one before is read.
func TestDecoder_sameBitsAsForward(t *testing.T) {
	o := options(t, BF16)
	o.Sequences = 8
	c := model.Config{Vocab: 1100, Layers: 2, Hidden: 24, KVHeads: 2, HeadDim: 40, Intermediate: 24, MaxPosition: 200, RMSEps: 1e-6, RopeTheta: 1e4, TieEmbedding: true}
	odd, wide, long := c, c, c
	odd.Heads, odd.Hidden = 2, 26 // one head a key/value head; a width that is no multiple of four
	c.Heads = 6
	wide.Heads, wide.KVHeads, wide.HeadDim = 9, 1, 128                      // more than eight heads a key/value head
	long.Heads, long.HeadDim, long.MaxPosition, long.Layers = 2, 8, 1100, 1 // more than one span
	short := []int{3, 126, 40}
	for _, one := range []struct {
		c       model.Config
		lengths []int
	}{{odd, short}, {c, short}, {wide, short}, {long, []int{plan.SplitKeys - 2, 3, 2*plan.SplitKeys - 2}}} {
		c, lengths := one.c, one.lengths
		onGPU(t, c, o, func(g *gpu) {
			if err := g.w.upload(g.ctx, g.w.stage(BF16, weightsOf(c, 8, 0.3))); err != nil {
				t.Fatal(err)
			}
			decodedAsForward(t, g, c, lengths)
		})
	}
}

// decodedAsForward compares steps of a decoder with the pass of many rows, for sequences of these lengths.
func decodedAsForward(t *testing.T, g *gpu, c model.Config, lengths []int) {
	t.Helper()
	const top = 7
	steps := 5
	if len(lengths) > 8 {
		steps = 2
	}
	var lanes []lane
	var tokens, tables [][]int32
	var want []engine.Token
	page := int32(0)
	for i, n := range lengths {
		tokens = append(tokens, ids(n, c.Vocab, i))
		var pages []int32
		for range (n+steps)/pageTokens + 1 {
			pages = append(pages, page)
			page++
		}
		tables = append(tables, pages)
	}
	asked := func(i int, pos int) ask {
		st := rng.New(4, rng.Train, i)
		return ask{stream: [4]uint32{st.Key[0], st.Key[1], st.Nonce[0], st.Nonce[1]}, position: uint32(pos), inverse: 1.25, target: -1, top: top}
	}
	for step := range steps {
		for i := range lengths {
			var rows []row
			first := 0
			if step > 0 {
				first = len(tokens[i]) - 1
			}
			for p := first; p < len(tokens[i]); p++ {
				rows = append(rows, row{tokens[i][p], 0, int32(p)})
			}
			if step == 0 { // what a decoder takes over: all but the last token
				last := len(tokens[i]) - 1
				lanes = append(lanes, lane{tokens[i][last], int32(last), tables[i], asked(i, last+1)})
			}
			if err := g.forward(rows, tables[i:i+1]); err != nil {
				t.Fatal(err)
			}
			answers, records, err := g.sample([]int32{int32(len(rows) - 1)}, []ask{asked(i, len(tokens[i]))})
			if err != nil {
				t.Fatal(err)
			}
			a := answers[0]
			want = append(want, engine.Token{ID: a.id, LogProb: a.logProb, Entropy: a.entropy, TopIDs: records[0].ids, TopLogProbs: records[0].values})
			tokens[i] = append(tokens[i], a.id)
		}
	}
	tops := slices.Repeat([]int32{top}, len(lengths))
	for _, ahead := range []int{0, 1} {
		if err := g.load(lanes); err != nil {
			t.Fatal(err)
		}
		var flying []step
		for started, read := 0, 0; read < steps; {
			for ; started < steps && started <= read+ahead; started++ {
				s, err := g.begin(len(lanes), slices.Max(lengths)-1+started, top)
				if err != nil {
					t.Fatal(err)
				}
				flying = append(flying, s)
			}
			answers, records, err := g.finish(flying[0], tops)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range answers {
				w := want[read*len(lanes)+i]
				if a.bad != 0 || a.id != w.ID || math.Float32bits(a.logProb) != math.Float32bits(w.LogProb) || a.entropy != w.Entropy ||
					!slices.Equal(records[i].ids, w.TopIDs) || !slices.Equal(records[i].values, w.TopLogProbs) {
					t.Errorf("%d heads, %d ahead, step %d, lane %d: %+v %v, want %+v", c.Heads, ahead, read, i, a, records[i], w)
				}
			}
			flying = flying[1:]
			read++
		}
	}
}

// A kernel that divides keys otherwise than the memory plan would write behind its buffers; one that takes fewer parts of a sum would leave some out.
func TestDecoder_kernelsDivideAsPlanned(t *testing.T) {
	for name, want := range map[string]int{"SPAN": plan.SplitKeys, "KEYS": tensorKeys, "PAIRS": tensorPairs, "PARTS": plan.MostParts} {
		if line := fmt.Sprintf("#define %s %d\n", name, want); !strings.Contains(source(), line) {
			t.Errorf("the kernels have no line %q", line)
		}
	}
}

// As TestDecoder_sameBitsAsForward on a card at the widths of a real model, where blocks end in any order; with the engine's own products, if they run
// there, and with those of the library.
func TestDecoder_sameBitsAtRealWidths(t *testing.T) {
	o := onCard(t)
	c := shapes[1].cfg
	c.Layers, c.Vocab = 3, 5000
	for _, library := range []bool{false, true} {
		o.Sequences, o.Rows, o.libraryProducts = 256, 4096, library
		onGPU(t, c, o, func(g *gpu) {
			if err := g.fillRandom(7); err != nil {
				t.Fatal(err)
			}
			decodedAsForward(t, g, c, []int{3, 126, 510, 1022, 2047, 1})
			for _, n := range []int{60, 100, 250} { // every tile of products
				var many []int
				for i := range n {
					many = append(many, 1+i%7*40)
				}
				decodedAsForward(t, g, c, many)
			}
		})
	}
}
