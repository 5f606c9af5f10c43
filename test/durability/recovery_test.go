//go:build durability

package durability

import (
	"slices"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/record"
)

// The trainer dies in the update 1, 25 and 49 steps after the only checkpoint. The replays give the recorded states, no token is sampled
// twice, and the test prints what each death cost.
func TestRecovery_costsTheReplayAndNoToken(t *testing.T) {
	onlyLong(t)
	const last = 51
	c := newCluster(t, append(settings("sync"), "--set", "run.steps=51", "--set", "run.checkpoint_every=100", "--set", "run.validate_every=100",
		"--set", "run.continue_every=25", "--set", "rollout.batch_problems=2", "--set", "rollout.group_size=2"))
	var killed []int // the steps in whose update the trainer died
	at := map[int]time.Time{}
	since := []int{1, 25, 49}
	c.drive(func(string) string { return "" }, func() {
		if n := len(killed); n < len(since) && c.there(lineage.Batch(since[n]+1)) {
			step := len(c.results()) + 1
			if !c.there(lineage.Batch(step)) { // it was too quick; the next update
				return
			}
			c.kill("trainer")
			c.start("trainer", "")
			killed, at[step] = append(killed, step), c.deaths[n].at
		}
	})
	results := c.results()
	if len(killed) != len(since) || len(results) != last {
		t.Fatalf("%d deaths and %d results, want %d and %d", len(killed), len(results), len(since), last)
	}
	var alone []time.Duration // what a step takes without a death
	for i := 1; i < last; i++ {
		if !slices.Contains(killed, i+1) {
			alone = append(alone, results[i].Sub(results[i-1]))
		}
	}
	slices.Sort(alone)
	usual := alone[len(alone)/2]
	events := c.events()
	ready := map[int]float64{} // seconds from the death until the state was there again, by step
	for _, step := range killed {
		var r record.Result
		if _, err := artifact.GetJSON(t.Context(), c.store(), lineage.Result(step), &r); err != nil {
			t.Fatal(err)
		}
		if r.Replayed != step-1 {
			t.Errorf("step %d: %d batches were replayed, want %d", step, r.Replayed, step-1)
		}
		for _, e := range events {
			if when, err := time.Parse(time.RFC3339Nano, e.Time); err == nil && e.Kind == "replayed" && e.Step == step-1 {
				ready[step] = when.Sub(at[step]).Seconds()
			}
		}
		next := results[step-1].Sub(at[step]) // results are in the order of steps
		t.Logf("trainer died %d steps after the checkpoint: its state was there %.1f s later, the next result %.1f s later; "+
			"a step without a death takes %.1f s, so %.1f s of the trainer were lost",
			step-1, ready[step], next.Seconds(), usual.Seconds(), (next - usual).Seconds())
	}
	first, final := killed[0], killed[len(killed)-1]
	t.Logf("replay: %.2f steps a second", float64(final-first)/(ready[final]-ready[first]))
	for _, e := range events {
		if e.Kind == record.ReplayMismatch {
			t.Errorf("step %d: %s", e.Step, e.Message)
		}
	}
	c.generatedOnce()
	c.costs()
}

// events are the events of the run.
func (c *cluster) events() (all []record.Event) {
	c.t.Helper()
	names, err := c.store().List(c.t.Context(), lineage.Events())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		var e record.Event
		if _, err := artifact.GetJSON(c.t.Context(), c.store(), name, &e); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}
