package simulate_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/simulate"
)

func options(t testing.TB, steps int) simulate.Options {
	t.Helper()
	lengths, err := simulate.ParseLengths("lognormal:mean=2500,sigma=1,max=8192")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := simulate.ParseRate("40")
	if err != nil {
		t.Fatal(err)
	}
	return simulate.Options{
		Spec: contract.RunSpec{
			Mode: "async", Steps: steps, ValidateEvery: 25, CheckpointEvery: 50, Seed: 42, GroupSize: 4, BatchProblems: 16, Prefill: 2,
			Threshold: 4, EvalChunk: 16, ContinueEvery: 25, SearchAttributes: true,
			Timeouts: contract.Timeouts{
				Control: time.Minute, Shard: time.Hour, Rollout: 2 * time.Hour, Judge: time.Hour, Update: 4 * time.Hour, Export: time.Hour,
				Heartbeat: 30 * time.Second, TrainerLost: time.Minute, ClosedCheck: 30 * time.Second,
			},
		},
		TrainProblems: 2000, DevProblems: 256, Workers: 8, Slots: 16, Rate: rate, Lengths: lengths, Update: 20 * time.Second,
		Checkpoint: 5 * time.Second, Judge: 5 * time.Second, Flush: 2 * time.Second, Restart: 30 * time.Second, Hop: 5 * time.Millisecond,
		Failures: 0.01, Seed: 42,
	}
}

func TestX(t *testing.T) {
	r, err := simulate.Run(t.Context(), options(t, 100), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.MarshalIndent(r, "", " ")
	t.Logf("%s", b)
	t.Log(r.Loops)
}
