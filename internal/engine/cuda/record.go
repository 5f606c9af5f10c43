//go:build cuda

package cuda

import (
	"cmp"
	"slices"
)

// recordOf turns the sampler's keys and their log-probabilities into a record. Wide records come in any order.
func recordOf(keys []uint64, values []float32) record {
	type entry struct {
		key   uint64
		value float32
	}
	entries := make([]entry, len(keys))
	for i, k := range keys {
		entries[i] = entry{k, values[i]}
	}
	byRank := func(a, b entry) int { return cmp.Compare(b.key, a.key) }
	if !slices.IsSortedFunc(entries, byRank) {
		slices.SortFunc(entries, byRank)
	}
	r := record{make([]int32, len(keys)), make([]float32, len(keys))}
	for i, e := range entries {
		r.ids[i], r.values[i] = int32(^uint32(e.key)), e.value //nolint:gosec // the lower half is the complement of an id
	}
	return r
}
