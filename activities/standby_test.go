package activities

import (
	"context"
	"errors"
	"testing"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
)

// A standby's process refuses every task of the shared queue that is of another run than its own.
func TestAccepts_refusesOtherRuns(t *testing.T) {
	t.Parallel()
	c := started(t)
	if _, err := newTrainer(t, c, new(bool)).initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil); err != nil {
		t.Fatal(err)
	}
	epoch := getJSON[record.Fence](t, c.store(), lay.Fence()).Epoch
	tr := newTrainer(t, c, new(bool))
	tr.Accepts = func(run string) error { return fault.New(fault.Busy, "t", "not for %s", run) }
	_, initErr := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil)
	_, acquireErr := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil)
	_, exportErr := tr.exportPolicy(t.Context(), contract.ExportRequest{RunKey: key}, nil)
	for name, err := range map[string]error{"init": initErr, "acquire": acquireErr, "export": exportErr} {
		if !fault.Is(err, fault.Busy) {
			t.Errorf("%s: got %v, want Busy", name, err)
		}
	}
	if got := getJSON[record.Fence](t, c.store(), lay.Fence()).Epoch; got != epoch {
		t.Errorf("epoch %d was opened after %d", got, epoch)
	}
	tr.Accepts = func(string) error { return nil }
	if got, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil); err != nil || got.Epoch != epoch+1 || got.Standby {
		t.Errorf("accepted: got %+v, %v; want epoch %d, without a state", got, err, epoch+1)
	}
}

func TestAcquire_saysThatAStateWasHeld(t *testing.T) {
	t.Parallel()
	c := started(t)
	first, tr := newTrainer(t, c, new(bool)), newTrainer(t, c, new(bool))
	if _, err := first.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Host.Follow(t.Context(), lay); err != nil {
		t.Fatal(err)
	}
	for round, want := range []bool{true, false} { // the second time it is the run's trainer already
		if got, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil); err != nil || got.Standby != want {
			t.Errorf("round %d: got %+v, %v; want standby %v", round, got, err, want)
		}
	}
}

// A released run does not keep its host from another one, open or not.
func TestRelease_freesTheHost(t *testing.T) {
	t.Parallel()
	open := true
	tr := newTrainer(t, started(t), &open)
	if _, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil); err != nil {
		t.Fatal(err)
	}
	other := contract.RunKey{Run: "other", Lineage: "l0"}
	tr.Release(other.Layout()) // not the one that it serves
	if _, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: other}, nil); !fault.Is(err, fault.Busy) {
		t.Errorf("before the release: got %v, want Busy", err)
	}
	tr.Release(lay)
	if got := tr.Host.Leading(); got != (record.Layout{}) {
		t.Errorf("leading %v after the release", got)
	}
	if _, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: other}, nil); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// A restarted trainer that holds nothing leaves the work to a standby, once: what it was acquired for, it does.
func TestYield_toAStandbyThatHoldsTheState(t *testing.T) {
	t.Parallel()
	const heard, silent, broken = "listens", "none", "no answer"
	for _, standby := range []string{heard, silent, broken} {
		for _, holds := range []string{"nothing", "followed", "acquired"} {
			t.Run(standby+", "+holds, func(t *testing.T) {
				t.Parallel()
				c := started(t)
				tr := newTrainer(t, c, new(bool))
				if _, err := tr.initPolicy(t.Context(), contract.InitPolicyRequest{RunKey: key}, nil); err != nil {
					t.Fatal(err)
				}
				tr = newTrainer(t, c, new(bool)) // restarted, and still the holder of the fence
				tr.Standby = func(_ context.Context, run string) (bool, error) {
					if standby == broken {
						return true, fault.New(fault.Busy, "t", "planned")
					}
					return standby == heard && run == key.Run, nil
				}
				epoch := 1
				switch holds {
				case "followed":
					if _, err := tr.Host.Follow(t.Context(), lay); err != nil {
						t.Fatal(err)
					}
				case "acquired":
					got, err := tr.acquire(t.Context(), contract.AcquireRequest{RunKey: key}, nil)
					if err != nil {
						t.Fatal(err)
					}
					epoch = got.Epoch
				}
				var suite testsuite.WorkflowTestSuite
				env := suite.NewTestActivityEnvironment()
				tr.RegisterOwn(env)
				_, err := env.ExecuteActivity(contract.SaveCheckpointActivity.Name, contract.CheckpointRequest{RunKey: key, Epoch: epoch})
				app, _ := errors.AsType[*temporal.ApplicationError](err)
				if yielded := app != nil && app.Type() == string(fault.Stale); yielded != (standby == heard && holds == "nothing") || err != nil && !yielded {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}
