//go:build cuda

package cuda

import (
	"cmp"
	"slices"
)

// record is the most probable ids of a row, most probable first.
type record struct {
	ids    []int32
	values []float32
}

// sort orders a record that is too wide for the kernels to do it: most probable first, ties by the smaller id.
func (r record) sort() {
	order := make([]int, len(r.ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.values[b], r.values[a]), cmp.Compare(r.ids[a], r.ids[b]))
	})
	from := record{slices.Clone(r.ids), slices.Clone(r.values)}
	for to, i := range order {
		r.ids[to], r.values[to] = from.ids[i], from.values[i]
	}
}
