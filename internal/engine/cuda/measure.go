//go:build cuda

package cuda

import (
	"errors"

	"github.com/steadyrl/steady/internal/cudart"
)

// randomWeights are weights that the GPU makes up, for measurements: the number is their seed.
type randomWeights uint32

// fillRandom gives the weights random numbers, and keys and values too, without the host: times do not depend on what they are, but zeros run faster.
func (g *gpu) fillRandom(seed uint32) error {
	b := &batch{d: &g.device}
	blocks := 16 * g.ctx.Processors
	for i, m := range g.w.all {
		n, next := cudart.Uint64Arg(uint64(m.size())), cudart.Int(int(seed)+i) //nolint:gosec // sizes
		if m.rows == 0 {
			b.launch(g.k.fill, blocks, 1, plainThreads, 0, m.at.Arg(), n, next, cudart.Float(1), cudart.Float(0.1))
			continue
		}
		b.launch(g.k.fill, blocks, 1, plainThreads, elemOf(g, m.at), floatOf(g, m.at), n, next, cudart.Float(0), cudart.Float(0.035))
	}
	elements := (g.pages + 1) * g.Layers * 2 * g.KVHeads * pageTokens * g.HeadDim
	b.launch(g.k.fill, blocks, 1, plainThreads, elemOf(g, g.cache), floatOf(g, g.cache), cudart.Uint64Arg(uint64(elements)), cudart.Int(int(seed)-1), //nolint:gosec // as above
		cudart.Float(0), cudart.Float(1))
	return errors.Join(b.err, g.ctx.Sync())
}

// elemOf and floatOf are the two first arguments of fill: one of them is null.
func elemOf(g *gpu, p cudart.Ptr) cudart.Arg {
	if g.opts.Precision == BF16 {
		return p.Arg()
	}
	return 0
}

func floatOf(g *gpu, p cudart.Ptr) cudart.Arg {
	if g.opts.Precision == BF16 {
		return 0
	}
	return p.Arg()
}

// benchLanes are n sequences of context tokens with pages of their own as far as there are any.
func benchLanes(g *gpu, n, context, top int) []lane {
	each := context/pageTokens + 1
	lanes := make([]lane, n)
	for i := range lanes {
		pages := make([]int32, each)
		for p := range pages {
			pages[p] = int32((i*each + p*7) % g.pages) //nolint:gosec // a page
		}
		lanes[i] = lane{int32(i), int32(context), pages, ask{position: uint32(context + 1), inverse: 1, target: -1, top: int32(top)}} //nolint:gosec // small
	}
	return lanes
}
