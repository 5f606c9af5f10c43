package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
)

// chained executes a run to its end with the chain of runs that it continues as: env is the first. before is called with every environment, long ones are those
// at which the server suggests to continue as new. It returns the last environment and what each run was handed.
func (w *lineages) chained(t *testing.T, mode string, before func(*testsuite.TestWorkflowEnvironment)) (*testsuite.TestWorkflowEnvironment, []contract.RunState) {
	t.Helper()
	args := []any{json.RawMessage(`{}`)}
	var states []contract.RunState
	for {
		env := w.environment(t, mode)
		env.SetContinueAsNewSuggested(true)
		before(env)
		env.ExecuteWorkflow(contract.TrainRun, args...)
		var can *workflow.ContinueAsNewError
		if !errors.As(env.GetWorkflowError(), &can) {
			return env, states
		}
		if can.WorkflowType.Name != contract.TrainRun || len(can.Input.GetPayloads()) != 2 {
			t.Fatalf("continues as %s with %d arguments", can.WorkflowType.Name, len(can.Input.GetPayloads()))
		}
		var state contract.RunState
		for i, to := range []any{new(json.RawMessage), &state} {
			data := can.Input.GetPayloads()[i].GetData()
			if err := json.Unmarshal(data, to); err != nil || len(data) > contract.MaxMessage {
				t.Fatalf("argument %d has %d bytes: %v", i, len(data), err)
			}
		}
		args = []any{json.RawMessage(can.Input.GetPayloads()[0].GetData()), &state}
		if states = append(states, state); len(states) > 10 {
			t.Fatal("the chain does not end")
		}
	}
}

// A run with rollbacks that continues as new after each has the books, the answers, the dev table and the output of one that does not, and opens nothing twice.
func TestTrainRun_continueAsNewAfterEveryRollbackChangesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		for _, plan := range [][]struct{ at, to int }{{{3, 1}}, {{4, 0}}, {{2, 2}}, {{5, 3}, {5, 4}}, {{3, 0}, {2, 1}, {6, 2}}} {
			t.Run(fmt.Sprintf("%s %v", mode, plan), func(t *testing.T) {
				t.Parallel()
				var outs [2]contract.RunOutput
				for i := range outs {
					w, env := newLineages(t, mode)
					current := env
					answers := make([]*reply, len(plan))
					for n, p := range plan {
						answers[n] = &reply{}
						w.whenTraining(record.LineageName(n), p.at, func() {
							env := current
							env.RegisterDelayedCallback(func() { rollBack(env, fmt.Sprint("u", n), min(p.to, progress(t, env).Step), answers[n]) }, 0)
						})
					}
					var states []contract.RunState
					if i == 0 {
						env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
					} else {
						env, states = w.chained(t, mode, func(e *testsuite.TestWorkflowEnvironment) { current = e })
						if len(states) != len(plan) {
							t.Fatalf("%d runs continue as new, want %d", len(states), len(plan))
						}
					}
					if err := env.GetWorkflowError(); err != nil {
						t.Fatal(err)
					}
					if err := env.GetWorkflowResult(&outs[i]); err != nil {
						t.Fatal(err)
					}
					for n, a := range answers {
						if a.failed != nil || a.rejected != nil || a.result.Lineage != record.LineageName(n+1) {
							t.Errorf("answer %d: %+v", n, a)
						}
					}
					w.checkTotals(t, env, record.LineageName(len(plan)))
					if len(w.clashes) > 0 || len(w.opened) != len(plan) || len(w.inits) != len(plan)+1 || len(w.exports) != 1 || len(w.reports) != len(plan)+1 {
						t.Errorf("clashes %v, %d lineages opened, %d first versions, %d exports, reports %v", w.clashes, len(w.opened), len(w.inits), len(w.exports), w.reports)
					}
					for name := range w.starts {
						if books := w.fold(name, -1); books.Balance() != nil || !books.Ended {
							t.Errorf("books of %s: %v, ended %v", name, books.Balance(), books.Ended)
						}
					}
					for n, s := range states {
						if s.Spec.Lineage != record.LineageName(n+1) || s.Spec.FirstStep != s.Progress.Step || s.Spec.TrainProblems != 10 || s.Progress.Dataset == "" {
							t.Errorf("state %d: %+v", n, s)
						}
					}
				}
				dev := func(o contract.RunOutput) (all []int) {
					for _, d := range o.Dev {
						all = append(all, d.Version)
					}
					return all
				}
				// How far an old loop came when it was cancelled is timing; the newest lineage is not.
				a, b := outs[0], outs[1]
				if a.Step != b.Step || a.Trained != b.Trained || a.Lineage != b.Lineage || !slices.Equal(dev(a), dev(b)) {
					t.Errorf("outputs %+v and, continued, %+v", a, b)
				}
			})
		}
	}
}

// What comes while the lineages change reaches the loop of the new one, whatever run of the chain has it: settings, a pause, the end.
func TestTrainRun_continueAsNewKeepsMessages(t *testing.T) {
	t.Parallel()
	w, _ := newLineages(t, "async")
	runs := 0
	got := &reply{}
	var early, late answer
	last, states := w.chained(t, "async", func(env *testsuite.TestWorkflowEnvironment) {
		switch runs++; runs {
		case 1:
			w.whenTraining("l0", 3, func() {
				env.RegisterDelayedCallback(func() {
					env.UpdateWorkflow(contract.UpdateRate, "lr", &early, sent(`{"learning_rate": 1e-5}`))
					rollBack(env, "u", 2, got)
					env.UpdateWorkflow(contract.UpdatePause, "p", &late)
					env.SignalWorkflow(contract.UpdateStop, contract.StopRequest{Step: 5})
				}, 0)
			})
		case 2:
			env.RegisterDelayedCallback(func() {
				if p := progress(t, env); !p.Paused || p.Lineage != "l1" || p.Step != 2 || p.Phase == "starting" {
					t.Errorf("progress %+v, want lineage l1 paused at step 2", p)
				}
				env.SignalWorkflow(contract.UpdateResume, nil)
			}, time.Hour)
		}
	})
	if err := last.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if got.result.Lineage != "l1" || early.rejected != nil || early.failed != nil || late.failed != nil || len(states) != 1 || states[0].StopAt != 5 {
		t.Errorf("answers %+v, %+v, %+v; states %+v", got, early, late, states)
	}
	var out contract.RunOutput
	if err := last.GetWorkflowResult(&out); err != nil || out.Step != 5 || out.Lineage != "l1" {
		t.Errorf("output %+v, %v, want the end after step 5", out, err)
	}
	for _, s := range w.seals {
		if want := map[string]float64{"l0": 0, "l1": 1e-5}[s.Lineage]; s.LearningRate != want && s.Lineage == "l1" {
			t.Errorf("%s step %d is sealed with learning rate %g, want %g", s.Lineage, s.Step, s.LearningRate, want)
		}
	}
}

// A run does not continue as new while an update that it has accepted has no answer; a cancel ends it then too.
func TestTrainRun_continueAsNewAnswersFirst(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		w, env := newLineages(t, "sync")
		env.SetContinueAsNewSuggested(true)
		got, slow := &reply{}, &answer{}
		var toldAt time.Time
		w.slowControl = time.Hour // the server is slow to say that the loop has the command
		w.whenTraining("l0", 3, func() {
			env.RegisterDelayedCallback(func() {
				toldAt = env.Now().Add(time.Hour)
				env.UpdateWorkflow(contract.UpdatePause, "p", slow)
				rollBack(env, "u", 2, got)
			}, 0)
			if cancelled {
				env.RegisterDelayedCallback(env.CancelWorkflow, 30*time.Minute)
			}
		})
		env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
		err := env.GetWorkflowError()
		if got.result.Lineage != "l1" || workflow.IsContinueAsNewError(err) == cancelled {
			t.Errorf("cancelled %v: answer %+v, error %v", cancelled, got, err)
		}
		if !cancelled && (!slow.completed || env.Now().Before(toldAt)) {
			t.Errorf("continued as new at %v with the answer %+v, which comes at %v", env.Now(), slow, toldAt)
		}
		if cancelled && (!temporal.IsCanceledError(err) || w.reports[len(w.reports)-1] != "l1") {
			t.Errorf("cancelled: %v, reports %v", err, w.reports)
		}
	}
}

// A cancel in the task that would continue as new ends the run: the next one would not hear of it.
func TestTrainRun_cancelOutlivesContinueAsNew(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "sync")
	env.SetContinueAsNewSuggested(true)
	got := &reply{}
	w.whenTraining("l0", 3, func() { env.RegisterDelayedCallback(func() { rollBack(env, "u", 1, got) }, 0) })
	w.initHook = func(q contract.InitPolicyRequest) {
		if q.Lineage == "l1" {
			env.CancelWorkflow()
		}
	}
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err == nil || workflow.IsContinueAsNewError(err) || !temporal.IsCanceledError(err) {
		t.Errorf("got %v, want cancelled", err)
	}
	if len(w.reports) == 0 || w.reports[len(w.reports)-1] != "l1" {
		t.Errorf("reports %v, want one of the lineage that began", w.reports)
	}
}

// Without a suggestion, or in a run without rollback, there is one run.
func TestTrainRun_continuesAsNewOnlyBetweenLineages(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "sync")
	env.SetContinueAsNewSuggested(true)
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	w.check(t, env, map[string][]int{"l0": {1, 2, 3, 4, 5, 6}})
}
