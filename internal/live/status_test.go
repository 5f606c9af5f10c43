package live

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// lookAt reads the status of the fixture's run.
func lookAt(t *testing.T, f *fixture) *Status {
	t.Helper()
	s, err := Look(t.Context(), NewCache(f.store()), f.l.Run, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A run goes through its states as its files appear.
func TestLook_statesFollowTheFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	want := func(state State, ended bool) *Status {
		t.Helper()
		s := lookAt(t, f)
		if s.State != state || s.Ended() != ended || !s.Balanced {
			t.Fatalf("state %q, ended %v, balanced %v, want %q and %v", s.State, s.Ended(), s.Balanced, state, ended)
		}
		return s
	}
	want(Absent, false)
	f.json(f.l.RunFile(), record.Run{Run: "alpha", Lineage: "l0"})
	want(Preparing, false)
	f.start(2)
	if s := want(Training, false); s.Step != 0 || s.Steps != 2 || s.StepSeconds != nil || s.LeftSeconds != nil {
		t.Errorf("before a step: %+v", s)
	}
	f.step(1)
	f.step(2)
	s := want(Training, false)
	if s.Step != 2 || s.StepSeconds == nil || *s.StepSeconds != 90 || s.LeftSeconds != nil || s.Dropped != 1 || s.Open != 1 || s.Trained != 6 {
		t.Errorf("after the steps: %+v", s)
	}
	f.json(f.l.LedgerEnd(), record.Ledger{
		Dropped: []record.Drop{{N: 1, Reason: "run_ended", Tag: 1}}, NextGroup: 8, Cursor: record.Cursor{Returned: []record.Returned{{Problem: 900, Submission: 1}}},
	})
	want(Finishing, false)
	f.put(f.l.Report(), []byte("<html>"))
	want(Stopped, true)
	f.event(9, "Internal", "TrainRun", "the engine "+hostile, 2)
	if s := want(Failed, true); !strings.Contains(s.Why, "the engine") || s.Failures != 1 {
		t.Errorf("failed: %+v", s)
	}
	f.json(f.l.Export()+"/certificate.json", map[string]any{})
	want(Done, true)
}

func TestLook_saysWhatIsKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.whole(3)
	s := lookAt(t, f)
	if *s.StepSeconds != 90 || *s.LeftSeconds != 7*90 || *s.TrainRate != 9000 || *s.RolloutRate != 5200 || *s.LagMax != 2 || s.Failures != 2 || s.Recoveries != 1 {
		t.Errorf("%+v", s)
	}
	if got := s.DevText(); got != "62.50 % at step 3 (5 of 8), 25.00 % at step 0" {
		t.Errorf("dev %q", got)
	}
	if len(s.Drops) != 1 || s.Drops[0] != (Drops{"stale", 1}) || s.LastEvent.Kind != "reacquired" || strings.Join(s.Workers, " ") != "host-a" {
		t.Errorf("%+v %+v %v", s.Drops, s.LastEvent, s.Workers)
	}
	data, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(data), `"left_seconds":630`) || strings.Contains(string(data), "reward_std") {
		t.Errorf("%s %v", data, err)
	}
}

// A rollback opens a lineage; without a name the newest is shown, by name each.
func TestLook_knowsLineages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.whole(3)
	g := *f
	g.l.Lineage = "l1"
	f.json(g.l.LineageFile(), record.Run{
		Run: "alpha", Lineage: "l1", Parent: &record.Parent{Run: "alpha", Lineage: "l0", Step: 1}, Opened: "rolled back", Start: &record.Start{NextGroup: 5},
	})
	f.json(g.l.ConfigFile(), map[string]any{"run": map[string]any{"steps": 4}})
	f.json(g.l.WeightsInfo(1), record.Version{Version: 1})
	c := NewCache(f.store())
	for lineage, step := range map[string]int{"": 1, "l0": 3, "l1": 1} {
		s, err := Look(t.Context(), c, "alpha", lineage)
		if err != nil || s.Step != step {
			t.Errorf("lineage %q: %+v %v", lineage, s, err)
		}
	}
	if _, err := Look(t.Context(), c, "alpha", "l2"); !fault.Is(err, fault.NotFound) {
		t.Errorf("lineage l2: %v", err)
	}
	if _, err := Look(t.Context(), c, "../alpha", ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("a name with a slash: %v", err)
	}
	s := f.serve()
	want(t, s, "/", "1 of 4")
	want(t, s, "/runs/alpha/", "l0, l1 (after step 1 of l0)")
	want(t, s, "/runs/alpha/?lineage=l0", "3 of 10")
}

// The same records give the same stamp; each new one gives another.
func TestLook_stampChangesWithEveryRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, t.TempDir(), "alpha")
	f.start(5)
	c := NewCache(f.store())
	seen := map[string]string{}
	stamp := func(after string) {
		t.Helper()
		a, err := look(t.Context(), c, f.l)
		if err != nil {
			t.Fatal(err)
		}
		b, err := look(t.Context(), c, f.l)
		if err != nil || a.stamp != b.stamp {
			t.Errorf("after %s: two stamps, %v", after, err)
		}
		if before, ok := seen[a.stamp]; ok {
			t.Errorf("the stamp after %s is that after %s", after, before)
		}
		seen[a.stamp] = after
	}
	stamp("the start")
	for _, x := range []struct {
		name string
		v    any
	}{
		{f.l.Batch(1), 1},
		{f.l.Result(1), 1},
		{f.l.Ledger(1), 1},
		{f.l.Validation("000001"), 1},
		{f.l.Event("1"), 1},
		{f.l.WeightsInfo(1), 1},
		{f.l.LedgerEnd(), 1},
		{f.l.Export() + "/certificate.json", 1},
		{f.l.Worker("host-b"), 1},
		{f.l.Worker("host-b"), "another"},
		{f.l.Live(), 1},
		{f.l.Live(), "another"},
		{f.l.Dataset(), 1},
		{"runs/alpha/l1/run.json", 1},
	} {
		f.json(x.name, x.v)
		stamp(x.name)
	}
	if n := c.Opened(); n != 0 {
		t.Errorf("%d files were opened", n)
	}
}
