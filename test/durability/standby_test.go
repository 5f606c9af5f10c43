//go:build durability

package durability

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// The trainer is killed in the middle of an update, the standby that took over between two updates; the trainer that came
// back meanwhile stands by and takes over in turn. No checkpoint but the first is ever needed, nothing is replayed, and the
// weights are those of an undisturbed run.
func TestStandby_takesOverWithoutReplay(t *testing.T) {
	want := undisturbed(t)
	c := startCluster(t)
	c.work("standby")
	c.startRun("run.checkpoint_every=50")

	c.result(1)
	c.standsBy("standby")
	c.sealed(3) // the update of step 3 begins
	c.workers["trainer"].Kill()
	c.next("killed in an update, with a standby")
	c.workers["trainer"] = testutil.Start(t, testutil.Binary(t, "steady"),
		"worker", "--roles", "trainer,standby", "--data", filepath.Join(c.dir, "data"), "--name", "trainer")
	c.standsBy("trainer")
	c.result(c.newest() + 1) // groups of the next step are generated now
	c.workers["standby"].Kill()
	c.next("killed between updates, with a standby")
	c.ends()
	if state, weights := digests(t, c.dir); state != want.state || weights != want.weights {
		t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
	}
	var hosts []string
	for step := 1; step <= steps; step++ {
		r := c.read(step)
		if r.Replayed != 0 {
			t.Errorf("step %d of %s: %d batches were replayed, want none", step, r.Trainer, r.Replayed)
		}
		if len(hosts) == 0 || hosts[len(hosts)-1] != r.Trainer {
			hosts = append(hosts, r.Trainer)
		}
	}
	if got := strings.Join(hosts, " "); got != "trainer standby trainer" {
		t.Errorf("the steps were trained by %s, want trainer standby trainer", got)
	}
	for _, e := range c.events() {
		if e.Kind == record.ReplayMismatch || e.Kind == "replayed" || e.Kind == "restored" {
			t.Errorf("event %+v, want none of that kind", e)
		}
	}
}

// The same kills with a spare trainer that does not follow: for the figures of docs/benchmarks/durability.md.
func TestStandby_withoutOne(t *testing.T) {
	if os.Getenv("STEADY_FIGURES") == "" {
		t.Skip("STEADY_FIGURES is not set")
	}
	c := startCluster(t)
	c.startRun("run.checkpoint_every=50")
	spare := func(name string) {
		c.workers[name] = testutil.Start(t, testutil.Binary(t, "steady"),
			"worker", "--roles", "trainer", "--data", filepath.Join(c.dir, "data"), "--name", name)
	}
	c.result(1)
	spare("spare")
	c.sealed(3)
	c.workers[c.read(2).Trainer].Kill()
	c.next("killed in an update, with a cold spare")
	spare("another")
	c.result(c.newest() + 1)
	c.workers[c.read(c.newest()).Trainer].Kill()
	c.next("killed between updates, with a cold spare")
	c.ends()
}

// startRun starts the run of the undisturbed one, with further settings.
func (c *cluster) startRun(more ...string) {
	c.t.Helper()
	args := append([]string{"config", "print", "--recipe", "demo", "--json"}, settings()...)
	for _, s := range more {
		args = append(args, "--set", s)
	}
	out, code, err := testutil.Run(c.t.Context(), testutil.Binary(c.t, "steady"), args...)
	if err != nil || code != 0 {
		c.t.Fatalf("config print: %v %s", err, out)
	}
	input := filepath.Join(c.dir, "run.json")
	if err := os.WriteFile(input, []byte(out), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if out, code := c.temporal("workflow", "start", "--type", "TrainRun", "--task-queue", contract.QueueControl, "--workflow-id", "r", "--input-file", input); code != 0 {
		c.t.Fatalf("start: %s", out)
	}
}

func (c *cluster) ends() {
	c.t.Helper()
	testutil.Eventually(c.t, 5*time.Minute, "the run ends", func() bool {
		out, code := c.temporal("workflow", "describe", "--workflow-id", "r", "-o", "json")
		return code == 0 && !strings.Contains(out, "WORKFLOW_EXECUTION_STATUS_RUNNING")
	})
	if out, code := c.temporal("workflow", "result", "--workflow-id", "r"); code != 0 {
		c.t.Fatalf("the run failed: %s", out)
	}
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, "data", "store", name) }

var lineage = record.Layout{Run: "r", Lineage: "l0"}

// result waits for the result of a step, sealed for its batch.
func (c *cluster) result(step int) {
	c.t.Helper()
	c.there(lineage.Result(step))
}

func (c *cluster) sealed(step int) {
	c.t.Helper()
	c.there(lineage.Batch(step))
}

func (c *cluster) there(name string) {
	c.t.Helper()
	testutil.Eventually(c.t, 3*time.Minute, name+" is there", func() bool {
		_, err := os.Stat(c.path(name))
		return err == nil
	})
}

// standsBy waits until a process says that it holds the state of the run.
func (c *cluster) standsBy(name string) {
	c.t.Helper()
	testutil.Eventually(c.t, time.Minute, name+" stands by", func() bool {
		return strings.Contains(c.workers[name].Output(), "standing by")
	})
}

// newest is the newest step with a result, 0 for none.
func (c *cluster) newest() int {
	for step := 0; ; step++ {
		if _, err := os.Stat(c.path(lineage.Result(step + 1))); err != nil {
			return step
		}
	}
}

// next waits for the next result and logs how long it took from now on.
func (c *cluster) next(what string) {
	c.t.Helper()
	began, at := time.Now(), c.newest()
	c.result(at + 1)
	c.t.Logf("%s: step %d was there %s later, by %s", what, at+1, time.Since(began).Round(10*time.Millisecond), c.read(at+1).Trainer)
}

func (c *cluster) read(step int) (r record.Result) {
	c.t.Helper()
	store, err := artifact.NewFiles(c.path(""))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := artifact.GetJSON(c.t.Context(), store, lineage.Result(step), &r); err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *cluster) events() (all []record.Event) {
	c.t.Helper()
	store, err := artifact.NewFiles(c.path(""))
	if err != nil {
		c.t.Fatal(err)
	}
	names, err := store.List(c.t.Context(), lineage.Events())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		var e record.Event
		if _, err := artifact.GetJSON(c.t.Context(), store, name, &e); err != nil {
			c.t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
		all = append(all, e)
	}
	return all
}
