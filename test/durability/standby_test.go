//go:build durability

package durability

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// onlyLong skips what takes more than half a minute, unless the long form is asked for.
func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("STEADY_CHAOS_FULL") == "" {
		t.Skip("needs many minutes: make chaos runs it (STEADY_CHAOS_FULL)")
	}
}

// The trainer is killed in the middle of an update. The standby that took over is killed between two updates; the trainer that came
// back meanwhile has followed, and takes over in turn. No checkpoint but the first is there, nothing is replayed, and the weights
// are those of an undisturbed run.
func TestStandby_takesOverWithoutReplay(t *testing.T) {
	onlyLong(t)
	want := undisturbed(t)
	f := newFleet(t)
	f.start("trainer", "trainer")
	f.start("standby", "standby")
	f.standsBy("standby")
	f.there(f.run.Batch(3)) // the update of step 3 begins
	f.kill("trainer", "in an update, with a standby")
	f.start("trainer,standby", "trainer")
	f.standsBy("trainer")
	f.there(f.run.Result(f.newest() + 1)) // groups of the next step are generated now
	f.kill("standby", "between updates, with a standby")
	f.ends()
	if state, weights := digests(t, f.dir); state != want.state || weights != want.weights {
		t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
	}
	var got []string
	for step := 1; step <= steps; step++ {
		r := f.read(step)
		if r.Replayed != 0 {
			t.Errorf("step %d of %s: %d batches were replayed, want none", step, r.Trainer, r.Replayed)
		}
		if len(got) == 0 || got[len(got)-1] != r.Trainer {
			got = append(got, r.Trainer)
		}
	}
	if s := strings.Join(got, " "); s != "trainer standby trainer" {
		t.Errorf("the steps were trained by %s, want trainer standby trainer", s)
	}
	for _, e := range f.events() {
		if e.Kind == record.ReplayMismatch || e.Kind == "replayed" || e.Kind == "restored" {
			t.Errorf("event %+v, want none of that kind", e)
		}
	}
}

// The same kills with a spare trainer that does not follow, for the figures.
func TestStandby_withoutOne(t *testing.T) {
	onlyLong(t)
	f := newFleet(t)
	f.start("trainer", "trainer")
	f.there(f.run.Result(1)) // the spare must not be the first
	f.start("trainer", "spare")
	f.there(f.run.Batch(3))
	f.kill(f.read(2).Trainer, "in an update, with a cold spare")
	f.start("trainer", "another")
	f.there(f.run.Result(f.newest() + 1))
	f.kill(f.read(f.newest()).Trainer, "between updates, with a cold spare")
	f.ends()
	replayed := false
	for _, e := range f.events() {
		t.Logf("%s %s of %s, step %d: %s", e.Time, e.Kind, e.Where, e.Step, e.Message)
		replayed = replayed || e.Kind == "replayed"
	}
	if !replayed {
		t.Error("no batch was replayed, so the figures say nothing")
	}
}

// fleet is a server, a run on it whose only checkpoints are the first and the last, and workers by name.
type fleet struct {
	t       *testing.T
	dir     string
	address string
	run     record.Layout
	workers map[string]*testutil.Process
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), run: record.Layout{Run: "r", Lineage: "l0"}, workers: map[string]*testutil.Process{}}
	binary, err := devserver.Inspect(t.Context(), testutil.Binary(t, "temporal"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := devserver.Start(t.Context(), devserver.Options{
		Binary: binary, DBFile: filepath.Join(f.dir, "server", "temporal.db"), Port: testutil.FreePort(t), UIPort: testutil.FreePort(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	f.address = server.Address()
	t.Setenv("TEMPORAL_ADDRESS", f.address)
	for _, role := range []string{"control,data", "rollout", "judge"} {
		f.start(role, strings.ReplaceAll(role, ",", "-"))
	}
	args := []string{"config", "print", "--recipe", "demo", "--json"}
	for _, s := range []string{ // the settings of the undisturbed run, checkpoints apart
		"mode=sync", "data.train=32", "data.dev=8", "rollout.batch_problems=4", "rollout.group_size=2", "run.steps=6", "run.validate_every=3",
		"run.checkpoint_every=50", "run.continue_every=4", "validation.chunk=4", "timeouts.heartbeat=3s", "timeouts.trainer_lost=5s", "rollout.flush_interval=200ms",
	} {
		args = append(args, "--set", s)
	}
	out, code, err := testutil.Run(t.Context(), testutil.Binary(t, "steady"), args...)
	if err != nil || code != 0 {
		t.Fatalf("config print: %v %s", err, out)
	}
	input := filepath.Join(f.dir, "run.json")
	if err := os.WriteFile(input, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := f.temporal("start", "--type", "TrainRun", "--task-queue", contract.QueueControl, "--input-file", input); code != 0 {
		t.Fatalf("start: %s", out)
	}
	return f
}

func (f *fleet) start(roles, name string) {
	f.workers[name] = testutil.Start(f.t, testutil.Binary(f.t, "steady"),
		"worker", "--roles", roles, "--data", filepath.Join(f.dir, "data"), "--name", name)
}

// temporal does something with the run's workflow.
func (f *fleet) temporal(do string, args ...string) (string, int) {
	f.t.Helper()
	args = append([]string{"workflow", do, "--workflow-id", f.run.Run, "--address", f.address}, args...)
	out, code, err := testutil.Run(f.t.Context(), testutil.Binary(f.t, "temporal"), args...)
	if err != nil {
		f.t.Fatal(err)
	}
	return out, code
}

// kill ends a process with SIGKILL and logs how long the next result takes from then on.
func (f *fleet) kill(name, when string) {
	f.t.Helper()
	if f.workers[name].Ended() {
		f.t.Fatalf("the process %s ended by itself:\n%s", name, f.workers[name].Output())
	}
	at := f.newest() + 1
	f.workers[name].Kill()
	began := time.Now()
	f.t.Logf("%s killed %s", began.UTC().Format("15:04:05.000"), when)
	f.there(f.run.Result(at))
	f.t.Logf("killed %s: step %d was there %.1f s later, by %s, %d replayed", when, at, time.Since(began).Seconds(), f.read(at).Trainer, f.read(at).Replayed)
}

// standsBy waits until a process says that it holds the state of the run.
func (f *fleet) standsBy(name string) {
	f.t.Helper()
	testutil.Eventually(f.t, 3*time.Minute, name+" stands by", func() bool {
		return strings.Contains(f.workers[name].Output(), "standing by")
	})
}

func (f *fleet) ends() {
	f.t.Helper()
	testutil.Eventually(f.t, 20*time.Minute, "the run ends", func() bool {
		out, code := f.temporal("describe", "-o", "json")
		return code == 0 && !strings.Contains(out, "WORKFLOW_EXECUTION_STATUS_RUNNING")
	})
	if out, code := f.temporal("result"); code != 0 {
		f.t.Fatalf("the run failed: %s", out)
	}
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, "data", "store", name) }

func (f *fleet) there(name string) {
	f.t.Helper()
	testutil.Eventually(f.t, 3*time.Minute, name+" is there", func() bool {
		_, err := os.Stat(f.path(name))
		return err == nil
	})
}

// newest is the newest step with a result, 0 for none.
func (f *fleet) newest() int {
	for step := 0; ; step++ {
		if _, err := os.Stat(f.path(f.run.Result(step + 1))); err != nil {
			return step
		}
	}
}

func (f *fleet) store() *artifact.Files {
	f.t.Helper()
	s, err := artifact.NewFiles(f.path(""))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fleet) read(step int) (r record.Result) {
	f.t.Helper()
	if _, err := artifact.GetJSON(f.t.Context(), f.store(), f.run.Result(step), &r); err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *fleet) events() (all []record.Event) {
	f.t.Helper()
	store := f.store()
	names, err := store.List(f.t.Context(), f.run.Events())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		var e record.Event
		if _, err := artifact.GetJSON(f.t.Context(), store, name, &e); err != nil {
			f.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}
