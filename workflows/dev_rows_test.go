package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// devLoop plays a chain of loops that validates, and returns the state at the end of each run of the chain.
func devLoop(t *testing.T, w *world, in contract.LoopInput) (states []contract.LoopState, out contract.LoopOutput, err error) {
	t.Helper()
	for {
		env := newLoopEnv(t, w, finish)
		env.ExecuteWorkflow(contract.TrainLoop, in)
		err := env.GetWorkflowError()
		var can *workflow.ContinueAsNewError
		if !errors.As(err, &can) {
			if err == nil {
				err = env.GetWorkflowResult(&out)
			}
			return states, out, err
		}
		var next contract.LoopInput
		if err := json.Unmarshal(can.Input.Payloads[0].Data, &next); err != nil {
			t.Fatal(err)
		}
		states, in = append(states, next.State), next
	}
}

func size(t *testing.T, v any) int {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// With any number of validations the state and the messages stay small, and the run hears of them: of all, if they are not too many for a
// message each, else of a selection.
func TestTrainLoop_validationsAreToldAndNotKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		steps, stop, every int
		all                bool // each is told at once
	}{
		{60, 0, 1, true},
		{60, 0, 7, true},
		{60, 0, 0, true}, // the first and the last
		{501, 40, 1, false},
		{100_000, 240, 1, false},
		{100_000, 40, 1000, true},
	} {
		t.Run(fmt.Sprintf("every %d of %d", c.every, c.steps), func(t *testing.T) {
			t.Parallel()
			w := &world{}
			s := spec("async")
			s.Steps, s.ValidateEvery, s.CheckpointEvery, s.ContinueEvery = c.steps, c.every, 0, 9
			s.BatchProblems, s.Prefill, s.Threshold, s.TrainProblems = 1, 0, 1, 1000
			states, out, err := devLoop(t, w, contract.LoopInput{Spec: s, State: contract.LoopState{StopAt: c.stop}})
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range states {
				if n := size(t, st); n > 6<<10 || len(st.Dev) > contract.LoopDevRows || len(st.Untold) > contract.LoopDevRows {
					t.Fatalf("step %d: the state has %d bytes, %d rows and %d untold", st.Step, n, len(st.Dev), len(st.Untold))
				}
			}
			last := c.stop
			if last == 0 {
				last = c.steps
			}
			want := []int{0}
			for v := 1; v <= last; v++ {
				if v == last || c.every > 0 && v%c.every == 0 {
					want = append(want, v)
				}
			}
			var heard []int
			for _, p := range w.told {
				if n := size(t, p); n > 6<<10 {
					t.Errorf("a message of %d bytes", n)
				}
				for _, d := range p.Dev {
					heard = append(heard, d.Version)
				}
			}
			if !slices.IsSorted(heard) || len(slices.Compact(slices.Clone(heard))) != len(heard) {
				t.Errorf("rows were told twice or out of order: %v", heard)
			}
			if c.all && !slices.Equal(heard, want) {
				t.Errorf("the run was told of %v, want %v", heard, want)
			}
			if heard[0] != 0 || heard[len(heard)-1] != last {
				t.Errorf("the run was told of %v, want the first and the last, %d", heard, last)
			}
			if n := len(out.Dev); n > contract.LoopDevRows || out.Dev[0].Version != 0 || out.Dev[n-1].Version != last {
				t.Errorf("output %v", out.Dev)
			}
			reports := last / (1 + c.steps/500)
			if !c.all && len(w.told) > reports+3 {
				t.Errorf("%d messages for %d steps and %d validations, want about %d", len(w.told), last, len(want), reports)
			}
		})
	}
}

// A row that could not be told is told with the next message.
func TestTrainLoop_aRowThatWasNotHeardIsToldAgain(t *testing.T) {
	t.Parallel()
	w := &world{deaf: errors.New("not there")}
	s := spec("sync")
	s.Steps, s.ContinueEvery = 4, 1
	var heard []int
	w.during = func(step int) {
		if step == 3 {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told, w.deaf = nil, nil
		}
	}
	states, _, err := devLoop(t, w, contract.LoopInput{Spec: s})
	if err != nil {
		t.Fatal(err)
	}
	if len(states[0].Untold) != 1 {
		t.Errorf("the state has the untold rows %v, want that of the first validation", states[0].Untold)
	}
	for _, p := range w.told {
		for _, d := range p.Dev {
			heard = append(heard, d.Version)
		}
	}
	if want := []int{0, 3, 4}; !slices.Equal(heard, want) {
		t.Errorf("told %v, want %v", heard, want)
	}
	if n := len(states[len(states)-1].Untold); n != 0 {
		t.Errorf("%d rows are still untold", n)
	}
}

// A loop of an older build handed on the whole table; the newer one keeps a selection of it and tells what is new.
func TestTrainLoop_aTableOfAnOlderBuildShrinks(t *testing.T) {
	t.Parallel()
	w := &world{}
	s := spec("sync")
	s.Steps, s.ValidateEvery = 1002, 1
	st := contract.LoopState{Step: 1000, Started: true}
	for v := range 1001 {
		st.Dev = append(st.Dev, contract.DevRow{Name: fmt.Sprintf("%06d", v), Version: v, Acc: 0.5})
	}
	st.Dev[123].Acc = 0.9
	_, out, err := devLoop(t, w, contract.LoopInput{Spec: s, State: st})
	if err != nil {
		t.Fatal(err)
	}
	var kept []int
	for _, d := range out.Dev {
		kept = append(kept, d.Version)
	}
	if len(kept) != contract.LoopDevRows || kept[0] != 0 || !slices.Contains(kept, 123) || kept[len(kept)-1] != 1002 {
		t.Errorf("kept %v, want the first, the best, the newest", kept)
	}
	var heard []int
	for _, p := range w.told {
		for _, d := range p.Dev {
			heard = append(heard, d.Version)
		}
	}
	if want := []int{1001, 1002}; !slices.Equal(heard, want) {
		t.Errorf("told %v, want %v", heard, want)
	}
}

// The run keeps what its loops tell of validations, a selection of bounded size, whether they tell all rows (older builds) or the new ones.
func TestTrainRun_theDevTableIsWholeAndBounded(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(all []contract.DevRow) []contract.DevRow{
		"older build": func(all []contract.DevRow) []contract.DevRow { return all },
		"new rows":    func(all []contract.DevRow) []contract.DevRow { return all[len(all)-1:] },
	} {
		for _, n := range []int{1, contract.MaxDevRows, 200} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				t.Parallel()
				w := &runWorld{}
				w.loop = func(ctx workflow.Context) (contract.LoopOutput, error) {
					var all []contract.DevRow
					for v := range n {
						row := contract.DevRow{Name: fmt.Sprintf("%06d", v), Version: v, Acc: 0.5}
						if v == n/3 {
							row.Acc = 0.75
						}
						all = append(all, row)
						p := contract.Progress{Phase: "training", Step: v, Steps: n, Dev: tell(all)}
						if err := workflow.SignalExternalWorkflow(ctx, "r", "", contract.SignalProgress, p).Get(ctx, nil); err != nil {
							return contract.LoopOutput{}, err
						}
						_ = workflow.Sleep(ctx, time.Minute)
					}
					return contract.LoopOutput{Step: n - 1, Dev: all[max(n-contract.LoopDevRows, 0):]}, nil
				}
				env := newRunEnv(t, w)
				env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
				var out contract.RunOutput
				if err := errors.Join(env.GetWorkflowError(), env.GetWorkflowResult(&out)); err != nil {
					t.Fatal(err)
				}
				p := progress(t, env)
				if !slices.Equal(out.Dev, p.Dev) || len(out.Dev) != min(n, contract.MaxDevRows) {
					t.Fatalf("%d rows in the output, %d in the answer to a query; %d validations", len(out.Dev), len(p.Dev), n)
				}
				if size(t, out) > contract.MaxMessage || size(t, p) > contract.MaxMessage {
					t.Errorf("output of %d bytes, progress of %d", size(t, out), size(t, p))
				}
				if best := out.Dev[contract.BestDev(out.Dev)]; best.Version != n/3 || out.Dev[0].Version != 0 || out.Dev[len(out.Dev)-1].Version != n-1 {
					t.Errorf("rows %v, want the first, the best and the newest among them", out.Dev)
				}
			})
		}
	}
}
