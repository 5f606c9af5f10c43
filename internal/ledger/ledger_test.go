package ledger_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// story is a run of two steps with one group a step: group 0 is too old for step 2, its problem comes back
// as group 2, and group 3 is left over.
func story() ([]record.Ledger, record.Ledger) {
	sub := func(n, problem, tag, submission int) record.Submitted {
		return record.Submitted{N: n, Problem: problem, Tag: tag, Submission: submission}
	}
	steps := []record.Ledger{
		{Step: 1, Submitted: []record.Submitted{sub(0, 7, 1, 0), sub(1, 8, 1, 0)}, Trained: []int{1}, Cursor: record.Cursor{Next: 2}, NextGroup: 2},
		{
			Step: 2, Submitted: []record.Submitted{sub(2, 7, 2, 1), sub(3, 9, 2, 0)}, Trained: []int{2},
			Dropped: []record.Drop{{N: 0, Reason: ledger.Stale, Tag: 1, Tokens: 40, Finished: true}}, Cursor: record.Cursor{Next: 3}, NextGroup: 4,
		},
	}
	end := record.Ledger{Dropped: []record.Drop{{N: 3, Reason: ledger.RunEnded, Tag: 2}}, Cursor: record.Cursor{Next: 3}, NextGroup: 4}
	return steps, end
}

func files(t *testing.T) *artifact.Files {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s artifact.Store, name string, v any) {
	t.Helper()
	if _, err := artifact.PutJSON(t.Context(), s, name, v); err != nil {
		t.Fatal(err)
	}
}

func TestLoad_tellsTheFateOfEveryGroup(t *testing.T) {
	t.Parallel()
	s, l := files(t), record.Layout{Run: "r", Lineage: "l0"}
	steps, end := story()
	for _, r := range steps {
		put(t, s, l.Ledger(r.Step), r)
	}
	put(t, s, l.LedgerEnd(), end)
	got, err := ledger.Load(t.Context(), s, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Balance(); err != nil {
		t.Error(err)
	}
	want := ledger.Ledger{
		Records: 2, Last: 2, Ended: true, Cursor: record.Cursor{Next: 3},
		Groups: []ledger.Group{
			{N: 0, Problem: 7, Tag: 1, Submitted: 1, Fate: ledger.Dropped, Step: 2, Reason: ledger.Stale, Tokens: 40, Finished: true},
			{N: 1, Problem: 8, Tag: 1, Submitted: 1, Fate: ledger.Trained, Step: 1},
			{N: 2, Problem: 7, Tag: 2, Submission: 1, Submitted: 2, Fate: ledger.Trained, Step: 2},
			{N: 3, Problem: 9, Tag: 2, Submitted: 2, Fate: ledger.Dropped, Reason: ledger.RunEnded},
		},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(ledger.Ledger{})); d != "" {
		t.Errorf("ledger (-want +got):\n%s", d)
	}
	counts := ledger.Counts{
		Submitted: 4, Trained: 2, Dropped: 2, Resubmitted: 1, LostTokens: 40,
		Reasons: []ledger.Reason{{Reason: ledger.RunEnded, Groups: 1}, {Reason: ledger.Stale, Groups: 1, Finished: 1, Tokens: 40}},
	}
	if d := cmp.Diff(counts, got.Count()); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	if g, ok := got.Group(2); !ok || g.Problem != 7 {
		t.Errorf("Group(2) = %+v, %v", g, ok)
	}
	if g, ok := got.Group(4); ok {
		t.Errorf("Group(4) = %+v, want none", g)
	}
}

func TestLoad_emptyAndRunningLineages(t *testing.T) {
	t.Parallel()
	s, l := files(t), record.Layout{Run: "r", Lineage: "l0"}
	got, err := ledger.Load(t.Context(), s, l)
	if err != nil || got.Balance() != nil || len(got.Groups) != 0 || got.Ended {
		t.Fatalf("empty: %+v, %v", got, err)
	}
	steps, _ := story()
	put(t, s, l.Ledger(1), steps[0])
	got, err = ledger.Load(t.Context(), s, l)
	if err != nil || got.Balance() != nil {
		t.Fatalf("running: %v, %v", err, got.Balance())
	}
	if c := got.Count(); c.Open != 1 || c.Trained != 1 {
		t.Errorf("running: %+v, want one open and one trained", c)
	}
}

func TestLoad_startsWhereTheParentStood(t *testing.T) {
	t.Parallel()
	s := files(t)
	parent, l := record.Layout{Run: "old", Lineage: "l0"}, record.Layout{Run: "new", Lineage: "l0"}
	// Problem 4 was dropped in the parent and waits in its cursor; group 0 was dropped, group 1 trained.
	put(t, s, parent.Ledger(1), record.Ledger{
		Step: 1, NextGroup: 2, Cursor: record.Cursor{Next: 2, Returned: []record.Returned{{Problem: 4, Submission: 1}}},
	})
	put(t, s, l.RunFile(), record.Run{Run: "new", Lineage: "l0", Parent: &record.Parent{Run: "old", Lineage: "l0", Step: 1}})
	put(t, s, l.Ledger(2), record.Ledger{
		Step: 2, Submitted: []record.Submitted{{N: 2, Problem: 4, Tag: 2, Submission: 1}}, Trained: []int{2}, NextGroup: 3, Cursor: record.Cursor{Next: 2},
	})
	got, err := ledger.Load(t.Context(), s, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Balance(); err != nil {
		t.Error(err)
	}
	if got.Start.Step != 1 || got.Start.NextGroup != 2 || got.Last != 2 {
		t.Errorf("start %+v, last %d, want step 1, group 2, last 2", got.Start, got.Last)
	}
	if err := s.Remove(t.Context(), parent.Ledger(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Load(t.Context(), s, l); !fault.Is(err, fault.NotFound) {
		t.Errorf("without the parent's record: %v, want NotFound", err)
	}
}

func TestLoad_refusesARecordUnderAnotherName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ledger/000002.json", "ledger/1.json", "ledger/first.json"} {
		s, l := files(t), record.Layout{Run: "r", Lineage: "l0"}
		put(t, s, l.Root()+name, record.Ledger{Step: 1})
		if _, err := ledger.Load(t.Context(), s, l); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
}

// TestBalance_findsEveryMistake plants one mistake at a time in a story that balances.
func TestBalance_findsEveryMistake(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		plant func(steps []record.Ledger, end *record.Ledger)
		want  string
	}{
		{"submitted twice", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Submitted = append(s[1].Submitted, s[0].Submitted[1])
		}, "group 1 is submitted again"},
		{"number left out", func(s []record.Ledger, _ *record.Ledger) {
			s[0].Submitted = s[0].Submitted[:1]
		}, "next_group is 2, the submissions give 1"},
		{"trained twice", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Trained = append(s[1].Trained, 1)
		}, "group 1 is trained but was trained in step 1"},
		{"trained and dropped", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Dropped = append(s[1].Dropped, record.Drop{N: 1, Reason: ledger.RunEnded, Tag: 1})
		}, "group 1 is dropped but was trained in step 1"},
		{"trained after its drop", func(_ []record.Ledger, e *record.Ledger) {
			e.Trained = []int{0}
		}, "group 0 is trained but was dropped in step 2"},
		{"trained without submission", func(s []record.Ledger, _ *record.Ledger) {
			s[0].Trained = append(s[0].Trained, 3)
		}, "group 3 is trained but was never submitted"},
		{"dropped without submission", func(s []record.Ledger, _ *record.Ledger) {
			s[0].Dropped = []record.Drop{{N: 9, Reason: ledger.RunEnded}}
		}, "group 9 is dropped but was never submitted"},
		{"dropped with another tag", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Dropped[0].Tag = 2
		}, "group 0 is dropped with tag 2, submitted with 1"},
		{"unknown reason", func(_ []record.Ledger, e *record.Ledger) {
			e.Dropped[0].Reason = "boredom"
		}, `unknown reason "boredom"`},
		{"problem never returned", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Submitted[0].Problem = 10
			s[1].Submitted[0].Submission = 0
		}, "problem 7, submission 1: dropped and not sent out again 1 times, but 0 wait"},
		{"problem returned twice", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Cursor.Returned = []record.Returned{{Problem: 7, Submission: 1}}
		}, "problem 7, submission 1: dropped and not sent out again 0 times, but 1 wait"},
		{"submission without a drop", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Submitted[1].Submission = 1
		}, "problem 9, submission 1: dropped and not sent out again -1 times"},
		{"submission count skipped", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Submitted[0].Submission = 2
		}, "problem 7, submission 1"},
		{"left open at the end", func(_ []record.Ledger, e *record.Ledger) {
			e.Dropped = nil
		}, "group 3 has no fate at the end"},
		{"step missing", func(s []record.Ledger, _ *record.Ledger) {
			s[1].Step = 3
		}, "record of step 3 follows that of step 1"},
		{"tag of a later step", func(s []record.Ledger, _ *record.Ledger) {
			s[0].Submitted[1].Tag = 2
		}, "group 1 has the later tag 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			steps, end := story()
			tt.plant(steps, &end)
			err := ledger.Fold(ledger.Start{}, steps, &end).Balance()
			if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want Corrupt with %q", err, tt.want)
			}
			if fault.HintOf(err) == "" {
				t.Error("no hint")
			}
		})
	}
}
