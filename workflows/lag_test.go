package workflows_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
)

// With a lag L the batch of step s is made of the groups in the order in which they were sent out, all pinned to version s-1-L (the first one
// for the steps before), whatever finishes first, whatever fails, and however often the loop continues as new.
func TestLag_everyBatchHasTheVersionThatItMustHave(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		lag, steps, every := 1+r.IntN(5), 4+r.IntN(6), []int{1, 2, 100}[r.IntN(3)]
		t.Run(fmt.Sprintf("lag %d, %d steps, continued every %d, seed %d", lag, steps, every, seed), func(t *testing.T) {
			t.Parallel()
			w := &world{}
			version := map[int]int{} // of a group
			s := spec("sync")
			s.Steps, s.Lag, s.Prefill, s.Threshold, s.ContinueEvery = steps, lag, lag, lag+1, every
			s.FaultLimit, s.FaultWindow = 1000, 4
			in := contract.LoopInput{Spec: s}
			for runs := 0; ; runs++ {
				if runs > steps+1 {
					t.Fatal("the loop does not end")
				}
				env := newLoopEnv(t, w, func(ctx workflow.Context, in contract.GroupInput) *contract.GroupDone {
					version[in.N] = in.MinVersion
					if now := w.versions(); !in.Pin || now != in.MinVersion {
						t.Errorf("group %d is sent out while version %d is live: %+v", in.N, now, in)
					}
					late := rand.New(rand.NewPCG(seed, uint64(in.N)))
					_ = workflow.Sleep(ctx, time.Duration(1+late.IntN(20))*time.Second)
					if now := w.versions(); now != in.MinVersion {
						t.Errorf("group %d must be sampled by version %d and still runs when %d is live", in.N, in.MinVersion, now)
					}
					if in.Submission == 0 && late.IntN(5) == 0 {
						return &contract.GroupDone{Failed: "Infrastructure: no sandbox"}
					}
					return &contract.GroupDone{Tokens: 1}
				})
				env.ExecuteWorkflow(contract.TrainLoop, in)
				err := env.GetWorkflowError()
				var again *workflow.ContinueAsNewError
				if errors.As(err, &again) {
					in = contract.LoopInput{}
					if err := converter.GetDefaultDataConverter().FromPayloads(again.Input, &in); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			newest := -1
			for i, q := range w.seals {
				if q.Step != i+1 || len(q.Groups) != s.BatchProblems {
					t.Fatalf("seal %d is of step %d with %d groups", i, q.Step, len(q.Groups))
				}
				for _, g := range q.Groups {
					if want := max(0, q.Step-1-lag); version[g.N] != want {
						t.Errorf("step %d trains group %d of version %d, want version %d", q.Step, g.N, version[g.N], want)
					}
					if g.N <= newest {
						t.Errorf("step %d trains group %d after group %d", q.Step, g.N, newest)
					}
					newest = g.N
				}
				for _, d := range q.Ledger.Dropped {
					if d.Reason != "infrastructure" {
						t.Errorf("group %d was dropped as %s", d.N, d.Reason)
					}
				}
			}
			if len(w.seals) != steps || len(w.published) != steps {
				t.Errorf("%d steps sealed, %d published, want %d", len(w.seals), len(w.published), steps)
			}
			balance(t, w)
		})
	}
}

// A stop that comes in time ends the loop after its step: the batches ahead are given up, and none is waited for.
func TestLag_stopEndsTheLoopWithBatchesAhead(t *testing.T) {
	t.Parallel()
	w := &world{}
	s := spec("sync")
	s.Steps, s.Lag, s.Prefill, s.Threshold = 9, 3, 3, 4
	env := newLoopEnv(t, w, finish)
	env.RegisterDelayedCallback(func() { env.SignalWorkflow(contract.SignalControl, contract.Control{StopAt: 2}) }, time.Millisecond)
	env.ExecuteWorkflow(contract.TrainLoop, contract.LoopInput{Spec: s})
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if len(w.seals) != 2 {
		t.Errorf("%d steps were trained, want 2", len(w.seals))
	}
	for _, d := range w.closed.Ledger.Dropped {
		if d.Reason != "run_ended" {
			t.Errorf("group %d was dropped as %s", d.N, d.Reason)
		}
	}
	balance(t, w)
}
