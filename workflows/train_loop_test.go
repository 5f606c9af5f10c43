package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/workflows"
)

// world plays every activity of a run and remembers what the loop asked of it.
type world struct {
	slowControl time.Duration // until a command to a loop is answered

	mu        sync.Mutex
	seals     []contract.SealBatchRequest
	closed    *contract.CloseLedgerRequest
	closes    []contract.CloseLedgerRequest
	trained   []contract.UpdateRequest
	published []int
	updates   []int
	saved     []int
	events    []record.Event
	acquired  int
	updateErr func(req contract.UpdateRequest, call int) error
	calls     int
	// inspect answers about a group; asked counts the questions.
	inspect func(id string) (contract.Inspected, error)
	asked   int
	onEvent func(e record.Event) // called while an event is written
	cancels map[int]bool         // groups that were asked to end
	asks    map[string]bool      // ids of workflows that were
	during  func(step int)       // called while a step is trained
	onEnd   func(n int)          // called when a group is asked to end
	told    []contract.Progress  // to the run, in order
	deaf    error                // answer to what the run is told

	validations map[int]time.Duration // how long they take, by version
}

func (w *world) noteCancel(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancels == nil {
		w.cancels = map[int]bool{}
	}
	if w.onEnd != nil && !w.cancels[n] {
		w.onEnd(n)
	}
	w.cancels[n] = true
}

func (w *world) cancelled(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancels[n]
}

func (w *world) register(env interface {
	RegisterActivityWithOptions(a any, o activity.RegisterOptions)
},
) {
	contract.SealBatchActivity.Register(env, func(_ context.Context, q contract.SealBatchRequest) (contract.SealBatchResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seals = append(w.seals, q)
		res := contract.SealBatchResult{Batch: artifact.Ref{Name: fmt.Sprint(q.Step)}}
		for _, g := range q.Groups {
			res.Groups = append(res.Groups, g.N)
		}
		return res, nil
	})
	contract.UpdatePolicyActivity.Register(env, func(_ context.Context, q contract.UpdateRequest) (contract.UpdateResult, error) {
		if w.during != nil {
			w.during(q.Step)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls++
		if w.updateErr != nil {
			if err := w.updateErr(q, w.calls); err != nil {
				return contract.UpdateResult{}, err
			}
		}
		w.updates = append(w.updates, q.Step)
		w.trained = append(w.trained, q)
		return contract.UpdateResult{WeightsDigest: fmt.Sprintf("w%d", q.Step), StateDigest: fmt.Sprintf("s%d", q.Step)}, nil
	})
	contract.PublishVersionActivity.Register(env, func(_ context.Context, q contract.PublishRequest) (contract.Done, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.published = append(w.published, q.Version)
		return contract.Done{}, nil
	})
	contract.SaveCheckpointActivity.Register(env, func(_ context.Context, q contract.CheckpointRequest) (contract.CheckpointResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.saved = append(w.saved, q.Step)
		return contract.CheckpointResult{}, nil
	})
	contract.AcquireTrainerActivity.Register(env, func(context.Context, contract.AcquireRequest) (contract.Trainer, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.acquired++
		return contract.Trainer{Queue: "q", Host: "h", Epoch: w.acquired}, nil
	})
	contract.CloseLedgerActivity.Register(env, func(_ context.Context, q contract.CloseLedgerRequest) (contract.Done, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = &q
		w.closes = append(w.closes, q)
		return contract.Done{}, nil
	})
	contract.RecordEventActivity.Register(env, func(_ context.Context, q contract.EventRequest) (contract.Done, error) {
		if w.onEvent != nil {
			w.onEvent(q.Event)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, q.Event)
		return contract.Done{}, nil
	})
	contract.InspectActivity.Register(env, func(_ context.Context, q contract.InspectRequest) (contract.InspectResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked++
		var res contract.InspectResult
		for _, id := range q.Workflows {
			found, err := w.inspect(id)
			if err != nil {
				return res, err
			}
			res.Found = append(res.Found, found)
		}
		return res, nil
	})
	contract.ApplyRetentionActivity.Register(env, func(context.Context, contract.RetentionRequest) (contract.Done, error) {
		return contract.Done{}, nil
	})
}

func (w *world) versions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.published)
}

func spec(mode string) contract.RunSpec {
	s := contract.RunSpec{
		RunKey: contract.RunKey{Run: "r", Lineage: "l0"}, Mode: mode, Steps: 6, ValidateEvery: 3, CheckpointEvery: 4,
		Seed: 42, GroupSize: 4, BatchProblems: 4, Prefill: 2, Threshold: 4, EvalChunk: 8, ContinueEvery: 100,
		TrainProblems: 10, DevProblems: 8,
		Timeouts: contract.Timeouts{
			Control: time.Minute, Shard: time.Minute, Rollout: time.Minute, Judge: time.Minute, Update: time.Minute,
			Export: time.Minute, Heartbeat: 10 * time.Second, TrainerLost: time.Minute, ClosedCheck: time.Second,
		},
	}
	if mode == "sync" {
		s.Prefill = 0
	}
	return s
}

// newLoopEnv returns an environment in which groups are played by group and validations by a fixed row. A
// group's result is signalled to the loop, as the real workflow does.
func newLoopEnv(t *testing.T, w *world, group func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(startOptions(contract.LoopID("r")))
	w.register(env)
	env.RegisterWorkflowWithOptions(workflows.TrainLoop, workflow.RegisterOptions{Name: contract.TrainLoop})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.ValidateInput) (contract.DevRow, error) {
		if d := w.validations[in.Version]; d > 0 {
			_ = workflow.Sleep(ctx, d)
		}
		return contract.DevRow{Name: in.Name, Version: in.Version, Problems: in.Problems}, nil
	}, workflow.RegisterOptions{Name: contract.Validate})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.GroupInput) (contract.GroupOutput, error) {
		d := group(ctx, in)
		if d == nil {
			return contract.GroupOutput{}, ctx.Err()
		}
		d.N, d.Tag = in.N, in.Tag
		return contract.GroupOutput{}, workflow.SignalExternalWorkflow(ctx, contract.LoopID("r"), "", contract.SignalGroupDone, *d).Get(ctx, nil)
	}, workflow.RegisterOptions{Name: contract.RolloutGroup})
	env.OnSignalExternalWorkflow(mockAny, "r", mockAny, contract.SignalProgress, mockAny).Return(
		func(_, _, _, _ string, arg any) error {
			p, ok := arg.(contract.Progress)
			if !ok {
				return fmt.Errorf("a message of progress is a %T", arg)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, p)
			return w.deaf
		}).Maybe()
	env.OnRequestCancelExternalWorkflow(mockAny, mockAny, mockAny).Return(nil).Maybe()
	env.SetWorkerOptions(worker.Options{
		Interceptors:             []interceptor.WorkerInterceptor{&cancelWatch{w: w}},
		DeadlockDetectionTimeout: time.Minute, // the machine may be busy
	})
	return env
}

func finish(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
	// Later numbers finish earlier inside a step, so that order of arrival and of number differ.
	_ = workflow.Sleep(ctx, time.Duration(100-in.N%10)*time.Millisecond)
	return &contract.GroupDone{Tokens: in.N}
}

func TestTrainLoop_syncStepsAreExactAndOrdered(t *testing.T) {
	t.Parallel()
	w := &world{}
	var versions sync.Map
	env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
		versions.Store(in.N, in.MinVersion)
		if !in.Pin {
			t.Errorf("group %d: sync mode must pin the version", in.N)
		}
		return finish(ctx, in)
	})
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("sync")})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	for i, s := range w.seals {
		want := []int{4 * i, 4*i + 1, 4*i + 2, 4*i + 3}
		var got []int
		for _, g := range s.Groups {
			got = append(got, g.N)
			if g.Tag != i+1 {
				t.Errorf("step %d: group %d has tag %d, want %d", s.Step, g.N, g.Tag, i+1)
			}
			if v, _ := versions.Load(g.N); v != i {
				t.Errorf("step %d: group %d was sampled at version %v, want %d", s.Step, g.N, v, i)
			}
		}
		if s.Step != i+1 || !slices.Equal(got, want) {
			t.Errorf("seal %d: step %d groups %v, want step %d groups %v", i, s.Step, got, i+1, want)
		}
	}
	var out contract.LoopOutput
	if err := env.GetWorkflowResult(&out); err != nil {
		t.Fatal(err)
	}
	wantDev := []string{"000000", "000003", "000006"}
	var dev []string
	for _, d := range out.Dev {
		dev = append(dev, d.Name)
	}
	if !slices.Equal(dev, wantDev) || !slices.Equal(w.saved, []int{4, 6}) || !slices.Equal(w.published, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("validations %v, checkpoints %v, published %v", dev, w.saved, w.published)
	}
	if out.Trained != 6*4*4 || out.State != "s6" || len(w.closed.Ledger.Dropped) != 0 {
		t.Errorf("trained %d, state %s, left over %v", out.Trained, out.State, w.closed.Ledger.Dropped)
	}
}

// All orders of the data are one permutation an epoch: 24 submissions from 10 problems are 2.4 epochs.
func TestTrainLoop_everyEpochVisitsEveryProblemOnce(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, finish)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("sync")})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, s := range w.seals {
		for _, g := range s.Ledger.Submitted {
			order = append(order, g.Problem)
		}
	}
	for e := range 2 {
		epoch := slices.Clone(order[10*e : 10*e+10])
		slices.Sort(epoch)
		if !slices.Equal(epoch, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("epoch %d visits %v", e, order[10*e:10*e+10])
		}
	}
	if slices.Equal(order[:10], order[10:20]) {
		t.Error("two epochs must differ in order")
	}
}

func TestTrainLoop_asyncKeepsThreeBatchesOutAndNoneTooMany(t *testing.T) {
	t.Parallel()
	w := &world{}
	open, most := 0, 0
	env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
		open++
		most = max(most, open)
		_ = workflow.Sleep(ctx, time.Minute)
		open--
		return &contract.GroupDone{}
	})
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("async")})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	submitted := 0
	for _, s := range w.seals {
		submitted += len(s.Ledger.Submitted)
		for _, g := range s.Groups {
			if lag := s.Step - g.Tag; lag > 3 {
				t.Errorf("step %d trains group %d with tag %d", s.Step, g.N, g.Tag)
			}
		}
	}
	if most != 12 || submitted != 24 || len(w.closed.Ledger.Submitted)+len(w.closed.Ledger.Dropped) != 0 {
		t.Errorf("most groups open %d (want 12), submitted %d (want 24, no more than the steps use), left %v",
			most, submitted, w.closed.Ledger)
	}
}

func TestTrainLoop_staleAndFailedGroupsAreDroppedReturnedAndReplaced(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
		switch {
		case in.N == 0: // slower than the whole threshold: finishes when it is too old
			for w.versions() < 4 {
				_ = workflow.Sleep(ctx, 100*time.Millisecond) // virtual time
			}
			return &contract.GroupDone{Tokens: 999}
		case in.N == 3 && in.Submission == 0:
			return &contract.GroupDone{Failed: "Infrastructure: no sandbox"}
		}
		_ = workflow.Sleep(ctx, time.Second)
		return &contract.GroupDone{Tokens: 1}
	})
	s := spec("async")
	s.Steps = 8
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	type fate struct {
		problem, submission int
		trained             bool
		reason              string
	}
	fates := map[int]*fate{}
	records := append([]record.Ledger{}, w.closed.Ledger)
	for _, q := range w.seals {
		records = append(records, q.Ledger)
	}
	for _, r := range records {
		for _, g := range r.Submitted {
			fates[g.N] = &fate{problem: g.Problem, submission: g.Submission}
		}
	}
	trained := 0
	for _, r := range records {
		for _, n := range r.Trained {
			trained++
			if fates[n] == nil || fates[n].trained || fates[n].reason != "" {
				t.Errorf("group %d is trained without or beyond its one submission: %+v", n, fates[n])
				continue
			}
			fates[n].trained = true
		}
		for _, d := range r.Dropped {
			fates[d.N].reason = d.Reason
		}
	}
	if fates[3].reason != "infrastructure" || trained != 8*4 {
		t.Errorf("group 3: %+v, trained groups %d, want 32", fates[3], trained)
	}
	again := 0
	for n, f := range fates {
		if f.problem == fates[3].problem && f.submission == 1 {
			again++
			if n <= 3 {
				t.Errorf("problem came back as group %d", n)
			}
		}
		if !f.trained && f.reason == "" {
			t.Errorf("group %d has no fate", n)
		}
	}
	if again != 1 {
		t.Errorf("the dropped problem came back %d times, want once", again)
	}
	if fates[0].reason != "stale" && fates[0].reason != "run_ended" {
		t.Errorf("group 0: %+v, want dropped as stale or run_ended", fates[0])
	}
}

func TestTrainLoop_continueAsNewAfterEveryStepChangesNothing(t *testing.T) {
	t.Parallel()
	plain := &world{}
	env := newLoopEnv(t, plain, finish)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("sync")})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}

	chained := &world{}
	s := spec("sync")
	s.ContinueEvery = 1
	in := contract.LoopInput{Spec: s}
	runs := 0
	for {
		runs++
		env := newLoopEnv(t, chained, finish)
		env.ExecuteWorkflow(contract.TrainLoop, in)
		var can *workflow.ContinueAsNewError
		if !errors.As(env.GetWorkflowError(), &can) {
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			break
		}
		var next contract.LoopInput
		if err := json.Unmarshal(can.Input.Payloads[0].Data, &next); err != nil {
			t.Fatal(err)
		}
		if n := len(can.Input.Payloads[0].Data); n > contract.MaxMessage {
			t.Errorf("state of %d bytes is over the message budget", n)
		}
		in = next
	}
	if runs != 6 {
		t.Errorf("runs = %d, want 6", runs)
	}
	ignoreWait := func(qs []contract.SealBatchRequest) []contract.SealBatchRequest {
		out := slices.Clone(qs)
		for i := range out {
			out[i].WaitSeconds = 0
		}
		return out
	}
	if d := cmp.Diff(ignoreWait(plain.seals), ignoreWait(chained.seals)); d != "" {
		t.Errorf("batches differ (-plain +chained):\n%s", d)
	}
	if d := cmp.Diff(plain.published, chained.published); d != "" {
		t.Errorf("versions differ:\n%s", d)
	}
}

func TestTrainLoop_lostTrainerIsReplacedAndRefusalsEndTheRun(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		kind     fault.Kind
		cause    error
		times    int
		want     fault.Kind
		acquired int
	}{
		{"lost once", fault.Lost, nil, 1, "", 2},
		{"fenced off once", fault.Stale, nil, 1, "", 2},
		{"numeric fault", fault.Numeric, nil, 100, fault.Numeric, 1},
		{"lost for ever", fault.Lost, nil, 100, fault.Lost, 10},
		{"not taken for long", fault.Lost, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), 30, "", 31},
		{"not taken for ever", fault.Lost, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), 1000, fault.Lost, 100},
		{"silent for long", fault.Lost, temporal.NewHeartbeatTimeoutError(), 30, "", 31},
		{"silent for ever", fault.Lost, temporal.NewHeartbeatTimeoutError(), 1000, fault.Lost, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &world{updateErr: func(q contract.UpdateRequest, call int) error {
				if q.Step == 2 && call <= tt.times+1 {
					return temporal.NewNonRetryableApplicationError("planned", string(tt.kind), tt.cause)
				}
				return nil
			}}
			env := newLoopEnv(t, w, finish)
			s := spec("sync")
			s.Steps = 3
			env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
			err := env.GetWorkflowError()
			if tt.want == "" {
				if err != nil || !slices.Equal(w.updates, []int{1, 2, 3}) {
					t.Errorf("err %v, updates %v", err, w.updates)
				}
			} else {
				app, ok := errors.AsType[*temporal.ApplicationError](err)
				if !ok || app.Type() != string(tt.want) {
					t.Errorf("err %v, want kind %s", err, tt.want)
				}
			}
			if w.acquired != tt.acquired {
				t.Errorf("trainers acquired %d, want %d", w.acquired, tt.acquired)
			}
			if w.closed == nil {
				t.Error("the ledger must be closed whatever happens")
			}
		})
	}
}

// A person may terminate or cancel a group; its loop must not wait for a report that nobody sends.
func TestTrainLoop_groupsThatEndWithoutAReportAreReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out contract.GroupOutput
		err error
	}{
		"terminated":           {err: temporal.NewNonRetryableApplicationError("terminated", "x", nil)},
		"cancelled":            {err: temporal.NewCanceledError()},
		"timed out":            {err: temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil)},
		"takes it for closed":  {out: contract.GroupOutput{Ended: "run_closed"}},
		"reported, then ended": {out: contract.GroupOutput{Ended: "failed"}, err: temporal.NewApplicationError("reported", "x")},
	} {
		for _, mode := range []string{"sync", "async"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				w := &world{}
				env := newLoopEnv(t, w, finish)
				env.OnWorkflow(contract.RolloutGroup, mockAny, mock.MatchedBy(func(in contract.GroupInput) bool {
					return in.N%5 == 1 && in.Submission == 0
				})).Return(func(ctx workflow.Context, in contract.GroupInput) (contract.GroupOutput, error) {
					_ = workflow.Sleep(ctx, time.Second)
					if c.out.Ended == "failed" {
						done := contract.GroupDone{N: in.N, Tag: in.Tag, Failed: "Infrastructure: told"}
						_ = workflow.SignalExternalWorkflow(ctx, contract.LoopID("r"), "", contract.SignalGroupDone, done).Get(ctx, nil)
					}
					return c.out, c.err
				})
				env.OnWorkflow(contract.RolloutGroup, mockAny, mockAny).Return(func(ctx workflow.Context, in contract.GroupInput) (contract.GroupOutput, error) {
					d := contract.GroupDone{N: in.N, Tag: in.Tag, Tokens: 1}
					return contract.GroupOutput{}, workflow.SignalExternalWorkflow(ctx, contract.LoopID("r"), "", contract.SignalGroupDone, d).Get(ctx, nil)
				})
				env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec(mode)})
				if err := env.GetWorkflowError(); err != nil {
					t.Fatal(err)
				}
				dropped, twice := map[int]bool{}, false
				for _, q := range w.seals {
					for _, d := range q.Ledger.Dropped {
						twice = twice || dropped[d.N]
						dropped[d.N] = true
						if d.N%5 != 1 || d.Reason != "infrastructure" {
							t.Errorf("dropped %+v, want only the groups that ended, as infrastructure", d)
						}
					}
				}
				if len(w.updates) != 6 || len(dropped) == 0 || twice {
					t.Errorf("trained the steps %v, dropped %v (twice: %v); want all 6 steps and each ended group dropped once", w.updates, dropped, twice)
				}
			})
		}
	}
}

func TestTrainLoop_faultRateStopsTraining(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, func(ctx workflow.Context, _ contract.GroupInput) *contract.GroupDone {
		_ = workflow.Sleep(ctx, time.Second)
		return &contract.GroupDone{Failed: "Infrastructure: no interpreter"}
	})
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("async")})
	app, ok := errors.AsType[*temporal.ApplicationError](env.GetWorkflowError())
	if !ok || app.Type() != string(fault.Infrastructure) || len(w.updates) != 0 || !strings.Contains(app.Message(), "no interpreter") {
		t.Errorf("error %v, want the reason of the newest fault; updates %v", env.GetWorkflowError(), w.updates)
	}
}

func TestTrainLoop_pauseHoldsTheUpdateAndStopEndsEarly(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, finish)
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(contract.SignalControl, contract.Control{Pause: true})
	}, 10*time.Millisecond)
	env.RegisterDelayedCallback(func() {
		v, err := env.QueryWorkflow(contract.QueryProgress)
		if err != nil {
			t.Fatal(err)
		}
		var p contract.Progress
		if err := v.Get(&p); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.Phase != "paused" || len(w.updates) != 0 {
			t.Errorf("after an hour of pause: phase %q, updates %v", p.Phase, w.updates)
		}
		env.SignalWorkflow(contract.SignalControl, contract.Control{Resume: true, StopAt: 2})
	}, time.Hour)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("sync")})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.updates, []int{1, 2}) || !slices.Equal(w.saved, []int{2}) {
		t.Errorf("updates %v, checkpoints %v; want 1, 2 and a checkpoint of step 2", w.updates, w.saved)
	}
}

func TestTrainLoop_cancelClosesTheLedger(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, func(ctx workflow.Context, _ contract.GroupInput) *contract.GroupDone {
		_ = workflow.Await(ctx, func() bool { return false })
		return nil
	})
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Second)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("async")})
	if err := env.GetWorkflowError(); !temporal.IsCanceledError(err) {
		t.Fatalf("error %v, want cancelled", err)
	}
	if w.closed == nil || len(w.closed.Ledger.Dropped) != 12 || len(w.closed.Ledger.Submitted) != 12 {
		t.Fatalf("closing record %+v, want 12 groups submitted and dropped", w.closed)
	}
	for _, d := range w.closed.Ledger.Dropped {
		if d.Reason != "run_ended" || d.Finished {
			t.Errorf("drop %+v", d)
		}
	}
}

// The first trainer is never a standby. After a loss standbys are asked before others, and a run without one goes on as before.
func TestTrainLoop_standbysAreAskedFirstAfterALoss(t *testing.T) {
	t.Parallel()
	standby := contract.StandbyQueue("r")
	for name, tt := range map[string]struct {
		lost    error // how step 2 loses its trainer, once
		refusal error // of the standby's queue
		queues  []string
		host    string // that trains step 2
	}{
		"a standby takes it": {lost: stale, queues: []string{contract.QueueTrainer, standby}, host: standby},
		"none listens":       {lost: stale, refusal: temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), queues: []string{contract.QueueTrainer, standby, contract.QueueTrainer}, host: contract.QueueTrainer},
		"it dies meanwhile":  {lost: stale, refusal: temporal.NewHeartbeatTimeoutError(), queues: []string{contract.QueueTrainer, standby, contract.QueueTrainer}, host: contract.QueueTrainer},
		"it refuses":         {lost: stale, refusal: temporal.NewApplicationError("planned", string(fault.Busy)), queues: []string{contract.QueueTrainer, standby, contract.QueueTrainer}, host: contract.QueueTrainer},
		"nothing was lost":   {queues: []string{contract.QueueTrainer}, host: contract.QueueTrainer},
		"not taken in time":  {lost: temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), queues: []string{contract.QueueTrainer, standby}, host: standby},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{}
			env := newLoopEnv(t, w, finish)
			var queues []string
			var trained string
			var attempts int
			env.OnActivity(contract.AcquireTrainerActivity.Name, mock.Anything, mock.Anything).Return(
				func(ctx context.Context, _ contract.AcquireRequest) (contract.Trainer, error) {
					q := activity.GetInfo(ctx).TaskQueue
					queues = append(queues, q)
					if q == standby && tt.refusal != nil {
						return contract.Trainer{}, tt.refusal
					}
					return contract.Trainer{Queue: "of " + q, Host: q, Epoch: len(queues), Standby: q == standby}, nil
				})
			env.OnActivity(contract.UpdatePolicyActivity.Name, mock.Anything, mock.Anything).Return(
				func(ctx context.Context, q contract.UpdateRequest) (contract.UpdateResult, error) {
					if q.Step == 2 {
						if attempts++; attempts == 1 && tt.lost != nil {
							return contract.UpdateResult{}, tt.lost
						}
						trained = strings.TrimPrefix(activity.GetInfo(ctx).TaskQueue, "of ")
					}
					return contract.UpdateResult{}, nil
				})
			s := spec("sync")
			s.Steps = 3
			env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(queues, tt.queues) || trained != tt.host {
				t.Errorf("asked %q, trained by %q; want %q and %q", queues, trained, tt.queues, tt.host)
			}
			said := slices.ContainsFunc(w.events, func(e record.Event) bool {
				return e.Kind == "reacquired" && strings.Contains(e.Message, "standby")
			})
			if said != (tt.host == standby) {
				t.Errorf("events %+v: a standby is named %v, want %v", w.events, said, tt.host == standby)
			}
		})
	}
}

var stale = temporal.NewNonRetryableApplicationError("planned", string(fault.Stale), nil)
