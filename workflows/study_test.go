package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/workflows"
)

// studyWorld is a store and the runs of a study. It outlives executions of the workflow.
type studyWorld struct {
	mu        sync.Mutex
	arms      []string
	seeds     []uint64
	parallel  int
	attempts  map[string]int                             // of a run
	results   map[string]bool                            // runs with a result
	finished  map[string]bool                            // runs that ended well but were not collected
	failures  map[string]contract.CollectStudyRunRequest // newest of each
	collected int
	summaries int
	open      int
	most      int
	play      func(ctx workflow.Context, run string) error // a run; nil: an hour
}

func newStudyWorld(arms, seeds, parallel int) *studyWorld {
	w := &studyWorld{
		parallel: parallel, attempts: map[string]int{}, results: map[string]bool{}, finished: map[string]bool{},
		failures: map[string]contract.CollectStudyRunRequest{},
	}
	for i := range arms {
		w.arms = append(w.arms, fmt.Sprintf("arm%d", i))
	}
	for i := range seeds {
		w.seeds = append(w.seeds, uint64(10+i))
	}
	return w
}

func key(q contract.StudyRunRequest) string { return fmt.Sprintf("%s.%s.s%d", q.Study, q.Arm, q.Seed) }

func (w *studyWorld) env(t *testing.T) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // the machine may be busy
	env.SetStartWorkflowOptions(startOptions("st"))
	env.RegisterWorkflowWithOptions(workflows.Study, workflow.RegisterOptions{Name: contract.Study})
	contract.OpenStudyActivity.Register(env, func(_ context.Context, q contract.OpenStudyRequest) (contract.StudySpec, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if string(q.Input) != `{"name":"x"}` {
			return contract.StudySpec{}, temporal.NewNonRetryableApplicationError("bad study", string(fault.Invalid), nil)
		}
		s := contract.StudySpec{Title: "t", Arms: w.arms, Seeds: w.seeds, Parallel: w.parallel}
		for i, seed := range w.seeds {
			for k, arm := range w.arms {
				if w.results[key(contract.StudyRunRequest{Study: q.Study, Arm: arm, Seed: seed})] {
					s.Done = append(s.Done, i*len(w.arms)+k)
				}
			}
		}
		return s, nil
	})
	contract.PrepareStudyRunActivity.Register(env, func(_ context.Context, q contract.StudyRunRequest) (contract.PreparedRun, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		k := key(q)
		if w.results[k] {
			t.Errorf("%s has a result and is prepared again", k)
		}
		if w.finished[k] {
			return contract.PreparedRun{Run: k, Finished: true}, nil
		}
		w.attempts[k]++
		return contract.PreparedRun{Run: fmt.Sprintf("%s-%d", k, w.attempts[k]), Input: json.RawMessage(fmt.Sprintf(`{"run":%q}`, k))}, nil
	})
	contract.CollectStudyRunActivity.Register(env, func(_ context.Context, q contract.CollectStudyRunRequest) (contract.CollectedRun, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.collected++
		if q.Failure != "" {
			w.failures[key(q.StudyRunRequest)] = q
			return contract.CollectedRun{Failure: q.Failure}, nil
		}
		w.results[key(q.StudyRunRequest)] = true
		v := 0.5
		return contract.CollectedRun{Value: &v}, nil
	})
	contract.SummarizeStudyActivity.Register(env, func(context.Context, contract.SummarizeStudyRequest) (contract.StudyOutput, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.summaries++
		return contract.StudyOutput{Done: len(w.results), All: len(w.arms) * len(w.seeds)}, nil
	})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in json.RawMessage) (contract.RunOutput, error) {
		w.open++
		w.most = max(w.most, w.open)
		defer func() { w.open-- }()
		id := workflow.GetInfo(ctx).WorkflowExecution.ID
		if !strings.Contains(string(in), strings.TrimSuffix(id, id[strings.LastIndex(id, "-"):])) {
			t.Errorf("run %s is given the input %s", id, in)
		}
		if w.play != nil {
			return contract.RunOutput{}, w.play(ctx, id)
		}
		return contract.RunOutput{}, workflow.Sleep(ctx, time.Hour)
	}, workflow.RegisterOptions{Name: contract.TrainRun})
	return env
}

var studyInput = json.RawMessage(`{"name":"x"}`)

func (w *studyWorld) execute(t *testing.T, env *testsuite.TestWorkflowEnvironment) (contract.StudyOutput, error) {
	t.Helper()
	env.ExecuteWorkflow(contract.Study, studyInput)
	var out contract.StudyOutput
	if err := env.GetWorkflowError(); err != nil {
		return out, err
	}
	return out, env.GetWorkflowResult(&out)
}

func TestStudy_makesEveryRunOnceAndNotTooManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, parallel := range []int{1, 2, 5, 100} {
		w := newStudyWorld(9, 3, parallel)
		env := w.env(t)
		var seen contract.StudyProgress
		env.RegisterDelayedCallback(func() {
			v, err := env.QueryWorkflow(contract.QueryProgress)
			if err == nil {
				err = v.Get(&seen)
			}
			if err != nil {
				t.Error(err)
			}
		}, 90*time.Minute)
		out, err := w.execute(t, env)
		if err != nil || out.Done != 27 || out.All != 27 || len(w.attempts) != 27 {
			t.Fatalf("%d at once: %d of %d runs, %d were made: %v", parallel, out.Done, out.All, len(w.attempts), err)
		}
		for k, n := range w.attempts {
			if n != 1 {
				t.Errorf("%s was made %d times", k, n)
			}
		}
		if want := min(parallel, 27); w.most != want {
			t.Errorf("%d runs at once, want %d", w.most, want)
		}
		if done := min(parallel, 27); parallel < 27 && (seen.All != 27 || seen.Done != done || len(seen.Running) != done || len(seen.Rows) != done) {
			t.Errorf("%d at once: after an hour and a half the progress is %+v", parallel, seen)
		}
	}
}

// A run that fails does not end the study, and is the only one that a second start makes again.
func TestStudy_goesOnAfterFailures(t *testing.T) {
	t.Parallel()
	w := newStudyWorld(3, 2, 2)
	w.play = func(ctx workflow.Context, run string) error {
		_ = workflow.Sleep(ctx, time.Hour)
		switch {
		case strings.HasPrefix(run, "st.arm1.s10"):
			return temporal.NewNonRetryableApplicationError("no sandbox", string(fault.Infrastructure), nil)
		case strings.HasPrefix(run, "st.arm2.s11"):
			return temporal.NewCanceledError()
		}
		return nil
	}
	out, err := w.execute(t, w.env(t))
	if err != nil || out.Done != 4 || out.All != 6 {
		t.Fatalf("first start: %+v, %v", out, err)
	}
	if f := w.failures["st.arm1.s10"]; f.Kind != string(fault.Infrastructure) || f.Failure != "no sandbox" || f.Run != "st.arm1.s10-1" {
		t.Errorf("the failure is recorded as %+v", f)
	}
	if f := w.failures["st.arm2.s11"]; f.Kind != "Canceled" {
		t.Errorf("the cancelled run is recorded as %+v", f)
	}
	w.play = nil
	out, err = w.execute(t, w.env(t))
	if err != nil || out.Done != 6 {
		t.Fatalf("second start: %+v, %v", out, err)
	}
	for k, n := range w.attempts {
		if want := map[bool]int{true: 2, false: 1}[k == "st.arm1.s10" || k == "st.arm2.s11"]; n != want {
			t.Errorf("%s was made %d times, want %d", k, n, want)
		}
	}
	if out, err = w.execute(t, w.env(t)); err != nil || out.Done != 6 || w.collected != 8 || w.summaries != 3 {
		t.Errorf("third start: %+v, %v; %d results collected, %d summaries", out, err, w.collected, w.summaries)
	}
}

// A cancelled study cancels what is open, starts nothing more, sums up, and can go on.
func TestStudy_cancelEndsTheRunsAndSumsUp(t *testing.T) {
	t.Parallel()
	w := newStudyWorld(2, 3, 2)
	cancelled := 0
	w.play = func(ctx workflow.Context, _ string) error {
		err := workflow.Sleep(ctx, time.Hour)
		if temporal.IsCanceledError(err) {
			cancelled++
		}
		return err
	}
	env := w.env(t)
	env.RegisterDelayedCallback(env.CancelWorkflow, 90*time.Minute)
	if _, err := w.execute(t, env); !temporal.IsCanceledError(err) {
		t.Fatalf("got %v, want a cancelled study", err)
	}
	if len(w.results) != 2 || len(w.attempts) != 4 || cancelled != 2 || w.summaries != 1 || len(w.failures) != 0 {
		t.Errorf("%d results, %d runs made, %d cancelled, %d summaries, failures %v", len(w.results), len(w.attempts), cancelled, w.summaries, w.failures)
	}
	// One of the runs that were cut off had ended well.
	for k := range w.attempts {
		if !w.results[k] {
			w.finished[k] = true
			break
		}
	}
	before := len(w.attempts)
	w.play = nil
	out, err := w.execute(t, w.env(t))
	again := 0
	for _, n := range w.attempts {
		again += n - 1
	}
	if err != nil || out.Done != 6 || len(w.attempts) != before+2 || again != 1 {
		t.Errorf("second start: %+v, %v, %d runs made again", out, err, again)
	}
}

func TestStudy_continuesAsNewBetweenRuns(t *testing.T) {
	t.Parallel()
	w := newStudyWorld(2, 3, 2)
	env := w.env(t)
	env.RegisterDelayedCallback(func() { env.SetContinueAsNewSuggested(true) }, 90*time.Minute)
	_, err := w.execute(t, env)
	var again *workflow.ContinueAsNewError
	if !errors.As(err, &again) || w.open != 0 || len(w.results) != 4 || w.summaries != 0 {
		t.Fatalf("got %v with %d runs open, %d results", err, w.open, len(w.results))
	}
	if got := string(again.Input.GetPayloads()[0].GetData()); got != string(studyInput) {
		t.Errorf("the next run is given %s", got)
	}
	if out, err := w.execute(t, w.env(t)); err != nil || out.Done != 6 {
		t.Errorf("the next run: %+v, %v", out, err)
	}
}

func TestStudy_aBadDefinitionStartsNothing(t *testing.T) {
	t.Parallel()
	w := newStudyWorld(1, 1, 1)
	env := w.env(t)
	env.ExecuteWorkflow(contract.Study, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "bad study") || len(w.attempts) != 0 {
		t.Errorf("got %v with %d runs", err, len(w.attempts))
	}
}

// The most runs that a study may have, with the longest names, fit into what Temporal takes in one message.
func TestStudy_itsMessagesAreSmall(t *testing.T) {
	t.Parallel()
	spec := contract.StudySpec{Title: strings.Repeat("t", 200), Parallel: 1}
	for i := range 100 {
		spec.Arms = append(spec.Arms, strings.Repeat("a", 80)+fmt.Sprint(i))
	}
	spec.Seeds = []uint64{1 << 63, 1<<63 + 1}
	for i := range 200 {
		spec.Done = append(spec.Done, i)
	}
	data, err := json.Marshal(spec)
	if err != nil || len(data) > contract.MaxMessage {
		t.Errorf("the plan has %d bytes, at most %d are allowed: %v", len(data), contract.MaxMessage, err)
	}
}
