package tokenizer

// merge is what a pair of neighbours becomes; rank is noMerge if they stay apart.
type merge struct {
	rank int32
	id   int32
}

const noMerge = int32(1<<31 - 1)

// mergeTable finds the merge of a pair: an open hash table, at most half full.
type mergeTable struct {
	entries []mergeEntry
	shift   uint
}

type mergeEntry struct {
	pair uint64 // noPair: free
	merge
}

const noPair = ^uint64(0)

func newMergeTable(n int) mergeTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	t := mergeTable{entries: make([]mergeEntry, 1<<bits), shift: 64 - bits}
	for i := range t.entries {
		t.entries[i].pair = noPair
	}
	return t
}

func pairOf(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) } //nolint:gosec // ids are not negative

// slot is where the search for a pair begins: the upper bits of its product with 2^64 over the golden ratio.
func (t *mergeTable) slot(pair uint64) int {
	return int((pair * 0x9e3779b97f4a7c15) >> t.shift) //nolint:gosec // at most the length of the table
}

// add keeps the first of equal pairs.
func (t *mergeTable) add(left, right int32, m merge) {
	pair := pairOf(left, right)
	for i := t.slot(pair); ; i++ {
		e := &t.entries[i&(len(t.entries)-1)]
		switch e.pair {
		case noPair:
			*e = mergeEntry{pair, m}
			return
		case pair:
			return
		}
	}
}

func (t *mergeTable) find(left, right int32) merge {
	pair := pairOf(left, right)
	for i := t.slot(pair); ; i++ {
		e := &t.entries[i&(len(t.entries)-1)]
		switch e.pair {
		case pair:
			return e.merge
		case noPair:
			return merge{rank: noMerge}
		}
	}
}

// bpe merges the ids of one piece by rank, the leftmost of equal ranks first, and appends the result to out.
func (t *Tokenizer) bpe(piece string, out []int32) []int32 {
	begin := len(out)
	for i := range len(piece) {
		out = append(out, t.byteID[piece[i]])
	}
	if len(piece) > maxShort {
		return out[:begin+t.mergeLong(out[begin:])]
	}
	return out[:begin+t.mergeShort(out[begin:])]
}

// maxShort is the length of a piece up to which looking at all ranks again after each merge is faster than a heap.
const maxShort = 48

// mergeShort merges in place and returns how many ids are left; ids has at most maxShort.
func (t *Tokenizer) mergeShort(ids []int32) int {
	var room [maxShort]merge
	next := room[:max(len(ids)-1, 0)] // next[i] is the merge of ids[i] and ids[i+1]
	for i := range next {
		next[i] = t.merges.find(ids[i], ids[i+1])
	}
	for len(next) > 0 {
		at, best := 0, noMerge
		for i := range next {
			if next[i].rank < best {
				at, best = i, next[i].rank
			}
		}
		if best == noMerge {
			break
		}
		ids[at] = next[at].id
		ids = append(ids[:at+1], ids[at+2:]...)
		next = append(next[:at], next[at+1:]...)
		if at < len(next) {
			next[at] = t.merges.find(ids[at], ids[at+1])
		}
		if at > 0 {
			next[at-1] = t.merges.find(ids[at-1], ids[at])
		}
	}
	return len(ids)
}

// mergeLong gives what mergeShort gives, in n log n, for pieces that an attacker or a table makes long.
//
// The queue holds the possible merges as rank and place of the left symbol. A rank names a pair, so an entry counts
// as long as the symbol at its place still has that rank; older entries are passed over.
func (t *Tokenizer) mergeLong(ids []int32) int {
	n := len(ids)
	next, prev := make([]int32, n), make([]int32, n) // neighbours that are left, n and -1 at the ends
	here := make([]merge, n)                         // merge of a symbol with its right neighbour
	q := make(queue, 0, n)
	look := func(i int32) {
		here[i].rank = noMerge
		if int(next[i]) < n {
			if here[i] = t.merges.find(ids[i], ids[next[i]]); here[i].rank != noMerge {
				q.push(here[i].rank, i)
			}
		}
	}
	for i := range next {
		next[i], prev[i] = int32(i+1), int32(i-1) //nolint:gosec // a piece is far shorter
	}
	for i := range next {
		look(int32(i)) //nolint:gosec // as above
	}
	for len(q) > 0 {
		rank, at := q.pop()
		if here[at].rank != rank {
			continue
		}
		ids[at] = here[at].id
		gone := next[at]
		here[gone].rank = noMerge
		next[at] = next[gone]
		if int(next[gone]) < n {
			prev[next[gone]] = at
		}
		look(at)
		if prev[at] >= 0 {
			look(prev[at])
		}
	}
	left := 0
	for i := int32(0); int(i) < n; i = next[i] {
		ids[left] = ids[i]
		left++
	}
	return left
}

// queue is a binary heap of ranks and places, the smallest rank first, of equal ones the leftmost place.
type queue []uint64

func (q *queue) push(rank, at int32) {
	h := append(*q, pairOf(rank, at))
	i := len(h) - 1
	for i > 0 && h[(i-1)/2] > h[i] {
		h[(i-1)/2], h[i] = h[i], h[(i-1)/2]
		i = (i - 1) / 2
	}
	*q = h
}

func (q *queue) pop() (rank, at int32) {
	h := *q
	top := h[0]
	last := h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if last <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	*q = h
	return int32(top >> 32), int32(top & (1<<32 - 1)) //nolint:gosec // as pushed
}
