package audit_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/audit"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
)

// made is a run of two lineages: three steps, then one from step 2 on.
func made(t *testing.T) *artifact.Files {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) artifact.Ref {
		ref, err := s.Put(t.Context(), name, data)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	doc := func(name string, v any) artifact.Ref {
		ref, err := artifact.PutJSON(t.Context(), s, name, v)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	for n, steps := range [][]int{{1, 2, 3}, {3}} {
		l := record.Layout{Run: "r", Lineage: record.LineageName(n)}
		config := put(l.ConfigFile(), []byte(`{"mode":"sync"}`))
		r := record.Run{Run: "r", Lineage: l.Lineage, Started: "2026-03-01T09:00:00Z", ConfigDigest: config.Digest}
		groups := 0
		if n > 0 {
			r.Opened, r.Parent, r.Start = "u", &record.Parent{Run: "r", Lineage: "l0", Step: 2}, &record.Start{Cursor: record.Cursor{Next: 2}, NextGroup: 2}
			groups = 2
		}
		doc(l.LineageFile(), r)
		doc(l.BaseInfo(), record.Base{Files: []artifact.Ref{put(l.Base()+"/config.json", []byte("{}"))}})
		doc(l.Event("20260301T090000.000-x"), record.Event{Kind: "Lost", Step: 1})
		doc(l.Validation("000002"), record.Validation{Name: "000002", Version: 2, Problems: 4, Metrics: record.DevMetrics{Solved: 1, Acc: 0.25}})
		for _, step := range steps {
			unit := record.GroupUnit(groups, step, step-1, 0)
			g := record.Group{N: groups, Problem: step - 1, Tag: step, File: put(l.Trajectories(unit), fmt.Append(nil, "rows ", n, step))}
			g.Verdicts = doc(l.Verdicts(unit), map[string]any{"unit": unit, "reward": 0.5})
			loss, reward := float64(step)/8, 0.5
			recordtest.PutStep(t, s, l, record.Sealed{Step: step, Groups: []record.Group{g}, Rollout: record.BatchMetrics{RewardMean: &reward}},
				record.Result{StateDigest: fmt.Sprint("s", step), Metrics: record.UpdateMetrics{Loss: &loss}})
			doc(l.Ledger(step), record.Ledger{
				Step: step, Submitted: []record.Submitted{{N: groups, Problem: step - 1, Tag: step}}, Trained: []int{groups}, TrainedTokens: []int{3},
				NextGroup: groups + 1, Cursor: record.Cursor{Next: step},
			})
			groups++
		}
		doc(l.LedgerEnd(), record.Ledger{NextGroup: groups, Cursor: record.Cursor{Next: steps[len(steps)-1]}})
	}
	return s
}

func look(t *testing.T, s artifact.Store) audit.Result {
	t.Helper()
	res, err := audit.Run(t.Context(), s, "r")
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRun_readsEverythingOfAWholeRun(t *testing.T) {
	t.Parallel()
	res := look(t, made(t))
	if len(res.Findings) > 0 || len(res.Lineages) != 2 || res.Steps != 4 || res.Unsealed != 0 || res.Bytes == 0 {
		t.Errorf("%+v, want no finding in two lineages of four steps", res)
	}
	// Of each lineage run.json, base.json, an event, a validation and the ledger's end; of each step batch, result, ledger and verdicts.
	if res.Records != 2*5+4*4 || res.Files != 2+4*2 {
		t.Errorf("%d records and %d files were read", res.Records, res.Files)
	}
	if _, err := audit.Run(t.Context(), made(t), "q"); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such run: %v", err)
	}
}

// Whatever file of a run gets another byte, or is gone, is found and named, and it alone.
func TestRun_findsEveryChange(t *testing.T) {
	t.Parallel()
	s := made(t)
	names, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 30 {
		t.Fatalf("only %d files", len(names))
	}
	for _, name := range names {
		data, _, err := s.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		changed := append([]byte(nil), data...)
		changed[len(changed)/2] ^= 1
		if _, err := s.Replace(t.Context(), name, changed); err != nil {
			t.Fatal(err)
		}
		res := look(t, s)
		lineage := "l0"
		if strings.Contains(name, "/l1/") {
			lineage = "l1"
		}
		if len(res.Findings) == 0 || !strings.Contains(fmt.Sprint(res.Findings), name) || res.Findings[0].Hint == "" && !strings.Contains(name, "/groups/") && !strings.Contains(name, "/base/") {
			t.Errorf("%s has another byte: %+v, want it named with a hint", name, res.Findings)
		}
		for _, f := range res.Findings {
			if f.Lineage != lineage {
				t.Errorf("%s has another byte: a finding in lineage %s: %s", name, f.Lineage, f.What)
			}
		}
		if err := s.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		// Nothing names events and validations, nor the newest result, the end of the books, and what older builds did not write.
		base := path.Base(path.Dir(name))
		free := base == "events" || base == "validation" || strings.HasSuffix(name, "/ledger/end.json") || strings.HasSuffix(name, "/base.json") ||
			strings.HasSuffix(name, "results/000003.json") || base == "batches"
		if name == "runs/r/run.json" || name == "runs/r/l1/run.json" {
			free = true // there is no such run, or lineage
		} else if res := look(t, s); free != (len(res.Findings) == 0) {
			t.Errorf("%s is gone: %+v", name, res.Findings)
		}
		if _, err := s.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	if res := look(t, s); len(res.Findings) > 0 {
		t.Errorf("as it was again: %+v", res.Findings)
	}
}

// A damaged result is one finding, not also that the next one follows nothing.
func TestRun_aDamagedResultIsOneFinding(t *testing.T) {
	t.Parallel()
	s := made(t)
	l := record.Layout{Run: "r", Lineage: "l0"}
	if !recordtest.ChangeNumber(t, s, l.Result(2)) {
		t.Fatal("the result has no number")
	}
	if res := look(t, s); len(res.Findings) != 1 || !strings.Contains(res.Findings[0].What, l.Result(2)) || !strings.Contains(res.Findings[0].What, "step 2") {
		t.Errorf("%+v, want the result of step 2", res.Findings)
	}
}

func TestRun_countsWhatHasNoSeal(t *testing.T) {
	t.Parallel()
	s := made(t)
	if _, err := s.Put(t.Context(), record.Layout{Run: "r", Lineage: "l0"}.Validation("000000"), []byte(`{"name":"000000"}`)); err != nil {
		t.Fatal(err)
	}
	if res := look(t, s); len(res.Findings) > 0 || res.Unsealed != 1 {
		t.Errorf("%+v, want one record without a seal and no finding", res)
	}
}

// away is a store that fails after so many reads.
type away struct {
	artifact.Store
	left int
}

func (a *away) Get(ctx context.Context, name string) ([]byte, artifact.Ref, error) {
	if a.left--; a.left < 0 {
		return nil, artifact.Ref{}, fault.New(fault.Busy, "away", "the store is away")
	}
	return a.Store.Get(ctx, name)
}

// A store that cannot be read is no finding: nothing was found out.
func TestRun_aStoreThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	s := made(t)
	all := &away{s, 1 << 30}
	if res := look(t, all); len(res.Findings) > 0 {
		t.Fatal(res.Findings)
	}
	for reads := range 1<<30 - all.left {
		if res, err := audit.Run(t.Context(), &away{s, reads}, "r"); !fault.Is(err, fault.Busy) || len(res.Findings) > 0 {
			t.Errorf("after %d reads: %v, %+v; want Busy and no finding", reads, err, res.Findings)
		}
	}
}
