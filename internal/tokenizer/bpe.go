package tokenizer

import "container/heap"

type pair [2]int32

type merge struct {
	rank int32
	id   int32
}

// bpe merges the ids of one piece by rank, the leftmost of equal ranks first, and appends the result to out.
func (t *Tokenizer) bpe(piece string, out []int32) []int32 {
	begin := len(out)
	for i := range len(piece) {
		out = append(out, t.byteID[piece[i]])
	}
	if len(piece) > maxShort {
		return append(out[:begin], t.mergeLong(out[begin:])...)
	}
	return out[:begin+len(t.mergeShort(out[begin:]))]
}

// maxShort is the length of a piece up to which looking at all pairs again after each merge is faster than a heap.
const maxShort = 48

// mergeShort merges in place.
func (t *Tokenizer) mergeShort(ids []int32) []int32 {
	for len(ids) > 1 {
		best, at := merge{rank: -1}, -1
		for i := range len(ids) - 1 {
			if m, ok := t.merges[pair{ids[i], ids[i+1]}]; ok && (at < 0 || m.rank < best.rank) {
				best, at = m, i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = best.id
		ids = append(ids[:at+1], ids[at+2:]...)
	}
	return ids
}

// candidate is a possible merge of the symbol at a position with its right neighbour.
type candidate struct {
	merge
	at          int
	left, right int32
}

type queue []candidate

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(candidate)) } //nolint:forcetypeassert // container/heap of one type
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// mergeLong gives what mergeShort gives in n log n, for pieces that an attacker or a table makes long.
func (t *Tokenizer) mergeLong(ids []int32) []int32 {
	n := len(ids)
	next, prev := make([]int, n), make([]int, n)
	for i := range n {
		next[i], prev[i] = i+1, i-1
	}
	var q queue
	offer := func(i int) {
		if i < 0 || next[i] >= n {
			return
		}
		l, r := ids[i], ids[next[i]]
		if m, ok := t.merges[pair{l, r}]; ok {
			heap.Push(&q, candidate{m, i, l, r})
		}
	}
	for i := range n - 1 {
		offer(i)
	}
	dead := make([]bool, n)
	for q.Len() > 0 {
		c := heap.Pop(&q).(candidate) //nolint:forcetypeassert // see Push
		if dead[c.at] || next[c.at] >= n || ids[c.at] != c.left || ids[next[c.at]] != c.right {
			continue // one of the two was merged meanwhile
		}
		gone := next[c.at]
		ids[c.at] = c.id
		dead[gone] = true
		next[c.at] = next[gone]
		if next[gone] < n {
			prev[next[gone]] = c.at
		}
		offer(prev[c.at])
		offer(c.at)
	}
	var out []int32
	for i := 0; i < n; i = next[i] {
		out = append(out, ids[i])
	}
	return out
}
