//go:build cuda

package cuda

import (
	"github.com/steadyrl/steady/internal/cudart"
)

// splitTokens is SPLIT in the kernels; widePairs the largest number of pairs of a row and a head that a block takes.
const (
	splitTokens = 256
	widePairs   = 8
)

// attendPlan says which blocks compute attention for the rows of a step. It does not change results.
type attendPlan struct {
	wide, single []int32 // items of attend8 and of the kernel for one row: first row, rows, split or -1
	merges       []int32 // of attendjoin: row, first item of single, items
	tiles        []int32 // of attendtile, instead of all these: first row, rows
	rows         int
}

// tensorPairs and tensorKeys are PAIRS and KEYS of the kernels on tensor cores; tensorDim is the widest head that they take.
const (
	tensorPairs = 16
	tensorKeys  = 128
	tensorDim   = 128
)

// tensor says whether attention runs on tensor cores.
func (d *device) tensor() bool {
	return d.opts.Precision == BF16 && d.HeadDim%8 == 0 && d.HeadDim <= tensorDim
}

// headBlocks is the number of blocks of at most size query heads that read one key/value head, over all of these.
func (s sizes) headBlocks(size int) int {
	group := s.Heads / s.KVHeads
	return s.KVHeads * ((group + size - 1) / size)
}

// planAttention puts neighbouring tokens of a sequence in tiles, and spreads the keys of a long sequence that has one token alone over blocks.
func (s sizes) planAttention(table, position []int32) *attendPlan {
	p := &attendPlan{rows: len(table)}
	tileRows := int32(max(1, widePairs/min(widePairs, s.Heads/s.KVHeads))) //nolint:gosec // at most 8
	tensorRows := int32(tensorPairs / min(tensorPairs, s.Heads/s.KVHeads)) //nolint:gosec // at most 16
	for i, n := int32(0), int32(len(table)); i < n; {                      //nolint:gosec // rows of a step
		end := i + 1
		for end < n && table[end] == table[i] && position[end] == position[end-1]+1 {
			end++
		}
		for first := i; first < end; first += tensorRows {
			p.tiles = append(p.tiles, first, min(tensorRows, end-first))
		}
		if end > i+1 {
			for ; i < end; i += tileRows {
				p.wide = append(p.wide, i, min(tileRows, end-i), -1)
			}
			i = end
			continue
		}
		splits := position[i]/splitTokens + 1
		if splits == 1 {
			p.single = append(p.single, i, 1, -1)
		} else {
			p.merges = append(p.merges, i, int32(len(p.single)/3), splits) //nolint:gosec // as above
			for split := range splits {
				p.single = append(p.single, i, 1, split)
			}
		}
		i = end
	}
	return p
}

// attention are the buffers of one plan.
type attention struct {
	plan                *attendPlan
	wide, single, merge buffer
	parts, tiles        buffer
}

// load uploads a plan.
func (a *attention) load(d *device, p *attendPlan) error {
	a.plan = p
	if d.tensor() {
		if err := d.need(&a.tiles, 4*len(p.tiles)); err != nil {
			return err
		}
		return cudart.Upload(d.ctx, a.tiles.at, p.tiles)
	}
	for _, u := range []struct {
		b    *buffer
		ints []int32
	}{{&a.wide, p.wide}, {&a.single, p.single}, {&a.merge, p.merges}} {
		if err := d.need(u.b, 4*len(u.ints)); err != nil {
			return err
		}
		if err := cudart.Upload(d.ctx, u.b.at, u.ints); err != nil {
			return err
		}
	}
	return d.need(&a.parts, len(p.single)/3*d.Heads*(d.HeadDim+2)*4)
}

// attend runs the plan; args are those that the kernels share: queries, cache, tables, sequence, position; then sizes, up to the scale.
func (b *batch) attend(a *attention, out, stats cudart.Ptr, args []cudart.Arg) {
	d, p := b.d, a.plan
	if d.tensor() {
		n := len(p.tiles) / 2
		all := append([]cudart.Arg{out.Arg(), stats.Arg()}, args[:5]...)
		b.launch(d.k.attendtile, pad(n, 2)/2, d.headBlocks(tensorPairs), 64, append(append(all, a.tiles.at.Arg(), cudart.Int(n)), args[5:]...)...)
		return
	}
	pairs := min(widePairs, d.Heads/d.KVHeads)
	blocks := d.KVHeads * (pad(d.Heads/d.KVHeads, pairs) / pairs)
	tile, single := d.k.attend8, d.k.attend8
	switch {
	case d.HeadDim > 128:
		tile, single = d.k.attendwide, d.k.attendwide
	case pairs <= 2:
		single = d.k.attend2
	case pairs <= 4:
		single = d.k.attend4
	}
	run := func(f *cudart.Function, items buffer, n int) {
		b.launch(f, n, blocks, threads, append(append([]cudart.Arg{out.Arg()}, args...), stats.Arg(), items.at.Arg(), a.parts.at.Arg())...)
	}
	run(tile, a.wide, len(p.wide)/3)
	run(single, a.single, len(p.single)/3)
	b.launch(d.k.attendjoin, len(p.merges)/3, d.Heads, threads, out.Arg(), stats.Arg(), a.parts.at.Arg(), a.merge.at.Arg(), cudart.Int(d.Heads),
		cudart.Int(d.HeadDim), cudart.Int(d.queriesP))
}
