package ledger

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Length sums up the sampled tokens of the groups with one fate. Groups without a known number are not in the numbers: a group that
// was cancelled while it ran, one that a service failed, or a trained one in records of older builds.
type Length struct {
	Fate    string // "trained", or the reason of the drop
	Groups  int    // with a known number of tokens
	Unknown int
	Mean    float64 // NaN without groups
	// Median, P90 and Longest are tokens of whole groups, by nearest rank; 0 without groups.
	Median, P90, Longest int
}

// Quarter is a quarter of the groups that were finished and then trained or dropped as stale, by length.
type Quarter struct {
	From, To int // sampled tokens of its shortest and longest group
	Groups   int
	Stale    int // of these
}

// Lengths shows whether the threshold is harder on long answers than on short ones.
type Lengths struct {
	Fates    []Length  // trained first, then the reasons by name
	Quarters []Quarter // shortest first; empty with fewer than four groups
	// StaleUnknown are groups dropped as stale whose length nobody knows: they were cancelled while they ran, so they are rather long ones.
	StaleUnknown int
}

// Lengths compares the groups that were trained and those that were dropped.
func (l Ledger) Lengths() Lengths {
	tokens := map[string][]int{}
	unknown := map[string]int{}
	type finished struct {
		tokens int
		stale  bool
	}
	var both []finished
	names := []string{}
	for _, g := range l.Groups {
		name := g.Reason
		switch g.Fate {
		case Trained:
			name = string(Trained)
		case Dropped:
		default:
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if g.Tokens == 0 {
			unknown[name]++
			continue
		}
		tokens[name] = append(tokens[name], g.Tokens)
		if g.Fate == Trained || g.Reason == Stale {
			both = append(both, finished{g.Tokens, g.Fate == Dropped})
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if (a == string(Trained)) != (b == string(Trained)) {
			return map[bool]int{true: -1, false: 1}[a == string(Trained)]
		}
		return strings.Compare(a, b)
	})
	out := Lengths{StaleUnknown: unknown[Stale]}
	for _, name := range names {
		out.Fates = append(out.Fates, newLength(name, tokens[name], unknown[name]))
	}
	slices.SortStableFunc(both, func(a, b finished) int { return a.tokens - b.tokens })
	if len(both) < 4 {
		return out
	}
	for q := range 4 {
		part := both[q*len(both)/4 : (q+1)*len(both)/4]
		x := Quarter{From: part[0].tokens, To: part[len(part)-1].tokens, Groups: len(part)}
		for _, g := range part {
			if g.stale {
				x.Stale++
			}
		}
		out.Quarters = append(out.Quarters, x)
	}
	return out
}

func newLength(fate string, tokens []int, unknown int) Length {
	x := Length{Fate: fate, Groups: len(tokens), Unknown: unknown, Mean: math.NaN()}
	if len(tokens) == 0 {
		return x
	}
	sorted := slices.Sorted(slices.Values(tokens))
	sum := 0.0
	for _, n := range sorted {
		sum += float64(n)
	}
	rank := func(share float64) int { return sorted[max(int(math.Ceil(share*float64(len(sorted))))-1, 0)] }
	x.Mean, x.Median, x.P90, x.Longest = sum/float64(len(sorted)), rank(0.5), rank(0.9), sorted[len(sorted)-1]
	return x
}

// Bias says in one sentence how the drops for age fall on short and long groups; empty if none was dropped for age.
func (x Lengths) Bias() string {
	var trained, stale *Length
	for i := range x.Fates {
		switch x.Fates[i].Fate {
		case string(Trained):
			trained = &x.Fates[i]
		case Stale:
			stale = &x.Fates[i]
		}
	}
	if stale == nil {
		return ""
	}
	var parts []string
	if trained != nil && trained.Groups > 0 && stale.Groups > 0 {
		parts = append(parts, fmt.Sprintf("Groups dropped as stale have %.2f times the tokens of trained ones", stale.Mean/trained.Mean))
	}
	if n := len(x.Quarters); n > 0 {
		share := func(q Quarter) string {
			return fmt.Sprintf("%d of %d (%.0f %%)", q.Stale, q.Groups, 100*float64(q.Stale)/float64(q.Groups))
		}
		parts = append(parts, fmt.Sprintf("of the shortest quarter of finished groups %s were too old, of the longest %s", share(x.Quarters[0]), share(x.Quarters[n-1])))
	}
	if x.StaleUnknown > 0 {
		parts = append(parts, fmt.Sprintf("%d more were cancelled as stale while they ran, with unknown length", x.StaleUnknown))
	}
	if len(parts) == 0 {
		return ""
	}
	text := strings.Join(parts, "; ") + "."
	return strings.ToUpper(text[:1]) + text[1:]
}
