package plan

import (
	"slices"
	"sort"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// elem is the size of an element of BF16, in which runs on a GPU compute.
const elem = 2

// Use is what a GPU has to do. The memory of everything follows from it.
type Use struct {
	Model model.Config
	// Trainer and Sampler say what lives on the GPU: one of them, or both.
	Trainer, Sampler bool
	// Micro is the budget of a micro-batch in tokens. Longest is the longest trajectory in tokens; one that is longer than the budget is a micro-batch of its own.
	Micro, Longest int
	// Record is the width of the record of each sampled token.
	Record int
	// Sequences is what the sampler generates at once, Rows the tokens of its largest step (0: 1,024), CacheTokens what its cache is asked to hold (0: what fits).
	Sequences, Rows, CacheTokens int
}

// Check refuses what no plan can be made for. Errors: Invalid.
func (u Use) Check() error {
	if err := u.Model.Check(); err != nil {
		return err
	}
	bad := ""
	switch {
	case !u.Trainer && !u.Sampler:
		bad = "neither a trainer nor a sampler"
	case u.Micro < 1 || u.Longest < 1 || u.Record < 0 || u.Sequences < 1 || u.Rows < 0 || u.CacheTokens < 0:
		bad = "a size below what makes sense"
	case u.Longest > u.Model.MaxPosition:
		return fault.New(fault.Invalid, "plan.Use", "trajectories of %d tokens, the model takes %d (max_position_embeddings)", u.Longest, u.Model.MaxPosition).
			WithHint("lower rollout.max_total to %d, or take a model for longer texts", u.Model.MaxPosition)
	}
	if bad != "" {
		return fault.New(fault.Invalid, "plan.Use", "%s: %+v", bad, u)
	}
	return nil
}

// Side is what one of the engines on a GPU takes.
type Side struct {
	Name  string
	Parts []Part
}

// Names of sides.
const (
	TrainerSide = "trainer"
	SamplerSide = "sampler"
	CheckSide   = "check of a version" // a small sampler that lives while a version is published or exported
	ProcessSide = "process"
)

// Need is the least memory that a use takes: activations of one layer are kept, and the cache holds one trajectory of the longest kind.
type Need struct{ Sides []Side }

// Bytes is the sum of all parts.
func (n Need) Bytes() int {
	total := 0
	for _, s := range n.Sides {
		total += Sum(s.Parts)
	}
	return total
}

// ByClass adds up a class over one side, or over all for "".
func (n Need) ByClass(side string, c Class) int {
	total := 0
	for _, s := range n.Sides {
		if side != "" && s.Name != side {
			continue
		}
		for _, p := range s.Parts {
			if p.Class == c {
				total += p.Bytes
			}
		}
	}
	return total
}

// Least returns the least memory for a use.
func Least(u Use) Need {
	s := SizesOf(u.Model)
	var n Need
	if u.Trainer {
		n.Sides = append(n.Sides, Side{TrainerSide, trainer(s, u)},
			Side{CheckSide, samplerParts(s, Use{Model: u.Model, Sequences: 1, Rows: 128, Longest: 255, Record: 0}, Pages(256))})
	}
	if u.Sampler {
		parts := samplerParts(s, u, LeastPages(u))
		if !u.Trainer && u.CacheTokens == 0 { // a sampler alone takes half of what is free
			parts = append(parts, Part{"the other half of what is free", Reserve, CacheBytes(s, elem, LeastPages(u))})
		}
		n.Sides = append(n.Sides, Side{SamplerSide, parts})
	}
	n.Sides = append(n.Sides, Side{ProcessSide, []Part{{"context and code, estimate", Process, Context}}})
	return n
}

// LeastPages are the pages of the cache without which the longest trajectory could not be sampled, or those that are asked for.
func LeastPages(u Use) int {
	if u.CacheTokens > 0 {
		return Pages(u.CacheTokens)
	}
	return Pages(u.Longest)
}

// samplerParts are all arrays of a sampler.
func samplerParts(s Sizes, u Use, pages int) []Part {
	rows := u.Rows
	if rows == 0 {
		rows = 1024
	}
	lanes := 1
	for lanes < u.Sequences {
		lanes *= 2
	}
	lanes = min(lanes, u.Sequences)
	parts := common(s, elem, true)
	parts = append(parts, SamplerParts(s, elem, SamplerRows(rows, u.Sequences), u.Sequences)...)
	parts = append(parts, LaneParts(s, u.Sequences)...)
	parts = append(parts, PartialParts(s, lanes, SplitsOf(u.Longest))...)
	parts = append(parts, ResultParts(s, Tile, u.Record)...)
	parts = append(parts, ResultParts(s, lanes, u.Record)...)
	return append(parts, Part{"keys and values", Cache, CacheBytes(s, elem, pages)})
}

// trainer are all arrays of a trainer with one slot of activations.
func trainer(s Sizes, u Use) []Part {
	parts := append(common(s, elem, true), TrainState(s)...)
	parts = append(parts, Part{"norm", Work, NormBytes(s)})
	tokens := max(u.Micro, u.Longest)
	if !Fast(s, elem) {
		parts = append(parts, ExactParts(s, elem, ExactMicro{
			Tokens: tokens, Sequences: tokens/u.Longest + 1, CachePages: Pages(tokens) + tokens/u.Longest + 1, TablePages: Pages(u.Longest),
		})...)
		return append(parts, ExactHeadParts(s, elem, min(ExactHeadRows, tokens), u.Record)...)
	}
	m, workspace := Worst(s, tokens, u.Longest, u.Record)
	parts = append(parts, FastParts(s, m)...)
	parts = append(parts, Part{"cuDNN, estimate", Attention, workspace})
	return append(parts, SlotParts(s, m.Rows, m.Stats, false)...)
}

// Worst is a micro-batch of tokens that needs the most memory of those of one length, each a little more than half of what attention is planned for or the
// longest, and an estimate of cuDNN's workspace for the worst of them. Every token is a trained one.
func Worst(s Sizes, tokens, longest, record int) (m Micro, workspace int) {
	rows := PadRows(tokens, true)
	m = Micro{Rows: rows, Tokens: tokens, Targets: tokens, Stats: rows * s.Heads, Record: record, Chunk: PadRows(min(HeadRows, tokens), true)}
	lengths := []int{longest}
	for b := 128; b < longest; b *= 2 {
		lengths = append(lengths, b/2+1, b)
	}
	for _, length := range lengths {
		each := slices.Repeat([]int{length}, max(1, tokens/length))
		if rest := tokens - length*len(each); rest > 0 {
			each = append(each, rest)
		}
		calls, stats := Calls(s, each)
		m.Stats = max(m.Stats, stats)
		workspace = max(workspace, Workspace(s, calls))
		ints := 3*tokens + len(each) + tokens + 16
		for _, c := range calls {
			ints += 4*c.Batch + 3 + 12
		}
		m.Ints = max(m.Ints, ints)
	}
	return m, workspace
}

// Filled says what a GPU's memory allows beyond the least.
type Filled struct {
	// Layers whose activations are kept, and whether with all inputs of products: then nothing is computed again.
	Layers int
	Rich   bool
	// CacheTokens fit in the cache; Together trajectories of the longest kind have their place there at once.
	CacheTokens, Together int
	// Free is what is left, in bytes.
	Free int
}

// Fill shares memory out beyond what a use needs at least: on a GPU with both engines the cache gets up to what its sequences can use, and kept
// activations the rest. It must fit: memory is at least Least(u).Bytes().
func Fill(u Use, memory int) Filled {
	s := SizesOf(u.Model)
	var f Filled
	left := memory - Least(u).Bytes()
	if u.Sampler {
		page, pages := PageBytes(s, elem), LeastPages(u)
		if u.CacheTokens == 0 {
			if u.Trainer {
				most := u.Sequences * Pages(u.Longest) // beyond it nothing is gained, and activations can use it
				// A twentieth of the memory stays free: the process and cuDNN are estimates.
				if more := min((left-memory/20)/page, most-pages); more > 0 {
					pages, left = pages+more, left-more*page
				}
			} else {
				// The rule of the engine, on what is free beside everything else: both reserved halves and what is left.
				free := left + 2*CacheBytes(s, elem, pages)
				pages = CachePages(s, elem, u.Sequences, 0, free)
				left = free - CacheBytes(s, elem, pages)
			}
		}
		f.CacheTokens, f.Together = pages*PageTokens, min(u.Sequences, pages/Pages(u.Longest))
	}
	if u.Trainer && Fast(s, elem) {
		m, _ := Worst(s, max(u.Micro, u.Longest), u.Longest, u.Record)
		one := Sum(SlotParts(s, m.Rows, m.Stats, false))
		// Of what the engine leaves free, the check of a version is counted already.
		room := one + left - max(0, Spare+WeightBytes(s, elem)-Sum(Least(u).side(CheckSide)))
		f.Layers, f.Rich = Slots(s, m.Rows, m.Stats, s.Layers, max(room, one))
		taken := f.Layers * Sum(SlotParts(s, m.Rows, m.Stats, f.Rich))
		left -= max(0, taken-one)
	}
	f.Free = left
	return f
}

func (n Need) side(name string) []Part {
	for _, s := range n.Sides {
		if s.Name == name {
			return s.Parts
		}
	}
	return nil
}

// Fits says whether a use fits in memory bytes.
func Fits(u Use, memory int) bool { return Least(u).Bytes() <= memory }

// LongestThatFits is the longest trajectory with which a use fits: what it asks for, or a multiple of 128; the budget of a micro-batch shrinks with it to the same number where
// it is larger. 0: none does.
func LongestThatFits(u Use, memory int) int {
	if Fits(u, memory) {
		return u.Longest
	}
	n := sort.Search(u.Longest/128, func(i int) bool {
		v := u
		v.Longest = 128 * (i + 1)
		v.Micro = min(u.Micro, v.Longest)
		v.CacheTokens = min(u.CacheTokens, Pages(v.Longest)*PageTokens)
		return !Fits(v, memory)
	})
	return 128 * n
}

// MicroThatFits is the largest budget of a micro-batch with which a use fits: what it asks for, or the longest trajectory and a multiple of 256; 0 where even
// that trajectory alone does not fit.
func MicroThatFits(u Use, memory int) int {
	v := u
	if Fits(u, memory) {
		return u.Micro
	}
	v.Micro = u.Longest
	if !Fits(v, memory) {
		return 0
	}
	n := sort.Search(max(0, u.Micro-u.Longest)/256, func(i int) bool {
		v.Micro = u.Longest + 256*(i+1)
		return !Fits(v, memory)
	})
	return u.Longest + 256*n
}

// SequencesThatFit is the largest number of sequences at once with which a use fits; 0: not even one.
func SequencesThatFit(u Use, memory int) int {
	return sort.Search(u.Sequences, func(i int) bool {
		v := u
		v.Sequences = i + 1
		return !Fits(v, memory)
	})
}
