package contract_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/contract"
)

// row is as long in JSON as a row can be in practice.
func row(version int, acc float64) contract.DevRow {
	return contract.DevRow{
		Name: "1000000", Version: version, Problems: 100000, Solved: 99999, Acc: acc,
		PassRate: 0.12345678901234567, FormatOK: 0.12345678901234567, ToolUsed: 99999, CutShare: 0.12345678901234567,
	}
}

// Whatever the order and number of rows, the selection is bounded, ordered, spread, and has the rows that people ask for.
func TestMergeDev_keepsFirstBestAndNewest(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{4, contract.LoopDevRows, contract.MaxDevRows} {
		for _, n := range []int{0, 1, most, most + 1, 5 * most, 2000} {
			var table, all []contract.DevRow
			for v := range n {
				d := row(10*v, float64(r.IntN(50))/100)
				all = append(all, d)
				before := slices.Clone(table)
				next := contract.MergeDev(table, []contract.DevRow{d, d}, most)
				if !slices.Equal(table, before) {
					t.Fatal("the table that was given is changed")
				}
				if again := contract.MergeDev(next, []contract.DevRow{d}, most); !slices.Equal(again, next) {
					t.Fatalf("a row that comes again changes %v to %v", next, again)
				}
				table = next
			}
			if n <= most {
				if diff := cmp.Diff(all, table); diff != "" {
					t.Errorf("%d of at most %d rows: %s", n, most, diff)
				}
				continue
			}
			newest := max(most/4, 1)
			if len(table) != most || table[0] != all[0] || !slices.Equal(table[most-newest:], all[n-newest:]) {
				t.Errorf("%d rows of %d: %d kept, first %v, newest %v", most, n, len(table), table[0], table[most-newest:])
			}
			if b := all[contract.BestDev(all)]; !slices.Contains(table, b) {
				t.Errorf("%d rows of %d: the best, of version %d, is gone", most, n, b.Version)
			}
			// Between the first and the newest rows the widest gap is at most a few times the mean one.
			wide, mean := 0, 10*n/most
			for i := 1; i < len(table); i++ {
				if table[i].Version <= table[i-1].Version {
					t.Fatalf("not ordered: %v", table)
				}
				wide = max(wide, table[i].Version-table[i-1].Version)
			}
			if most > 4 && wide > 6*mean {
				t.Errorf("%d rows of %d: a gap of %d versions, the mean is %d", most, n, wide, mean)
			}
		}
	}
}

func TestMergeDev_whatIsThereIsReplacedAndWhatWasLeftOutStaysOut(t *testing.T) {
	t.Parallel()
	table := []contract.DevRow{row(0, 0.1), row(20, 0.3)}
	changed := row(20, 0.9)
	got := contract.MergeDev(table, []contract.DevRow{row(10, 0.5), changed, row(30, 0.2)}, contract.MaxDevRows)
	if want := []contract.DevRow{table[0], changed, row(30, 0.2)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBestDev_isTheEarliestOfEquals(t *testing.T) {
	t.Parallel()
	if i := contract.BestDev(nil); i != -1 {
		t.Errorf("of none: %d", i)
	}
	if i := contract.BestDev([]contract.DevRow{row(0, 0.1), row(1, 0.3), row(2, 0.3), row(3, 0.2)}); i != 1 {
		t.Errorf("%d, want 1", i)
	}
}

// The largest progress that there can be fits a message: everything that has no bound of its own is bounded by its sender.
func TestMaxMessage_holdsTheFullestProgress(t *testing.T) {
	t.Parallel()
	x := 0.12345678901234567
	prefill := 999
	p := contract.Progress{
		Phase: "publishing the initial policy", Lineage: "l100", Step: 1e6, Steps: 1e6, Paused: true, Trainer: strings.Repeat("h", 64),
		Open: 1000, Done: 1000, Drops: 1e6, Trained: 1e7,
		Last: contract.LastStep{
			RewardMean: &x, ZeroSpread: &x, LagMean: &x, GradNorm: &x, Correction: &x, Entropy: &x, Seconds: &x,
			Weights: strings.Repeat("a", 72), State: strings.Repeat("a", 72),
		},
		Dataset: strings.Repeat("d", 80), Settings: contract.Settings{Threshold: 1000, Prefill: &prefill}, Alarm: strings.Repeat("a", 400),
	}
	for i := range contract.MaxDevRows {
		p.Dev = append(p.Dev, row(1e6+i, x))
	}
	for range 8 { // see loop.progress; a line names a group, what its activity said and why it failed before
		p.Stalled = append(p.Stalled, strings.Repeat("s", 500))
	}
	for i := range contract.MaxRates {
		p.Settings.Rates = append(p.Settings.Rates, contract.Rate{From: 1e6 + i, LearningRate: 1.2345678901234567e-7})
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > contract.MaxMessage {
		t.Errorf("%d bytes, a message may have %d", len(data), contract.MaxMessage)
	}
}
