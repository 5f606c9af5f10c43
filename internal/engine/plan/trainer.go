package plan

// TrainState are the arrays of a trainer's state, one of each for every matrix: master weights, both moments, gradients.
func TrainState(s Sizes) []Part {
	n := total(s, func(m Matrix) int { return 4 * m.Size() })
	return []Part{{"master", Master, n}, {"first moment", Moments, n}, {"second moment", Moments, n}, {"gradients", Gradients, n}}
}

// Fast says whether the fast step can train a model: BF16, heads 128 wide, widths that its kernels take.
func Fast(s Sizes, elem int) bool {
	return elem == 2 && s.HeadDim == HeadWidth && s.Hidden <= FastHidden && s.Hidden%Align == 0 && s.Intermediate%Align == 0 && s.Vocab%4 == 0
}

// PadRows is the number of rows of the fast step's products: few shapes serve any number of rows. Plain kernels take the rows as they are.
func PadRows(n int, blas bool) int {
	switch {
	case !blas:
		return n
	case n <= 4096:
		return Pad(n, 256)
	}
	return Pad(n, 1024)
}

// Bucket is the length that attention is planned for: the next power of two from 128 on.
func Bucket(length int) int {
	b := 128
	for b < length {
		b *= 2
	}
	return b
}

// Call is one call of cuDNN's attention: Batch sequences that are planned as of Length tokens, KVHeads key heads from Head on with their query heads.
type Call struct {
	Batch, Length, Head, KVHeads int
	Stats                        int // offset of its statistics, in elements
}

// Calls divides a micro-batch's attention into calls. Lengths are those of the sequences, in the order of their buckets, longest first. stats is the
// number of elements of all statistics.
func Calls(s Sizes, lengths []int) (calls []Call, stats int) {
	group := s.Heads / s.KVHeads
	for len(lengths) > 0 {
		length, same := Bucket(lengths[0]), 0
		for same < len(lengths) && Bucket(lengths[same]) == length {
			same++
		}
		square := 2 * length * length
		count, heads := 1, s.KVHeads
		for count*2 <= same && count*2*s.Heads*square <= AttendRoom {
			count *= 2
		}
		for heads > 1 && (s.KVHeads%heads != 0 || count*heads*group*square > AttendRoom) {
			heads--
		}
		for first := 0; first < s.KVHeads; first += heads {
			calls = append(calls, Call{Batch: count, Length: length, Head: first, KVHeads: heads, Stats: stats})
			stats += count * heads * group * length
		}
		lengths = lengths[count:]
	}
	return calls, stats
}

// Workspace is an estimate of what cuDNN asks for, for the largest of the calls: its deterministic backward pass keeps a square of the length for each
// head, 2 bytes an element (measured with version 9.14).
func Workspace(s Sizes, calls []Call) int {
	most := 0
	for _, c := range calls {
		most = max(most, 2*c.Batch*c.KVHeads*(s.Heads/s.KVHeads)*c.Length*c.Length)
	}
	return most
}

// Micro is a micro-batch of the fast step.
type Micro struct {
	Rows    int // of products: Tokens, padded by PadRows
	Tokens  int
	Targets int // trained tokens
	Stats   int // elements of attention's statistics
	Record  int // width of the record that the objective reads
	Ints    int // 4-byte words that the host uploads of it
	Chunk   int // rows of a chunk of logits: the most targets at once, padded by PadRows
}

// FastParts are the arrays that a micro-batch of the fast step needs, beside kept activations and cuDNN's workspace.
func FastParts(s Sizes, m Micro) []Part {
	r, kvd := m.Rows, s.KVHeads*s.HeadDim
	return []Part{
		{"x", Activations, (s.Layers + 1) * r * s.Hidden * 4},
		{"dx", Activations, r * s.Hidden * 4},
		{"n", Activations, r * s.Hidden * 2},
		{"dn", Activations, r * s.Hidden * 2},
		{"dy", Activations, r * s.Hidden * 2},
		{"delta", Activations, r * s.Hidden * 2},
		{"q", Activations, r * s.Queries * 2},
		{"keys", Activations, r * kvd * 2},
		{"datt", Activations, r * s.Queries * 2},
		{"dqkv", Activations, r * s.QKV * 2},
		{"dgu", Activations, r * 4 * s.Intermediate},
		{"h", Activations, r * s.Intermediate * 2},
		{"dh", Activations, r * s.Intermediate * 2},
		{"sums", Attention, m.Stats * 4},
		{"part", Activations, Pad(max(r, m.Chunk), normRows) / normRows * max(s.Hidden, 2*HeadWidth) * 4},
		{"hx", Logits, m.Chunk * s.Hidden * 2},
		{"dhn", Logits, m.Chunk * s.Hidden * 2},
		{"logits", Logits, m.Chunk * s.Vocab * 4},
		{"dlogits", Logits, m.Chunk * s.Vocab * 2},
		{"ints", Work, 4 * m.Ints},
		{"words", Work, m.Targets * targetBytes},
		{"logQ", Record, 4 * m.Targets * m.Record},
		{"recordIDs", Record, 4 * m.Targets * m.Record},
		{"head", Record, m.Chunk * m.Record * 8},
		{"stats", Work, m.Targets * statsBytes},
		{"embed", Work, 4 * (3*m.Tokens + 12)},
	}
}

// SlotParts are one layer's kept activations. Rich slots have the inputs of products too, which else are computed again. Each begins at a multiple of 256 bytes.
func SlotParts(s Sizes, rows, stats int, rich bool) []Part {
	parts := []Part{
		{"mid", Activations, rows * s.Hidden * 4},
		{"qkv", Activations, rows * s.QKV * 2},
		{"att", Activations, rows * s.Queries * 2},
		{"gu", Activations, rows * 4 * s.Intermediate},
		{"stats", Attention, stats * 4},
	}
	if rich {
		parts = append(parts, Part{"n1", Activations, rows * s.Hidden * 2}, Part{"n2", Activations, rows * s.Hidden * 2},
			Part{"q", Activations, rows * s.Queries * 2}, Part{"keys", Activations, rows * s.KVHeads * s.HeadDim * 2})
	}
	for i := range parts {
		parts[i].Bytes = Pad(parts[i].Bytes, 256)
	}
	return parts
}

// Slots says how many layers' activations are kept in room bytes, of at most want layers, and whether their slots are rich. One always is: it serves all
// layers in turn.
func Slots(s Sizes, rows, stats, want, room int) (count int, rich bool) {
	if n := want * Sum(SlotParts(s, rows, stats, true)); want == s.Layers && n <= room {
		return want, true
	}
	return min(want, max(1, room/Sum(SlotParts(s, rows, stats, false)))), false
}

// SlotRoom is the memory for kept activations out of free bytes.
func SlotRoom(s Sizes, elem, free int) int { return free - Spare - WeightBytes(s, elem) }

// ExactMicro is a micro-batch of the exact step, whose forward pass is the sampler's.
type ExactMicro struct {
	Tokens     int
	Sequences  int
	CachePages int // of all sequences
	TablePages int // of the longest
}

// ExactParts are the arrays of a micro-batch of the exact step. Elements have elem bytes.
func ExactParts(s Sizes, elem int, m ExactMicro) []Part {
	rows, both, kvd := Pad(m.Tokens, Tile), (s.Heads+s.KVHeads)*s.HeadDim, s.KVHeads*s.HeadDim
	blocks := Pad(max(rows, ExactHeadRows), columnRows) / columnRows
	return []Part{
		{"saved", Activations, (s.Layers + 1) * rows * s.Hidden * 4},
		{"mid", Activations, rows * s.Hidden * 4},
		{"delta", Activations, rows * s.Hidden * 4},
		{"dx", Activations, rows * s.Hidden * 4},
		{"n1", Activations, rows * s.HiddenP * elem},
		{"n2", Activations, rows * s.HiddenP * elem},
		{"dy", Activations, rows * s.HiddenP * elem},
		{"qkv", Activations, rows * s.QKV * 4},
		{"gu", Activations, rows * 2 * s.Intermediate * 4},
		{"dqkv", Activations, rows * s.QKV * elem},
		{"dgu", Activations, rows * 2 * s.Intermediate * elem},
		{"q", Activations, rows * s.Queries * 4},
		{"dq", Activations, rows * s.Queries * 4},
		{"dk", Activations, rows * kvd * 4},
		{"dv", Activations, rows * kvd * 4},
		{"att", Activations, rows * s.QueriesP * elem},
		{"datt", Activations, rows * s.QueriesP * 4},
		{"h", Activations, rows * s.InterP * elem},
		{"dh", Activations, rows * s.InterP * 4},
		{"dn", Activations, rows * s.HiddenP * 4},
		{"parts", Activations, rows * both * 4},
		{"stats", Attention, rows * s.Heads * 8},
		{"dot", Attention, rows * s.Heads * 4},
		{"columns", Activations, blocks * max(s.Hidden, both) * 4},
		{"sums", Activations, both * 4},
		{"cache", Cache, m.CachePages * 2 * kvd * PageTokens * elem},
		{"tokens", Work, rows * 4},
		{"table", Work, rows * 4},
		{"position", Work, rows * 4},
		{"tables", Work, m.Sequences * m.TablePages * 4},
		{"last", Work, m.Sequences * 4},
		{"ids", Work, rows * 4},
		{"starts", Work, (rows + 1) * 4},
		{"order", Work, rows * 4},
	}
}

// ExactHeadParts are the arrays of n trained tokens of the exact step, at most ExactHeadRows, with records of a width.
func ExactHeadParts(s Sizes, elem, n, record int) []Part {
	rows := Pad(n, Tile)
	return []Part{
		{"hx", Logits, rows * s.HiddenP * elem},
		{"logits", Logits, rows * s.Vocab * 4},
		{"dlogits", Logits, rows * s.Vocab * elem},
		{"dhn", Logits, rows * s.HiddenP * 4},
		{"index", Work, n * 4},
		{"targets", Work, n * targetBytes},
		{"recordIDs", Record, n * record * 4},
		{"recordLogQ", Record, n * record * 4},
		{"head", Record, n * record * 8},
		{"lossStats", Work, n * statsBytes},
	}
}

// NormBytes is the size of the partial sums of the gradient's norm: one of 8 bytes for each 64 Ki elements of a matrix.
func NormBytes(s Sizes) int { return 8 * total(s, NormChunks) }

// NormChunks is the number of partial sums of a matrix's gradient.
func NormChunks(m Matrix) int { return Pad(m.Size(), ChunkSize) / ChunkSize }

// ChunkSize is the number of elements of a partial sum of the gradient's norm.
const ChunkSize = 64 << 10
