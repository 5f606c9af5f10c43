package workflows_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

func alarmSpec(action string) contract.RunSpec {
	s := spec("async")
	s.FaultLimit, s.FaultWindow, s.FaultAction = 5, 2, action
	return s
}

// While the machines are broken the loop pauses, sends nothing out and trains nothing; after a resume it trains every step.
func TestAlarm_pausesAndGoesOn(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{contract.PolicyDrop, contract.PolicyWait, contract.PolicyCancelEarly} {
		w := &world{}
		broken, started := true, 0
		env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
			started++
			_ = workflow.Sleep(ctx, time.Duration(1+in.N)*time.Second)
			if broken {
				return &contract.GroupDone{Failed: "Infrastructure: no interpreter"}
			}
			return &contract.GroupDone{Tokens: 1}
		})
		before := 0
		env.RegisterDelayedCallback(func() { before = started }, 30*time.Minute)
		env.RegisterDelayedCallback(func() {
			p := progress(t, env)
			if !p.Paused || !strings.Contains(p.Alarm, "no interpreter") || !strings.Contains(p.Alarm, "the limit is 5") || len(w.updates) != 0 {
				t.Errorf("%s: after an hour paused %v with the reason %q, updates %v", policy, p.Paused, p.Alarm, w.updates)
			}
			if started != before {
				t.Errorf("%s: %d groups were sent out during the pause", policy, started-before)
			}
			broken = false
			env.SignalWorkflow(contract.SignalControl, contract.Control{Resume: true})
		}, time.Hour)
		s := alarmSpec("pause")
		s.Policy = policy
		env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
		if err := env.GetWorkflowError(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.updates, []int{1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: trained %v, want all six steps", policy, w.updates)
		}
		alarms := 0
		for _, e := range w.events {
			if e.Kind == "alarm" {
				alarms++
			}
		}
		if alarms != 1 {
			t.Errorf("%s: %d alarms, want 1: what failed during the pause is no new one", policy, alarms)
		}
		balance(t, w)
	}
}

func TestAlarm_failsIfConfigured(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, func(ctx workflow.Context, _ contract.GroupInput) *contract.GroupDone {
		_ = workflow.Sleep(ctx, time.Second)
		return &contract.GroupDone{Failed: "Infrastructure: no interpreter"}
	})
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: alarmSpec("fail")})
	app, ok := errors.AsType[*temporal.ApplicationError](env.GetWorkflowError())
	if !ok || app.Type() != string(fault.Infrastructure) || !strings.Contains(app.Message(), "no interpreter") || len(w.updates) != 0 {
		t.Errorf("error %v, updates %v; want the newest reason and none", env.GetWorkflowError(), w.updates)
	}
	balance(t, w)
}

// The limit is one of a window: what is spread over more steps raises no alarm, and continue-as-new does not forget what was counted.
func TestAlarm_countsOverAWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		each  int // groups lost in each step
		want  bool
		every int // continue as new
	}{
		"below":          {each: 2, every: 100},
		"above":          {each: 3, want: true, every: 100}, // 6 in two steps, the limit is 5
		"below, chained": {each: 2, every: 1},
		"above, chained": {each: 3, want: true, every: 1},
	} {
		s := alarmSpec("fail")
		s.Mode, s.Prefill, s.ContinueEvery = "sync", 0, c.every
		lost := map[int]int{}
		crs := course{spec: s}
		w := &world{}
		crs.group = func(in contract.GroupInput) *contract.GroupDone {
			if lost[in.Tag] < c.each {
				lost[in.Tag]++
				return &contract.GroupDone{Failed: fmt.Sprintf("Infrastructure: planned in step %d", in.Tag)}
			}
			return &contract.GroupDone{Tokens: 1}
		}
		err := crs.run(t, w)
		if (err != nil) != c.want {
			t.Errorf("%s: %v, updates %v", name, err, w.updates)
		}
		if c.want && !strings.Contains(fmt.Sprint(err), "in the steps 1 to 2") {
			t.Errorf("%s: %v, want an alarm of the steps 1 and 2", name, err)
		}
	}
}
