package plan

// SequencePages is the number of pages of the longest sequence that a model takes.
func SequencePages(s Sizes) int { return Pad(s.MaxPosition+1, PageTokens) / PageTokens }

// PageBytes is the size of a page of keys and values of all layers.
func PageBytes(s Sizes, elem int) int {
	return s.Layers * 2 * s.KVHeads * PageTokens * s.HeadDim * elem
}

// Pages is the number of pages for so many tokens.
func Pages(tokens int) int { return Pad(tokens, PageTokens) / PageTokens }

// CachePages is the number of pages that a sampler takes when free bytes are left beside everything else: what cacheTokens ask for or, with 0, half of what
// is free, but not more than sequences of the longest kind can use. One more page is allocated, for what belongs to no sequence.
func CachePages(s Sizes, elem, sequences, cacheTokens, free int) int {
	if n := Pages(cacheTokens); n > 0 {
		return n
	}
	return min(free/2/PageBytes(s, elem)-1, sequences*SequencePages(s))
}

// CacheBytes is the size of the cache with so many pages.
func CacheBytes(s Sizes, elem, pages int) int { return (pages + 1) * PageBytes(s, elem) }

// SamplerRows is the number of rows of a sampler's step for what its options ask.
func SamplerRows(rows, sequences int) int { return Pad(max(rows, sequences), Tile) }

// Tiles of a product on Hopper and its multiprocessors; blocks of columns that are copied at once.
const (
	tallTile, lowTile = 192, 128
	processors        = 132
	partStep          = 64
	// MostParts is the largest number of parts of a sum.
	MostParts = 6
)

// ProductParts says how a product with a matrix [out,in] is computed on Hopper: in how many parts its inner dimension is summed, so that a product of few rows has
// work for the whole card, and whether a tile has 192 rows of the matrix instead of 128. The number of parts decides about bits, so it depends on the matrix alone.
func ProductParts(out, in int) (parts int, tall bool) {
	most := min(MostParts, max(1, Pad(in, partStep)/partStep/4))
	divide := func(tile int) (parts int, busy float64) {
		tiles := Pad(out, tile) / tile
		parts = min(max(processors/tiles, 1), most)
		items := tiles * parts
		return parts, float64(items) / float64(Pad(items, processors))
	}
	parts, busy := divide(lowTile)
	if p, b := divide(tallTile); b > busy+0.01 {
		return p, true
	}
	return parts, false
}

// SumRows are the numbers of rows for which the results of products have room that are read in parts: of the queries with keys and values, and of the two that are
// added to the residual stream. More rows than this, divided by the number of parts, are added at once.
func SumRows(s Sizes, rows, sequences int) (qkv, delta int) {
	few := min(Pad(sequences, 64), 512)
	parts := func(out, in int) int { p, _ := ProductParts(out, in); return p }
	return max(rows, few*parts(s.QKV, s.HiddenP)), max(rows, few*parts(s.Hidden, s.QueriesP), few*parts(s.Hidden, s.InterP))
}

// SamplerParts are the arrays that a sampler places when it starts, but its weights and its cache; rows are those of SamplerRows.
func SamplerParts(s Sizes, elem, rows, sequences int) []Part {
	qkvRows, deltaRows := SumRows(s, rows, sequences)
	return []Part{
		{"x", Activations, rows * s.Hidden * 4},
		{"delta", Activations, deltaRows * s.Hidden * 4},
		{"n", Activations, rows * s.HiddenP * elem},
		{"qkv", Activations, qkvRows * s.QKV * 4},
		{"q", Activations, rows * s.Queries * 4},
		{"att", Activations, rows * s.QueriesP * elem},
		{"gu", Activations, rows * 2 * s.Intermediate * 4},
		{"h", Activations, rows * s.InterP * elem},
		{"logits", Logits, Tile * s.Vocab * 4},
		{"ints", Work, 4 * rows * 4},
		{"tables", Work, sequences * SequencePages(s) * 4},
		{"asks", Work, Tile * askBytes},
	}
}

// LaneParts are the arrays of the lanes of a decoder, which places them when it starts.
func LaneParts(s Sizes, sequences int) []Part {
	return []Part{
		{"tokens", Work, 4 * sequences},
		{"positions", Work, 4 * sequences},
		{"asks", Work, askBytes * sequences},
		{"tables", Work, 4 * sequences * SequencePages(s)},
	}
}

// SplitsOf is the number of partial results of attention for rows up to a position, rounded up to one of few numbers.
func SplitsOf(position int) int {
	need, n := position/SplitKeys+1, 1
	for n < need {
		if n >= 2 && n*3/2 >= need {
			return n * 3 / 2
		}
		n *= 2
	}
	return n
}

// PartialParts are the partial results of a decoder's attention for rows and splits; it grows them as sequences get longer.
func PartialParts(s Sizes, rows, splits int) []Part {
	n := rows * splits * s.Heads
	return []Part{{"parts", Attention, n * s.HeadDim * 4}, {"partStats", Attention, n * 8}, {"arrivals", Work, rows * s.Heads * 4}}
}

// ResultParts are the arrays of a sampler's results for rows of logits with a record of a width.
func ResultParts(s Sizes, rows, width int) []Part {
	keys := 0
	if width > sortedWidth {
		keys = rows * width * 8
	}
	return []Part{
		{"tops", Work, rows * Groups(s.Vocab) * 4},
		{"states", Work, rows * rowBytes},
		{"sums", Work, rows * 2 * (Pad(s.Vocab, segment) / segment) * 8},
		{"candidates", Record, rows * candidates * 8},
		{"answers", Record, rows * (answerBytes + 8*width)},
		{"keys", Record, keys},
	}
}

// Groups is the number of groups of a row of logits, of each of which the sampler keeps the largest.
func Groups(vocab int) int { return Pad(vocab, sampleGroup) / sampleGroup }
