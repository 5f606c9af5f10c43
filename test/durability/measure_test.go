//go:build durability

package durability

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/demo"
	"github.com/steadyrl/steady/internal/engine"
	"github.com/steadyrl/steady/internal/engine/cpu"
	"github.com/steadyrl/steady/internal/learner"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/model"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/trajectory"
	"github.com/steadyrl/steady/internal/weights"
)

// check wants of a run that has ended: books that balance, no drop but of what was left over or too old, a final state that a
// clean replay of the sealed batches gives again, and no trajectory that was generated after it was finished. It prints what the
// deaths cost.
func (c *cluster) check() {
	c.t.Helper()
	store := c.store()
	books, err := ledger.Load(c.t.Context(), store, lineage)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := books.Balance(); err != nil {
		c.t.Errorf("the ledger does not balance: %v", err)
	}
	n := books.Count()
	if n.Trained != c.steps*4 || n.Open != 0 {
		c.t.Errorf("ledger: %+v, want %d groups trained and none open", n, c.steps*4)
	}
	for _, g := range books.Groups {
		if g.Fate == ledger.Dropped && g.Reason != ledger.RunEnded && g.Reason != ledger.Stale {
			c.t.Errorf("group %d was dropped: %s", g.N, g.Reason)
		}
	}
	checkExport(c.t, c.dir)
	for _, pattern := range []string{"datasets/*.work", "runs/*/*/.tmp-*", "runs/*/*/checkpoints/.tmp-*", "runs/*/*/weights/.tmp-*"} {
		if left, _ := filepath.Glob(c.path(pattern)); len(left) > 0 { // the pattern is good
			c.t.Errorf("killed processes left %v", left)
		}
	}
	c.replay()
	c.costs()
}

// replay trains all sealed batches of a copy of the store again, from the model that the run began with, and compares every step.
func (c *cluster) replay() {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "store")
	if err := os.CopyFS(dir, os.DirFS(c.path(""))); err != nil {
		c.t.Fatal(err)
	}
	store, err := artifact.NewFiles(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := store.Remove(c.t.Context(), lineage.Checkpoints()); err != nil {
		c.t.Fatal(err)
	}
	host := learner.New(learner.Options{
		Store: store, Name: "replay",
		NewTrainer: func(m model.Config, w *model.Weights) (engine.Trainer, error) {
			return cpu.NewTrainer(m, w, cpu.Options{})
		},
		NewSampler: func(m model.Config) (engine.Sampler, error) { return cpu.NewSampler(m, cpu.Options{}) },
		Initial: func(context.Context, record.Layout) (int, *engine.State, error) {
			w, err := weights.LoadFS(demo.Model())
			if err != nil {
				return 0, nil, err
			}
			return 0, &engine.State{Master: w, M: model.NewWeights(w.Config), V: model.NewWeights(w.Config)}, nil
		},
		Note: func(_ context.Context, _ record.Layout, e record.Event) {
			if e.Kind == record.ReplayMismatch {
				c.t.Errorf("clean replay: step %d: %s", e.Step, e.Message)
			}
		},
	})
	defer host.Close() //nolint:errcheck // of a test that has its answer
	epoch, err := host.Acquire(c.t.Context(), lineage)
	if err != nil {
		c.t.Fatal(err)
	}
	began := time.Now()
	state, replayed, err := host.Reach(c.t.Context(), lineage, c.steps, epoch)
	if err != nil {
		c.t.Fatalf("clean replay: %v", err)
	}
	c.t.Logf("clean replay: %d steps, %.2f a second", replayed, float64(replayed)/time.Since(began).Seconds())
	var last record.Result
	if _, err := artifact.GetJSON(c.t.Context(), c.store(), lineage.Result(c.steps), &last); err != nil {
		c.t.Fatal(err)
	}
	if got := weights.StateDigest(state); got != last.StateDigest || replayed != c.steps {
		c.t.Errorf("a clean replay of %d steps gives the state %s, the run has %s", replayed, got, last.StateDigest)
	}
}

// kept are the tokens and the trajectories in the files of a finished run.
func (c *cluster) kept() (tokens, trajectories int) {
	c.t.Helper()
	for _, pattern := range []string{"groups/*/trajectories.parquet", "validation/*/*/trajectories.parquet"} {
		names, _ := filepath.Glob(filepath.Join(c.path(lineage.Root()), pattern)) // the pattern is good
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				c.t.Fatal(err)
			}
			ts, err := trajectory.Decode(data)
			if err != nil {
				c.t.Fatalf("%s: %v", name, err)
			}
			for _, t := range ts {
				tokens += t.Sampled()
				trajectories++
			}
		}
	}
	return tokens, trajectories
}

// generatedOnce wants of a run whose rollout workers lived that no token was sampled twice. Only a rollout whose heartbeat came too
// late, on a machine that is too slow, may have been.
func (c *cluster) generatedOnce() {
	c.t.Helper()
	for _, e := range c.events() {
		if e.Kind == "retried" && e.Where == contract.GenerateRolloutsActivity.Name {
			c.t.Logf("a rollout was tried again although its worker lived: %s", e.Message)
			return
		}
	}
	tokens, trajectories := c.kept()
	if sampled, finished := c.counts.Of("rollout.token"), c.counts.Of("rollout.sample.after"); sampled != tokens || finished != trajectories {
		c.t.Errorf("%d tokens and %d trajectories were generated, %d and %d are kept: something was generated twice", sampled, finished, tokens, trajectories)
	}
}

// costs prints what the deaths cost.
func (c *cluster) costs() {
	c.t.Helper()
	tokens, trajectories := c.kept()
	sampled, finished := c.counts.Of("rollout.token"), c.counts.Of("rollout.sample.after")
	c.t.Logf("%d faults; tokens: %d sampled, %d kept; trajectories: %d finished, %d kept", len(c.deaths), sampled, tokens, finished, trajectories)
	results := c.results()
	waits := map[string][]time.Duration{}
	for i, d := range c.deaths {
		next := slices.IndexFunc(results, func(at time.Time) bool { return at.After(d.at) })
		alone := i == len(c.deaths)-1 || next >= 0 && c.deaths[i+1].at.After(results[next])
		if next >= 0 && alone { // else it shows what several deaths cost together
			waits[d.role] = append(waits[d.role], results[next].Sub(d.at))
		}
	}
	for role, all := range waits {
		slices.Sort(all)
		c.t.Logf("from the only fault of a %s to the next result: median %s, longest %s, of %d", role,
			all[len(all)/2].Round(10*time.Millisecond), all[len(all)-1].Round(10*time.Millisecond), len(all))
	}
}
