package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/workflows"
)

// lineages plays a whole run over the real step loop, with lineages.
type lineages struct {
	world
	opened  []contract.OpenLineageRequest
	starts  map[string]ledger.Start // by lineage
	inits   []contract.InitPolicyRequest
	reports []string // lineages
	exports []contract.ExportInput
	valid   []string // ids of validations, in order of their start
	groups  map[string]bool
	clashes []string
	refuse  error  // of OpenLineage
	initErr error  // of InitPolicy of a later lineage
	slow    string // name of a validation that takes an hour
	// initHook, if set, is called by every InitPolicy.
	initHook func(contract.InitPolicyRequest)
}

func newLineages(t *testing.T, mode string) (*lineages, *testsuite.TestWorkflowEnvironment) {
	t.Helper()
	w := &lineages{starts: map[string]ledger.Start{}, groups: map[string]bool{}}
	return w, w.environment(t, mode)
}

// environment is one in which a run of the chain can be executed.
func (w *lineages) environment(t *testing.T, mode string) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(startOptions("r"))
	w.register(env)
	contract.StartRunActivity.Register(env, func(context.Context, contract.StartRunRequest) (contract.RunSpec, error) { return spec(mode), nil })
	contract.InitPolicyActivity.Register(env, func(_ context.Context, q contract.InitPolicyRequest) (contract.InitPolicyResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.inits = append(w.inits, q)
		if w.initHook != nil {
			w.initHook(q)
		}
		if q.Lineage != "l0" {
			return contract.InitPolicyResult{}, w.initErr
		}
		return contract.InitPolicyResult{}, nil
	})
	contract.WriteReportActivity.Register(env, func(_ context.Context, q contract.ReportRequest) (contract.ReportResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reports = append(w.reports, q.Lineage)
		return contract.ReportResult{}, nil
	})
	contract.OpenLineageActivity.Register(env, w.open)
	env.RegisterWorkflowWithOptions(workflows.TrainRun, workflow.RegisterOptions{Name: contract.TrainRun})
	env.RegisterWorkflowWithOptions(workflows.TrainLoop, workflow.RegisterOptions{Name: contract.TrainLoop})
	env.RegisterWorkflowWithOptions(func(workflow.Context, contract.RunSpec) (contract.DatasetResult, error) {
		return contract.DatasetResult{Train: 10, Dev: 8}, nil
	}, workflow.RegisterOptions{Name: contract.PrepareDataset})
	env.RegisterWorkflowWithOptions(func(_ workflow.Context, in contract.ExportInput) (contract.ExportOutput, error) {
		w.exports = append(w.exports, in)
		return contract.ExportOutput{}, nil
	}, workflow.RegisterOptions{Name: contract.ExportModel})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.ValidateInput) (contract.DevRow, error) {
		w.valid = append(w.valid, workflow.GetInfo(ctx).WorkflowExecution.ID)
		if in.Name == w.slow && in.Lineage == "l0" {
			if err := workflow.Sleep(ctx, time.Hour); err != nil {
				return contract.DevRow{}, err
			}
		}
		return contract.DevRow{Name: in.Name, Version: in.Version, Problems: in.Problems}, nil
	}, workflow.RegisterOptions{Name: contract.Validate})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.GroupInput) (contract.GroupOutput, error) {
		id := workflow.GetInfo(ctx).WorkflowExecution.ID
		w.mu.Lock()
		if w.groups[id] || id != contract.GroupID(in.Scope(), in.N) {
			w.clashes = append(w.clashes, id)
		}
		w.groups[id] = true
		w.mu.Unlock()
		if err := workflow.Sleep(ctx, time.Minute+time.Duration(in.N%3)*time.Second); err != nil {
			return contract.GroupOutput{}, err
		}
		d := contract.GroupDone{N: in.N, Tag: in.Tag, Tokens: 1}
		return contract.GroupOutput{}, workflow.SignalExternalWorkflow(ctx, contract.LoopID(in.Scope()), "", contract.SignalGroupDone, d).Get(ctx, nil)
	}, workflow.RegisterOptions{Name: contract.RolloutGroup})
	env.OnRequestCancelExternalWorkflow(mockAny, mockAny, mockAny).Return(nil).Maybe() // of groups that have ended
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&cancelWatch{w: &w.world}}})
	return env
}

// open answers as the activity does, from the books so far.
func (w *lineages) open(_ context.Context, q contract.OpenLineageRequest) (contract.OpenLineageResult, error) {
	if w.refuse != nil {
		return contract.OpenLineageResult{}, w.refuse
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, q)
	start := w.fold(q.Lineage, q.Step).Resume()
	name := record.LineageName(len(w.opened))
	w.starts[name] = ledger.Start{Step: q.Step, Cursor: start.Cursor, NextGroup: start.NextGroup}
	return contract.OpenLineageResult{Lineage: name, Start: start}, nil
}

// fold returns the books of a lineage up to a step; -1 is all, the end included.
func (w *lineages) fold(lineage string, step int) ledger.Ledger {
	var records []record.Ledger
	for _, q := range w.seals {
		if q.Lineage == lineage && (step < 0 || q.Step <= step) {
			records = append(records, q.Ledger)
		}
	}
	var end *record.Ledger
	for _, q := range w.closes {
		if q.Lineage == lineage && step < 0 {
			end = &q.Ledger
		}
	}
	return ledger.Fold(w.starts[lineage], records, end)
}

// checkTotals compares the output with what was published and with the books: Trained and Drops are those of the newest lineage, as its report
// and ledger have them, the others those of all. A version whose publication a rollback cut off is trained for nobody.
func (w *lineages) checkTotals(t *testing.T, env *testsuite.TestWorkflowEnvironment, newest string) {
	t.Helper()
	var out contract.RunOutput
	if err := env.GetWorkflowResult(&out); err != nil {
		t.Fatal(err)
	}
	want := contract.RunOutput{Trained: (out.Step - w.starts[newest].Step) * 16, Drops: w.drops(newest)}
	if newest != record.FirstLineage {
		want.Lineage, want.TrainedAll = newest, out.TrainedAll
		if least := len(w.published) - len(w.starts); out.TrainedAll%16 != 0 || out.TrainedAll > len(w.published)*16 || out.TrainedAll < least*16 {
			t.Errorf("%d trajectories of all lineages trained, %d versions published", out.TrainedAll, len(w.published))
		}
		for n := range w.starts {
			want.DropsAll += w.drops(n)
		}
		want.DropsAll += w.drops(record.FirstLineage)
	}
	got := contract.RunOutput{Trained: out.Trained, Drops: out.Drops, Lineage: out.Lineage, TrainedAll: out.TrainedAll, DropsAll: out.DropsAll}
	if asJSON(t, got) != asJSON(t, want) {
		t.Errorf("output %s, want %s", asJSON(t, got), asJSON(t, want))
	}
}

// drops counts the dropped groups in the books of a lineage.
func (w *lineages) drops(lineage string) (n int) {
	for _, q := range w.seals {
		if q.Lineage == lineage {
			n += len(q.Ledger.Dropped)
		}
	}
	for _, q := range w.closes {
		if q.Lineage == lineage {
			n += len(q.Ledger.Dropped)
		}
	}
	return n
}

// check holds for every course: the books of each lineage balance and are closed, ids never clash, steps and tags line up, and
// every old loop has asked its groups to end.
func (w *lineages) check(t *testing.T, env *testsuite.TestWorkflowEnvironment, want map[string][]int) {
	t.Helper()
	w.checkTotals(t, env, record.LineageName(len(want)-1))
	if len(w.clashes) > 0 {
		t.Errorf("ids of groups that clash or are of another lineage: %v", w.clashes)
	}
	ids := map[string]bool{}
	for _, id := range w.valid {
		if ids[id] {
			t.Errorf("two validations have the id %s", id)
		}
		ids[id] = true
	}
	got := map[string][]int{}
	for _, u := range w.trained {
		got[u.Lineage] = append(got[u.Lineage], u.Step)
	}
	for name, steps := range want {
		// The loop goes on while a lineage is opened, so an old one may have a step more.
		for n := len(steps); name != record.LineageName(len(want)-1) && len(steps) > 0 && n < len(got[name]); n++ {
			steps = append(slices.Clone(steps), steps[len(steps)-1]+1)
		}
		if !slices.Equal(got[name], steps) {
			t.Errorf("lineage %s trains steps %v, want %v", name, got[name], steps)
		}
		books := w.fold(name, -1)
		if err := books.Balance(); err != nil || !books.Ended {
			t.Errorf("books of %s: %v, ended %v", name, err, books.Ended)
		}
	}
	if len(got) != len(want) {
		t.Errorf("lineages %v train, want %v", got, want)
	}
	for _, q := range w.closes {
		for _, d := range q.Ledger.Dropped {
			if id := contract.GroupID(q.Scope(), d.N); !d.Finished && !w.asks[id] {
				t.Errorf("group %s is dropped as %s and was not cancelled", id, d.Reason)
			}
		}
	}
	for _, s := range w.seals {
		for _, g := range s.Groups {
			if g.Tag <= w.starts[s.Lineage].Step || g.Tag > s.Step || g.N < w.starts[s.Lineage].NextGroup {
				t.Errorf("%s step %d trains group %d with tag %d; the lineage begins after step %d with group %d",
					s.Lineage, s.Step, g.N, g.Tag, w.starts[s.Lineage].Step, w.starts[s.Lineage].NextGroup)
			}
		}
	}
}

// whenTraining calls f once, while a lineage trains a step.
func (w *lineages) whenTraining(lineage string, step int, f func()) {
	var once sync.Once
	old := w.updateErr
	w.updateErr = func(q contract.UpdateRequest, n int) error {
		if q.Lineage == lineage && q.Step == step {
			once.Do(f)
		}
		if old != nil {
			return old(q, n)
		}
		return nil
	}
}

// refusal is err as an activity returns it.
func refusal(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), string(fault.KindOf(err)), nil)
}

// reply is what became of a rollback.
type reply struct {
	answer
	result contract.RollbackResult
}

func (r *reply) Complete(v any, err error) {
	r.answer.Complete(v, err)
	r.result, _ = v.(contract.RollbackResult)
}

func rollBack(env *testsuite.TestWorkflowEnvironment, id string, step int, to *reply) {
	env.UpdateWorkflow(contract.UpdateRollback, id, to, sent(fmt.Sprintf(`{"step": %d}`, step)))
}

// In every mode and to every step, a rollback ends the loop, closes its books, and trains the later steps again in a lineage of their own.
func TestRollback_toEveryStepWhileTraining(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		for at := 1; at <= 6; at++ {
			for step := range at {
				t.Run(fmt.Sprintf("%s in step %d to %d", mode, at, step), func(t *testing.T) {
					t.Parallel()
					w, env := newLineages(t, mode)
					got := &reply{}
					w.whenTraining("l0", at, func() {
						env.RegisterDelayedCallback(func() { rollBack(env, "u", step, got) }, 0)
					})
					env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
					if err := env.GetWorkflowError(); err != nil {
						t.Fatal(err)
					}
					if want := (contract.RollbackResult{Lineage: "l1", Parent: "l0", Step: step}); got.failed != nil || got.rejected != nil || got.result != want {
						t.Fatalf("answer %+v, want %+v", got, want)
					}
					old := len(w.seals)
					for i, s := range w.seals {
						if s.Lineage == "l1" {
							old = i
							break
						}
					}
					steps := func(from, to int) (all []int) {
						for s := from; s <= to; s++ {
							all = append(all, s)
						}
						return all
					}
					// The step in progress has its update behind it or not; both are an end.
					last := at
					for _, u := range w.trained {
						if u.Lineage == "l0" {
							last = max(last, u.Step)
						}
					}
					if old < at {
						t.Errorf("%d batches of the old lineage, want at least %d", old, at)
					}
					w.check(t, env, map[string][]int{"l0": steps(1, last), "l1": steps(step+1, 6)})
					if want := (contract.InitPolicyRequest{RunKey: contract.RunKey{Run: "r", Lineage: "l1"}, Step: step}); len(w.inits) != 2 || w.inits[1] != want {
						t.Errorf("first versions %+v, want %+v last", w.inits, want)
					}
					if len(w.exports) != 1 || w.exports[0].Spec.Lineage != "l1" || !slices.Equal(w.reports, []string{"l0", "l1"}) {
						t.Errorf("exports %+v, reports %v", w.exports, w.reports)
					}
					var out contract.RunOutput
					if err := env.GetWorkflowResult(&out); err != nil {
						t.Fatal(err)
					}
					var dev []int
					for _, d := range out.Dev {
						dev = append(dev, d.Version)
					}
					if want := slices.Compact(slices.Sorted(slices.Values([]int{0, 3, step, 6}))); !slices.Contains(dev, step) || !slices.Equal(dev, want) {
						t.Errorf("dev table has versions %v, want %v", dev, want)
					}
				})
			}
		}
	}
}

// In mode sync the problems come again in the order in which they came before, under the numbers that they had.
func TestRollback_syncSendsTheSameGroupsAgain(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "sync")
	w.whenTraining("l0", 5, func() { env.RegisterDelayedCallback(func() { rollBack(env, "u", 2, &reply{}) }, 0) })
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	sent := map[string]map[int][]record.Submitted{"l0": {}, "l1": {}}
	for _, s := range w.seals {
		sent[s.Lineage][s.Step] = s.Ledger.Submitted
	}
	for step := 3; step <= 5; step++ {
		if old, now := sent["l0"][step], sent["l1"][step]; len(now) == 0 || !slices.Equal(old, now) {
			t.Errorf("step %d: groups %+v, in the old lineage %+v", step, now, old)
		}
	}
}

// Settings and a pause outlive a rollback, and messages in its midst reach the next loop.
func TestRollback_whilePaused(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "async")
	got := &reply{}
	w.whenTraining("l0", 4, func() {
		env.RegisterDelayedCallback(func() {
			env.UpdateWorkflow(contract.UpdatePause, "p", &answer{})
			env.UpdateWorkflow(contract.UpdatePrefill, "f", &answer{}, sent(`{"prefill": 1}`))
		}, 0)
		env.RegisterDelayedCallback(func() {
			if p := progress(t, env); !p.Paused {
				t.Errorf("progress %+v, want paused", p)
			}
			rollBack(env, "u", 2, got)
			env.UpdateWorkflow(contract.UpdateRate, "lr", &answer{}, sent(`{"learning_rate": 1e-5}`))
		}, time.Hour)
		env.RegisterDelayedCallback(func() {
			p := progress(t, env)
			if !p.Paused || p.Lineage != "l1" || p.Step != 2 || p.Settings.Prefill == nil || got.result.Lineage != "l1" {
				t.Errorf("progress %+v, answer %+v; want lineage l1 paused at step 2 with its settings", p, got)
			}
			env.UpdateWorkflow(contract.UpdateResume, "q", &answer{})
		}, 2*time.Hour)
	})
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	w.check(t, env, map[string][]int{"l0": {1, 2, 3, 4}, "l1": {3, 4, 5, 6}})
	for _, s := range w.seals {
		if want := map[string]float64{"l0": 0, "l1": 1e-5}[s.Lineage]; s.LearningRate != want {
			t.Errorf("%s step %d is sealed with learning rate %g, want %g", s.Lineage, s.Step, s.LearningRate, want)
		}
	}
}

// The learning rate in force holds from the first step of the new lineage on; a change that lies ahead keeps its step.
func TestRollback_keepsTheRateInForce(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "sync")
	rate := func(text string) { env.UpdateWorkflow(contract.UpdateRate, text, &answer{}, sent(text)) }
	w.whenTraining("l0", 1, func() {
		env.RegisterDelayedCallback(func() {
			rate(`{"learning_rate": 0.1, "from_step": 2}`)
			rate(`{"learning_rate": 0.2, "from_step": 3}`)
			rate(`{"learning_rate": 0.3, "from_step": 6}`)
		}, 0)
	})
	w.whenTraining("l0", 4, func() { env.RegisterDelayedCallback(func() { rollBack(env, "u", 1, &reply{}) }, 0) })
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, s := range w.seals {
		got[s.Lineage] = append(got[s.Lineage], s.LearningRate)
	}
	if want := []float64{0, 0.1, 0.2, 0.2}; !slices.Equal(got["l0"][:4], want) {
		t.Errorf("rates of l0 %v, want %v", got["l0"], want)
	}
	if want := []float64{0.2, 0.2, 0.2, 0.2, 0.3}; !slices.Equal(got["l1"], want) {
		t.Errorf("rates of l1 %v, want %v", got["l1"], want)
	}
}

// A validation in progress ends with its loop; the step that it was of is validated in the new lineage.
func TestRollback_duringAValidation(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		for _, slow := range []string{"000000", "000003", "000006"} {
			t.Run(mode+" "+slow, func(t *testing.T) {
				t.Parallel()
				w, env := newLineages(t, mode)
				w.slow = slow
				got := &reply{}
				env.RegisterDelayedCallback(func() { rollBack(env, "u", progress(t, env).Step, got) }, 40*time.Minute)
				env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
				if err := env.GetWorkflowError(); err != nil {
					t.Fatal(err)
				}
				var out contract.RunOutput
				if err := env.GetWorkflowResult(&out); err != nil {
					t.Fatal(err)
				}
				if got.result.Lineage != "l1" || out.Step != 6 {
					t.Fatalf("answer %+v, result %+v", got, out)
				}
				if name := record.StepName(got.result.Step); !slices.ContainsFunc(out.Dev, func(d contract.DevRow) bool { return d.Name == name }) {
					t.Errorf("dev table %+v has no row of step %s", out.Dev, name)
				}
				for _, l := range []string{"l0", "l1"} {
					if err := w.fold(l, -1).Balance(); err != nil {
						t.Errorf("%s: %v", l, err)
					}
				}
			})
		}
	}
}

// A lineage can be rolled back as the first can, also to the step that it began with.
func TestRollback_twice(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		for second := 2; second <= 4; second++ {
			t.Run(fmt.Sprint(mode, second), func(t *testing.T) {
				t.Parallel()
				w, env := newLineages(t, mode)
				one, two, low := &reply{}, &reply{}, &reply{}
				w.whenTraining("l0", 4, func() { env.RegisterDelayedCallback(func() { rollBack(env, "u1", 2, one) }, 0) })
				w.whenTraining("l1", 5, func() {
					env.RegisterDelayedCallback(func() {
						rollBack(env, "u0", 1, low)
						rollBack(env, "u2", second, two)
					}, 0)
				})
				env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
				if err := env.GetWorkflowError(); err != nil {
					t.Fatal(err)
				}
				if low.rejected == nil || !strings.Contains(low.rejected.Error(), "before the first step of lineage l1, 2") {
					t.Errorf("to a step of the lineage before: %+v, want a refusal", low)
				}
				if want := (contract.RollbackResult{Lineage: "l2", Parent: "l1", Step: second}); two.result != want {
					t.Errorf("second answer %+v, want %+v", two, want)
				}
				var l2 []int
				for s := second + 1; s <= 6; s++ {
					l2 = append(l2, s)
				}
				w.check(t, env, map[string][]int{"l0": {1, 2, 3, 4}, "l1": {3, 4, 5}, "l2": l2})
			})
		}
	}
}

// What is refused changes nothing: the run goes on in its lineage.
func TestRollback_refusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input, want string
		before      bool // before the loop
		refuse      error
	}{
		"no step":              {input: `{}`, want: `want {"step": N}`},
		"a negative step":      {input: `{"step": -1}`, want: "before the first step"},
		"the step in progress": {input: `{"step": 3}`, want: "not trained in lineage l0, the newest is 2"},
		"a step ahead":         {input: `{"step": 6}`, want: "not trained"},
		"text":                 {input: `{"step": "2"}`, want: `rollback: "step" is the text "2", want a whole number; want {"step": N}`},
		"another key":          {input: `{"stpe": 2}`, want: `rollback: "stpe" is not known (known: step)`},
		"before the loop":      {input: `{"step": 0}`, want: "has not begun", before: true},
		"a store without it":   {input: `{"step": 1}`, want: "no result", refuse: fault.New(fault.Invalid, "x", "step 1 has no result")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, env := newLineages(t, "sync")
			if c.refuse != nil {
				w.refuse = refusal(c.refuse)
			}
			got := &reply{}
			send := func() { env.UpdateWorkflow(contract.UpdateRollback, "u", got, sent(c.input)) }
			if c.before {
				env.RegisterDelayedCallback(send, 0)
			} else {
				w.whenTraining("l0", 3, func() { env.RegisterDelayedCallback(send, 0) })
			}
			env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
			if err := env.GetWorkflowError(); err != nil {
				t.Fatal(err)
			}
			if err := cmp.Or(got.rejected, got.failed); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("answer %+v, want a refusal with %q", got, c.want)
			}
			w.check(t, env, map[string][]int{"l0": {1, 2, 3, 4, 5, 6}})
		})
	}
}

// While one rollback is in progress another is refused; so it is after the loop.
func TestRollback_oneAtATime(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "sync")
	first, second := &reply{}, &reply{}
	w.whenTraining("l0", 4, func() {
		env.RegisterDelayedCallback(func() {
			rollBack(env, "u1", 2, first)
			rollBack(env, "u2", 1, second)
		}, 0)
	})
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if first.result.Lineage != "l1" || second.rejected == nil || !strings.Contains(second.rejected.Error(), "rolling back to step 2 already") {
		t.Errorf("answers %+v and %+v, want l1 and a refusal", first, second)
	}
}

// A state that cannot be made ends the run; the update says why, and the report is that of the new lineage.
func TestRollback_thatFails(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "async")
	w.initErr = refusal(fault.New(fault.Corrupt, "x", "no good checkpoint"))
	got := &reply{}
	w.whenTraining("l0", 4, func() { env.RegisterDelayedCallback(func() { rollBack(env, "u", 2, got) }, 0) })
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "no good checkpoint") {
		t.Errorf("the run ended with %v", err)
	}
	if got.failed == nil || !strings.Contains(got.failed.Error(), "no good checkpoint") {
		t.Errorf("answer %+v, want the reason", got)
	}
	if !slices.Equal(w.reports, []string{"l0", "l1"}) {
		t.Errorf("reports of %v", w.reports)
	}
}

// A cancel of the run in the midst of a rollback ends it; the books of the old lineage are closed.
func TestRollback_cancelInItsMidst(t *testing.T) {
	t.Parallel()
	w, env := newLineages(t, "async")
	got := &reply{}
	w.whenTraining("l0", 4, func() {
		env.RegisterDelayedCallback(func() {
			rollBack(env, "u", 2, got)
			env.CancelWorkflow()
		}, 0)
	})
	env.ExecuteWorkflow(contract.TrainRun, json.RawMessage(`{}`))
	if err := env.GetWorkflowError(); err == nil {
		t.Error("the run must end as cancelled")
	}
	if got.result.Lineage != "" {
		t.Errorf("answer %+v, want none", got)
	}
	if books := w.fold("l0", -1); books.Balance() != nil || !books.Ended {
		t.Errorf("books: %v, ended %v", books.Balance(), books.Ended)
	}
}

// A loop that is due to continue as new when it is cancelled ends instead: the next run of its chain would not hear of it.
func TestTrainLoop_cancelOutlivesContinueAsNew(t *testing.T) {
	t.Parallel()
	w := &world{}
	env := newLoopEnv(t, w, finish)
	w.during = func(step int) {
		if step == 2 {
			env.CancelWorkflow()
		}
	}
	s := spec("sync")
	s.ContinueEvery = 2
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
	if err := env.GetWorkflowError(); err == nil || workflow.IsContinueAsNewError(err) {
		t.Errorf("the loop ended with %v, want cancelled", err)
	}
	if w.closed == nil {
		t.Error("the ledger was not closed")
	}
}
