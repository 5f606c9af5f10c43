package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
)

// course is one random course of a loop: how long each group takes and what becomes of it.
type course struct {
	spec     contract.RunSpec
	seed     uint64
	failures float64                                          // share of groups that fail
	group    func(in contract.GroupInput) *contract.GroupDone // if set, decides after a second
	prepare  func(env *testsuite.TestWorkflowEnvironment)
}

func newCourse(policy string, seed uint64) course {
	r := rand.New(rand.NewPCG(seed, 1))
	s := spec("async")
	s.Policy = policy
	s.BatchProblems, s.Threshold = 1+r.IntN(4), 1+r.IntN(4)
	s.Prefill, s.Steps = r.IntN(s.Threshold), 3+r.IntN(8)
	s.TrainProblems = s.BatchProblems + r.IntN(12)
	s.ContinueEvery = []int{1, 2, 100}[r.IntN(3)]
	return course{spec: s, seed: seed, failures: []float64{0, 0.1}[r.IntN(2)]}
}

// play runs the course, over every run of the chain, and returns what the loop recorded.
// A group of an older run of the chain reports whether it was cancelled or not.
func (c course) play(t *testing.T) *world {
	t.Helper()
	w := &world{}
	c.playIn(t, w)
	return w
}

func (c course) playIn(t *testing.T, w *world) {
	t.Helper()
	if err := c.run(t, w); err != nil {
		t.Fatalf("%+v: %v", c.spec, err)
	}
}

func (c course) run(t *testing.T, w *world) error {
	t.Helper()
	in := contract.LoopInput{Spec: c.spec}
	for runs := 0; ; runs++ {
		if runs > c.spec.Steps {
			t.Fatal("the chain does not end")
		}
		env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
			if c.group != nil {
				_ = workflow.Sleep(ctx, time.Second)
				return c.group(in)
			}
			r := rand.New(rand.NewPCG(c.seed, uint64(in.N)+2))
			took := time.Duration(1+r.IntN(20)) * time.Second
			if r.IntN(4) == 0 { // a long answer
				took *= 20
			}
			fails := r.Float64() < c.failures
			if workflow.Sleep(ctx, took) != nil {
				return nil
			}
			if fails {
				return &contract.GroupDone{Failed: "Infrastructure: planned"}
			}
			return &contract.GroupDone{Tokens: int(took.Seconds())}
		})
		// Groups of older runs of the chain report to this one.
		for _, g := range in.State.Open {
			if !g.Done && g.Failed == "" {
				after := time.Duration(rand.New(rand.NewPCG(c.seed, uint64(g.N)+3)).IntN(300)) * time.Second
				env.RegisterDelayedCallback(func() {
					env.SignalWorkflow(contract.SignalGroupDone, contract.GroupDone{N: g.N, Tag: g.Tag, Tokens: 5})
				}, after)
			}
		}
		if c.prepare != nil {
			c.prepare(env)
		}
		env.ExecuteWorkflow(contract.TrainLoop, in)
		err := env.GetWorkflowError()
		var can *workflow.ContinueAsNewError
		if !errors.As(err, &can) {
			return err
		}
		in = contract.LoopInput{}
		if err := json.Unmarshal(can.Input.Payloads[0].Data, &in); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever order groups finish in, and however long they take: every step trains, no group beyond the threshold is trained, every group
// has one fate, every dropped problem comes back once, and what a policy promises about stale groups holds.
func TestStaleness_everyPolicyForEveryCourse(t *testing.T) {
	t.Parallel()
	const courses = 30
	for _, policy := range []string{contract.PolicyDrop, contract.PolicyWait, contract.PolicyCancelEarly} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			stale, unfinished := 0, 0
			for seed := range uint64(courses) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					c := newCourse(policy, seed)
					w := c.play(t)
					balance(t, w)
					checkThreshold(t, c.spec, w)
					if n := books(w).Count().Trained; n != c.spec.Steps*c.spec.BatchProblems || len(w.updates) != c.spec.Steps {
						t.Errorf("%+v: trained %d groups in the steps %v", c.spec, n, w.updates)
					}
					for _, g := range books(w).Groups {
						if g.Reason != ledger.Stale {
							continue
						}
						stale++
						if !g.Finished {
							unfinished++
							if !w.cancelled(g.N) {
								t.Errorf("group %d was given up as stale while it ran, and not cancelled", g.N)
							}
						}
						if policy == contract.PolicyWait {
							t.Errorf("%+v: group %+v is stale", c.spec, g)
						}
					}
				})
			}
			if (stale > 0) != (policy != contract.PolicyWait) || (unfinished > 0) != (policy == contract.PolicyCancelEarly) {
				t.Errorf("%d stale groups, %d of them unfinished: the courses do not exercise the policy", stale, unfinished)
			}
		})
	}
}

func checkThreshold(t *testing.T, s contract.RunSpec, w *world) {
	t.Helper()
	for _, q := range w.seals {
		if len(q.Ledger.TrainedTokens) != len(q.Groups) || slices.Min(q.Ledger.TrainedTokens) < 1 {
			t.Errorf("step %d records the tokens %v of %d groups", q.Step, q.Ledger.TrainedTokens, len(q.Groups))
		}
		for _, g := range q.Groups {
			if lag := q.Step - g.Tag; lag > s.Threshold-1 || lag < 0 {
				t.Errorf("step %d trains group %d with tag %d, the threshold is %d", q.Step, g.N, g.Tag, s.Threshold)
			}
		}
	}
}

// A group that no step can use is cancelled while the step that left it behind is being trained, not when the next one begins.
func TestStaleness_cancelEarlyDoesNotWaitForTheUpdate(t *testing.T) {
	t.Parallel()
	w := &world{}
	s := spec("async")
	s.Policy, s.Steps = contract.PolicyCancelEarly, 6
	cancelled := make(chan struct{})
	w.onEnd = func(n int) {
		if n == 0 {
			close(cancelled)
		}
	}
	w.during = func(step int) { // the update of step 4 ends only after the cancel
		if step == 4 {
			<-cancelled
		}
	}
	env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
		if in.N == 0 {
			_ = workflow.Await(ctx, func() bool { return false })
		}
		return finish(ctx, in)
	})
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	// Tag 1 and threshold 4: step 4 is the last that could train it.
	g, _ := books(w).Group(0)
	if g.Reason != ledger.Stale || g.Finished || g.Step != 5 {
		t.Errorf("group 0: %+v, want dropped as stale, unfinished, in the record of step 5", g)
	}
	balance(t, w)
}

// Under wait the step is held up by a group that would be too old for the next one, and by nothing else.
func TestStaleness_waitHoldsTheStepThatALateGroupNeeds(t *testing.T) {
	t.Parallel()
	w := &world{}
	s := spec("async")
	s.Policy, s.Steps = contract.PolicyWait, 6
	env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
		if in.N == 0 {
			_ = workflow.Sleep(ctx, 24*time.Hour)
		}
		return finish(ctx, in)
	})
	env.RegisterDelayedCallback(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !slices.Equal(w.updates, []int{1, 2, 3}) {
			t.Errorf("an hour before the late group ends the steps %v are trained, want 1 to 3", w.updates)
		}
	}, 23*time.Hour)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	g, _ := books(w).Group(0)
	if g.Fate != ledger.Trained || g.Step != 4 {
		t.Errorf("group 0: %+v, want trained in step 4", g)
	}
}

// A report that arrives while the loop writes down another group's failure must not be lost: the step would wait for it for ever.
func TestTrainLoop_reportsDuringAnEventAreKept(t *testing.T) {
	t.Parallel()
	for _, failed := range []int{0, 1, 3} {
		w := &world{}
		var told []int
		env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
			switch {
			case in.N == failed:
				_ = workflow.Sleep(ctx, time.Second)
				return &contract.GroupDone{Failed: "Infrastructure: planned"}
			case in.N < 4: // reported by the event
				_ = workflow.Sleep(ctx, 1000*time.Hour)
				return nil
			}
			return finish(ctx, in)
		})
		w.onEvent = func(record.Event) {
			for n := range 4 {
				if n != failed && !slices.Contains(told, n) {
					told = append(told, n)
					env.SignalWorkflow(contract.SignalGroupDone, contract.GroupDone{N: n, Tag: 1, Tokens: 1})
				}
			}
		}
		env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: spec("sync")})
		if err := env.GetWorkflowError(); err != nil {
			t.Fatalf("group %d fails: %v", failed, err)
		}
		balance(t, w)
	}
}
