package ledger_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// lengthsOf makes a ledger whose step 1 trains groups of the lengths in trained, and drops those in stale; 0 is unknown.
func lengthsOf(trained, stale []int) ledger.Lengths {
	r := record.Ledger{Step: 1}
	n := 0
	submit := func() int {
		r.Submitted = append(r.Submitted, record.Submitted{N: n, Problem: n, Tag: 1})
		n++
		return n - 1
	}
	for _, k := range trained {
		r.Trained = append(r.Trained, submit())
		r.TrainedTokens = append(r.TrainedTokens, k)
	}
	for _, k := range stale {
		g := submit()
		r.Dropped = append(r.Dropped, record.Drop{N: g, Reason: ledger.Stale, Tag: 1, Tokens: k, Finished: k > 0})
		r.Cursor.Returned = append(r.Cursor.Returned, record.Returned{Problem: g, Submission: 1})
	}
	r.NextGroup = n
	return ledger.Fold(ledger.Start{}, []record.Ledger{r}, nil).Lengths()
}

func TestLengths_showsWhomTheThresholdHits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trained, stale []int
		says           []string
		silent         bool
	}{
		"nothing is stale":     {trained: []int{10, 20, 30, 40}, silent: true},
		"the long ones":        {[]int{10, 20, 30, 40, 50, 60}, []int{70, 80}, []string{"2.14 times", "shortest quarter of finished groups 0 of 2 (0 %)", "longest 2 of 2 (100 %)"}, false},
		"the short ones":       {[]int{30, 40, 50, 60, 70, 80}, []int{10, 20}, []string{"0.27 times", "2 of 2 (100 %)", "longest 0 of 2"}, false},
		"cancelled ones":       {[]int{10, 20, 30, 40}, []int{0, 0}, []string{"2 more were cancelled"}, false},
		"too few for quarters": {[]int{10}, []int{40}, []string{"4.00 times"}, false},
		"older records":        {[]int{0, 0, 0, 0}, []int{7}, nil, true},
	} {
		x := lengthsOf(c.trained, c.stale)
		if c.silent != (x.Bias() == "") {
			t.Errorf("%s: says %q", name, x.Bias())
		}
		for _, want := range c.says {
			if !strings.Contains(x.Bias(), want) {
				t.Errorf("%s: says %q, want %q in it", name, x.Bias(), want)
			}
		}
	}
}

// The parts add up, whatever the lengths are.
func TestLengths_partsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(0, 50)
		trained, stale := rapid.SliceOfN(length, 1, 40).Draw(t, "trained"), rapid.SliceOfN(length, 0, 40).Draw(t, "stale")
		x := lengthsOf(trained, stale)
		known := 0
		for _, f := range x.Fates {
			in := trained
			if f.Fate == ledger.Stale {
				in = stale
			}
			var k []int
			for _, n := range in {
				if n > 0 {
					k = append(k, n)
				}
			}
			known += len(k)
			if f.Groups != len(k) || f.Unknown != len(in)-len(k) {
				t.Fatalf("%+v of %v", f, in)
			}
			if len(k) == 0 {
				if !math.IsNaN(f.Mean) || f.Longest != 0 {
					t.Fatalf("%+v without a group", f)
				}
				continue
			}
			below := 0
			for _, n := range k {
				if n <= f.Median {
					below++
				}
			}
			if f.Longest != slices.Max(k) || f.Median > f.P90 || f.P90 > f.Longest || 2*below < len(k) {
				t.Fatalf("%+v of %v", f, k)
			}
		}
		groups, old, last := 0, 0, 0
		for _, q := range x.Quarters {
			if q.From < last || q.To < q.From {
				t.Fatalf("quarters are not ordered: %+v", x.Quarters)
			}
			last = q.To
			groups += q.Groups
			old += q.Stale
		}
		staleKnown := len(stale) - x.StaleUnknown
		if len(x.Quarters) > 0 && (groups != known || old != staleKnown) || len(x.Quarters) == 0 && known >= 4 {
			t.Fatalf("%+v: %d groups in quarters, %d known; %d stale, %d known", x.Quarters, groups, known, old, staleKnown)
		}
	})
}
