package record_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/record/recordtest"
)

const trailSteps = 4

// trailed is a lineage of trailSteps steps; seed decides about its numbers.
func trailed(t *testing.T, seed int) (artifact.Store, record.Layout) {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := record.Layout{Run: "r", Lineage: "l0"}
	for step := 1; step <= trailSteps; step++ {
		reward, loss := float64(seed)/8, float64(step)/16
		recordtest.PutStep(t, s, l, record.Sealed{Step: step, Rollout: record.BatchMetrics{RewardMean: &reward}},
			record.Result{StateDigest: fmt.Sprint(seed, step), Metrics: record.UpdateMetrics{Loss: &loss}})
	}
	return s, l
}

// follow reads the steps as readers do.
func follow(t *testing.T, s artifact.Store, l record.Layout) error {
	t.Helper()
	var trail record.Trail
	for step := 1; step <= trailSteps; step++ {
		var b record.Sealed
		ref, err := artifact.GetJSON(t.Context(), s, l.Batch(step), &b)
		if err == nil {
			trail.Batch(step, ref)
		} else if !fault.Is(err, fault.NotFound) {
			return err
		}
		var r record.Result
		ref, seal, err := artifact.GetSealed(t.Context(), s, l.Result(step), &r)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := trail.Result(ref.Name, step, r, seal); err != nil {
			return err
		}
	}
	return nil
}

// rewrite changes a record, also its seal, as somebody would who knows of it; sealed false leaves it without one.
func rewrite[T any](t *testing.T, s artifact.Store, name string, sealed bool, change func(*T)) {
	t.Helper()
	var v T
	if _, err := artifact.GetJSON(t.Context(), s, name, &v); err != nil {
		t.Fatal(err)
	}
	change(&v)
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if text = append(text, '\n'); sealed {
		text = artifact.Seal(text)
	}
	if _, err := s.Replace(t.Context(), name, text); err != nil {
		t.Fatal(err)
	}
}

// Every way to change, exchange or take away the records of any step is found, also when the seals are made anew. What cannot be found is named.
func TestTrail_noRecordIsExchangedAlone(t *testing.T) {
	t.Parallel()
	loss := func(r *record.Result) { x := 99.0; r.Metrics.Loss = &x }
	for what, tt := range map[string]struct {
		change func(s artifact.Store, l record.Layout, step int)
		// hidden says of which steps a change cannot be found.
		hidden func(step int) bool
	}{
		"nothing": {func(artifact.Store, record.Layout, int) {}, func(int) bool { return true }},
		"a result sealed anew": {func(s artifact.Store, l record.Layout, step int) {
			rewrite(t, s, l.Result(step), true, loss)
		}, func(step int) bool { return step == trailSteps }}, // nothing follows it yet
		"a result without its seal": {func(s artifact.Store, l record.Layout, step int) {
			rewrite(t, s, l.Result(step), false, loss)
		}, func(step int) bool { return step == trailSteps }},
		"a result taken away": {func(s artifact.Store, l record.Layout, step int) {
			if err := s.Remove(t.Context(), l.Result(step)); err != nil {
				t.Fatal(err)
			}
		}, func(step int) bool { return step == trailSteps }},
		"a result of another run": {func(s artifact.Store, l record.Layout, step int) {
			other, _ := trailed(t, 2)
			data, _, err := other.Get(t.Context(), l.Result(step))
			if err == nil {
				_, err = s.Replace(t.Context(), l.Result(step), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, func(int) bool { return false }},
		"a result of another step": {func(s artifact.Store, l record.Layout, step int) {
			data, _, err := s.Get(t.Context(), l.Result(step%trailSteps+1))
			if err == nil {
				_, err = s.Replace(t.Context(), l.Result(step), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, func(int) bool { return false }},
		"a batch sealed anew": {func(s artifact.Store, l record.Layout, step int) {
			rewrite(t, s, l.Batch(step), true, func(b *record.Sealed) { x := 1.0; b.Rollout.RewardMean = &x })
		}, func(int) bool { return false }},
		"a batch without its seal": {func(s artifact.Store, l record.Layout, step int) {
			rewrite(t, s, l.Batch(step), false, func(*record.Sealed) {})
		}, func(int) bool { return false }},
		"a batch taken away": {func(s artifact.Store, l record.Layout, step int) {
			if err := s.Remove(t.Context(), l.Batch(step)); err != nil {
				t.Fatal(err)
			}
		}, func(int) bool { return true }}, // its numbers are absent, none is wrong
	} {
		for step := 1; step <= trailSteps; step++ {
			s, l := trailed(t, 1)
			tt.change(s, l, step)
			err := follow(t, s, l)
			if tt.hidden(step) {
				if err != nil {
					t.Errorf("%s, step %d: %v, want nothing", what, step, err)
				}
				continue
			}
			if !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "step ") || !strings.Contains(err.Error(), l.Root()+"results/") {
				t.Errorf("%s, step %d: %v, want Corrupt with step, file and hint", what, step, err)
			}
		}
	}
}

// A run that an older build began, or made all of, is read as before.
func TestTrail_readsWhatOlderBuildsWrote(t *testing.T) {
	t.Parallel()
	for old := range trailSteps + 1 { // so many steps without seals
		s, l := trailed(t, 1)
		for step := 1; step <= trailSteps; step++ {
			var seal string
			if step > old+1 {
				_, before, err := artifact.GetSealed(t.Context(), s, l.Result(step-1), nil)
				if err != nil {
					t.Fatal(err)
				}
				seal = before
			}
			rewrite(t, s, l.Result(step), step > old, func(r *record.Result) { r.Previous = seal })
		}
		if err := follow(t, s, l); err != nil {
			t.Errorf("%d steps of an older build: %v", old, err)
		}
	}
}

// A reader that goes on hears of a result that is gone or was exchanged at the step itself or the one after it, and of no other; of one that it could
// not read, and said so, it hears nothing more.
func TestTrail_blamesNoOtherStep(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"gone", "unreadable", "of another run"} {
		for at := 1; at <= trailSteps; at++ {
			s, l := trailed(t, 1)
			switch change {
			case "gone":
				if err := s.Remove(t.Context(), l.Result(at)); err != nil {
					t.Fatal(err)
				}
			case "unreadable":
				if _, err := s.Replace(t.Context(), l.Result(at), []byte("{")); err != nil {
					t.Fatal(err)
				}
			default:
				other, _ := trailed(t, 2)
				data, _, err := other.Get(t.Context(), l.Result(at))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Replace(t.Context(), l.Result(at), data); err != nil {
					t.Fatal(err)
				}
			}
			var trail record.Trail
			for step := 1; step <= trailSteps; step++ {
				var b record.Sealed
				ref, err := artifact.GetJSON(t.Context(), s, l.Batch(step), &b)
				if err != nil {
					t.Fatal(err)
				}
				trail.Batch(step, ref)
				var r record.Result
				ref, seal, err := artifact.GetSealed(t.Context(), s, l.Result(step), &r)
				if fault.Is(err, fault.NotFound) {
					continue
				}
				if fault.Is(err, fault.Corrupt) && change == "unreadable" && step == at {
					trail.Unreadable(step)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				err = trail.Result(ref.Name, step, r, seal)
				wrong := change != "unreadable" && step == at+1 || step == at && change != "gone"
				if wrong != fault.Is(err, fault.Corrupt) {
					t.Errorf("the result of step %d is %s; step %d: %v", at, change, step, err)
				}
			}
		}
	}
}
