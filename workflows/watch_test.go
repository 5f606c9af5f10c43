package workflows_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
)

// inherited is the state of a loop after a continue-as-new: a batch sent out by an older run of the chain, whose ends this
// run does not hear of.
func inherited(s contract.RunSpec) contract.LoopState {
	st := contract.LoopState{Started: true, NextGroup: s.BatchProblems, Cursor: record.Cursor{Next: s.BatchProblems}}
	for n := range s.BatchProblems {
		st.Open = append(st.Open, contract.OpenGroup{GroupRef: contract.GroupRef{N: n, Problem: n, Tag: 1}})
		st.Submitted = append(st.Submitted, record.Submitted{N: n, Problem: n, Tag: 1})
	}
	return st
}

func watched(mode string, steps int) contract.RunSpec {
	s := spec(mode)
	s.Steps = steps
	s.Timeouts.Stall = 10 * time.Minute
	return s
}

func TestWatch_groupsOfAnOlderRunThatClosedAreReplaced(t *testing.T) {
	t.Parallel()
	group := func(n int) string { return contract.GroupID("r", n) }
	tests := map[string]struct {
		inspect func(call int, id string) (contract.Inspected, error)
		report  []int // groups that report after an hour
		dropped []int
		stalled int // events
	}{
		"all terminated": {
			inspect: func(int, string) (contract.Inspected, error) { return contract.Inspected{Status: "Terminated"}, nil },
			dropped: []int{0, 1, 2, 3},
		},
		"one is no longer known": {
			inspect: func(_ int, id string) (contract.Inspected, error) {
				return contract.Inspected{Status: "unknown id", Open: id != group(2), Mark: 0}, nil
			},
			report: []int{0, 1, 3}, dropped: []int{2},
		},
		"the server is silent for a while": {
			inspect: func(call int, _ string) (contract.Inspected, error) {
				if call < 6 {
					return contract.Inspected{}, errors.New("no answer")
				}
				return contract.Inspected{Status: "Failed"}, nil
			},
			dropped: []int{0, 1, 2, 3},
		},
		"slow, but they move": {
			inspect: func(call int, _ string) (contract.Inspected, error) {
				return contract.Inspected{Status: "Running", Open: true, Mark: uint32(call)}, nil
			},
			report: []int{0, 1, 2, 3},
		},
		"one stands still and is named once": {
			inspect: func(call int, id string) (contract.Inspected, error) {
				w := contract.Inspected{Status: "Running", Open: true, Mark: uint32(call)}
				if id == group(3) {
					w.Mark, w.Doing = 7, "GenerateRollouts, attempt 1"
				}
				return w, nil
			},
			report: []int{0, 1, 2, 3}, stalled: 1,
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{}
			calls := 0
			w.inspect = func(id string) (contract.Inspected, error) { calls++; return c.inspect(calls, id) }
			env := newLoopEnv(t, w, finish)
			for _, n := range c.report {
				env.RegisterDelayedCallback(func() {
					env.SignalWorkflow(contract.SignalGroupDone, contract.GroupDone{N: n, Tag: 1, Tokens: 1})
				}, time.Hour)
			}
			if c.stalled > 0 {
				env.RegisterDelayedCallback(func() {
					if p := progress(t, env); len(p.Stalled) == 0 || !strings.Contains(strings.Join(p.Stalled, "\n"), "group 3: no progress") {
						t.Errorf("named as standing still: %q, want group 3", p.Stalled)
					}
				}, 45*time.Minute)
			}
			s := watched("sync", 1) // the one step needs every group that was sent out
			env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s, State: inherited(s)})
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			dropped := []int(nil)
			for _, q := range w.seals {
				for _, d := range q.Ledger.Dropped {
					dropped = append(dropped, d.N)
					if d.Reason != "infrastructure" {
						t.Errorf("dropped %+v, want as infrastructure", d)
					}
				}
			}
			if !slices.Equal(dropped, c.dropped) || len(w.updates) != s.Steps {
				t.Errorf("dropped %v, want %v; steps %v", dropped, c.dropped, w.updates)
			}
			stalled := 0
			for _, e := range w.events {
				if e.Kind == "stalled" && strings.HasPrefix(e.Where, "r/group/") {
					stalled++
				}
			}
			if stalled != c.stalled {
				t.Errorf("%d events of standstill, want %d: %+v", stalled, c.stalled, w.events)
			}
			balance(t, w)
		})
	}
}

// The report of a group may arrive while the loop asks about it: the server then says that the group is closed, and it is not lost.
func TestWatch_aReportThatCrossesTheQuestionCounts(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, finish)
	s := watched("sync", 1)
	w.inspect = func(id string) (contract.Inspected, error) {
		for n := range s.BatchProblems {
			if id == contract.GroupID("r", n) {
				env.SignalWorkflow(contract.SignalGroupDone, contract.GroupDone{N: n, Tag: 1, Tokens: 1})
			}
		}
		return contract.Inspected{Status: "Completed"}, nil
	}
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s, State: inherited(s)})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	for _, q := range w.seals {
		if len(q.Ledger.Dropped) > 0 {
			t.Errorf("step %d: dropped %+v, want nothing", q.Step, q.Ledger.Dropped)
		}
	}
	if w.asked == 0 {
		t.Error("nobody asked about the silent groups")
	}
}

// Runs of the chain that are shorter than the bound must not put the question off.
func TestWatch_theNextQuestionSurvivesContinueAsNew(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, finish)
	s := watched("sync", 6)
	s.ContinueEvery = 1
	st := contract.LoopState{AskAt: time.Now().Add(5 * time.Minute).Unix()}
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s, State: st})
	var can *workflow.ContinueAsNewError
	if !errors.As(env.GetWorkflowError(), &can) {
		t.Fatal(env.GetWorkflowError())
	}
	var next contract.LoopInput
	if err := json.Unmarshal(can.Input.Payloads[0].Data, &next); err != nil {
		t.Fatal(err)
	}
	if next.State.AskAt != st.AskAt {
		t.Errorf("the next question is at %d, was planned for %d", next.State.AskAt, st.AskAt)
	}
}

// The server's clock was set back since an older run of the chain noted its times: nothing waits until it is there again.
func TestWatch_aClockThatWasSetBackPutsNothingOff(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{0, time.Minute, time.Hour, 1000 * time.Hour} {
		w := &world{inspect: func(string) (contract.Inspected, error) { return contract.Inspected{Status: "Terminated"}, nil }}
		env := newLoopEnv(t, w, finish)
		s := watched("sync", 1)
		st := inherited(s)
		began := env.Now()
		noted := began.Add(back)
		st.AskAt = noted.Add(s.Timeouts.Stall).Unix()
		for i := range st.Open {
			st.Open[i].At = noted.Unix()
		}
		env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s, State: st})
		if err := env.GetWorkflowError(); err != nil {
			t.Fatal(err)
		}
		if took := env.Now().Sub(began); w.asked == 0 || took > 3*s.Timeouts.Stall {
			t.Errorf("set back by %s: asked %d times, the step took %s, want at most %s", back, w.asked, took, 3*s.Timeouts.Stall)
		}
	}
}

// What a step waits for is named when it takes longer than the bound, whatever stage it is.
func TestWatch_aStageWithoutNewsIsNamed(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
		_ = workflow.Sleep(ctx, time.Hour)
		return &contract.GroupDone{Tokens: 1}
	})
	calls := 0
	w.inspect = func(string) (contract.Inspected, error) {
		calls++
		return contract.Inspected{Status: "Running", Open: true, Mark: uint32(calls)}, nil
	}
	s := watched("sync", 1)
	env.RegisterDelayedCallback(func() {
		if p := progress(t, env); len(p.Stalled) != 1 || !strings.Contains(p.Stalled[0], "step 1: collect groups") {
			t.Errorf("named: %q, want the stage that collects", p.Stalled)
		}
	}, 25*time.Minute)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if len(w.events) != 1 || w.events[0].Kind != "stalled" || w.events[0].Where != "TrainLoop" {
		t.Errorf("events %+v, want one of the stage", w.events)
	}
}

// A validation that stands still is named wherever the loop waits for it: before its first step, before the next version, where it continues as new, and
// after its last step. The words are those of the activity that does not move.
func TestWatch_aValidationThatStandsStillIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version, next int // the loop continues as new after so many steps
		mode          string
	}{
		"first, sync":         {0, 100, "sync"},
		"first, async":        {0, 100, "async"},
		"in its midst":        {3, 100, "async"},
		"at continue as new":  {3, 3, "async"},
		"in its midst, sync":  {3, 100, "sync"},
		"after the last step": {6, 100, "async"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{validations: map[int]time.Duration{c.version: time.Hour}}
			env := newLoopEnv(t, w, finish)
			id := contract.ValidateID("r", record.StepName(c.version))
			w.inspect = func(id2 string) (contract.Inspected, error) {
				res := contract.Inspected{Status: "Running", Open: true}
				if id2 == id {
					res.Mark, res.Doing = 7, "GenerateRollouts, attempt 4"
				}
				return res, nil
			}
			s := watched(c.mode, 6)
			s.ContinueEvery = c.next
			env.RegisterDelayedCallback(func() {
				p := progress(t, env)
				if len(p.Stalled) != 1 || !strings.Contains(p.Stalled[0], "validat") || !strings.HasSuffix(p.Stalled[0], ": GenerateRollouts, attempt 4") {
					t.Errorf("named: %q, want the validation and what its activity does", p.Stalled)
				}
			}, 45*time.Minute)
			env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
			if err := env.GetWorkflowError(); err != nil && !workflow.IsContinueAsNewError(err) {
				t.Fatal(err)
			}
			if len(w.events) != 1 || w.events[0].Kind != "stalled" || !strings.HasSuffix(w.events[0].Message, "attempt 4") {
				t.Errorf("events %+v, want one", w.events)
			}
		})
	}
}

// A cancelled run must not be held up by the watch.
func TestWatch_endsWithItsRun(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, func(ctx workflow.Context, _ contract.GroupInput) *contract.GroupDone {
		_ = workflow.Await(ctx, func() bool { return false })
		return nil
	})
	w.inspect = func(string) (contract.Inspected, error) { return contract.Inspected{Open: true, Mark: 1}, nil }
	env.RegisterDelayedCallback(env.CancelWorkflow, 45*time.Minute)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: watched("async", 6)})
	if err := env.GetWorkflowError(); !temporal.IsCanceledError(err) || w.closed == nil {
		t.Errorf("error %v, want cancelled with a closed ledger", err)
	}
}
