package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// cache remembers the ids of pieces. Each piece has two places, chosen by its hash, and the newer one drives out the
// older. Readers and writers need no lock: a place changes as a whole.
type cache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cached]
}

type cached struct {
	piece string
	ids   []int32
}

const (
	cacheSlots    = 1 << 16 // with pieces of the longest kind, about 24 MiB
	maxCachePiece = 64      // bytes; longer pieces seldom come again
)

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cached], cacheSlots)}
}

// places returns the two places of a piece.
func (c *cache) places(piece string) (first, second *atomic.Pointer[cached]) {
	h := maphash.String(c.seed, piece) % cacheSlots
	return &c.slots[h], &c.slots[h^1]
}

// appendIDs appends what encode appends for the piece.
func (c *cache) appendIDs(out []int32, piece string, encode func(string, []int32) []int32) []int32 {
	first, second := c.places(piece)
	old := first.Load()
	if old != nil && old.piece == piece {
		return append(out, old.ids...)
	}
	if e := second.Load(); e != nil && e.piece == piece {
		return append(out, e.ids...)
	}
	begin := len(out)
	out = encode(piece, out)
	first.Store(&cached{strings.Clone(piece), slices.Clone(out[begin:])})
	if old != nil {
		second.Store(old)
	}
	return out
}
