//go:build durability

package durability

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/crashpoint"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// roles are the processes of a cluster besides the server.
var roles = []string{"control", "rollout", "judge", "trainer"}

// flags are what a role is called on the command line.
var flags = map[string]string{"control": "control,data", "rollout": "rollout", "judge": "judge", "trainer": "trainer"}

// lineage is that of the run of every cluster.
var lineage = record.Layout{Run: "r", Lineage: "l0"}

// cluster is a Temporal server with every role of steady in a process of its own, and one run on it.
type cluster struct {
	t       *testing.T
	dir     string
	server  *devserver.Server
	cli     string
	counts  *crashpoint.Counts
	workers map[string]*worker // one of each role; others may be cut off
	cut     []*worker          // stopped, or going on after a stop
	deaths  []death
	started int // processes so far
}

// worker is a process with a role.
type worker struct {
	*testutil.Process
	role, order string // order: the crash point that it was started with
}

// point is the name of the crash point, empty for none.
func (w *worker) point() string {
	name, _, _ := strings.Cut(w.order, ":")
	return name
}

// reached reports whether the process has come to its crash point.
func (w *worker) reached() bool {
	return w.order != "" && strings.Contains(w.Output(), crashpoint.Reached(w.point())+"\n")
}

// death is the end of a process by SIGKILL, or its stop.
type death struct {
	role, how string
	at        time.Time
}

// newCluster starts a server and, with settings of its own, a run. Processes come with start.
func newCluster(t *testing.T, settings []string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), cli: testutil.Binary(t, "temporal"), workers: map[string]*worker{}}
	binary, err := devserver.Inspect(t.Context(), c.cli)
	if err != nil {
		t.Fatal(err)
	}
	o := devserver.Options{Binary: binary, DBFile: filepath.Join(c.dir, "server", "temporal.db"), Port: testutil.FreePort(t), UIPort: testutil.FreePort(t)}
	for _, a := range contract.SearchAttributes() {
		o.Attributes = append(o.Attributes, devserver.Attribute{Name: a.Name, Type: a.Type.String()})
	}
	if c.server, err = devserver.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.server.Stop() })
	if c.counts, err = crashpoint.OpenCounts(filepath.Join(c.dir, "counts")); err != nil {
		t.Fatal(err)
	}
	out, code, err := testutil.Run(t.Context(), testutil.Binary(t, "steady"), append([]string{"config", "print", "--recipe", "demo", "--json"}, settings...)...)
	if err != nil || code != 0 {
		t.Fatalf("config print: %v %s", err, out)
	}
	input := filepath.Join(c.dir, "run.json")
	if err := os.WriteFile(input, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := c.temporal("workflow", "start", "--type", "TrainRun", "--task-queue", contract.QueueControl, "--workflow-id", lineage.Run, "--input-file", input); code != 0 {
		t.Fatalf("start: %s", out)
	}
	return c
}

// start starts the process of a role, which crashes as ordered (see crashpoint.Variable). Every process has a name of its own.
func (c *cluster) start(role, order string) {
	c.t.Helper()
	c.started++
	env := []string{
		"TEMPORAL_ADDRESS=" + c.server.Address(), crashpoint.CountsVariable + "=" + filepath.Join(c.dir, "counts"), crashpoint.Variable + "=" + order,
	}
	name := role
	if len(c.cut) > 0 { // the name of one that is cut off must not be used twice
		name = role + "-" + record.StepName(c.started)
	}
	c.workers[role] = &worker{role: role, order: order, Process: testutil.StartWith(c.t, env, testutil.Binary(c.t, "steady"),
		"worker", "--roles", flags[role], "--data", filepath.Join(c.dir, "data"), "--name", name)}
}

func (c *cluster) temporal(args ...string) (string, int) {
	c.t.Helper()
	out, code, err := testutil.Run(c.t.Context(), c.cli, append(args, "--address", c.server.Address())...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out, code
}

// path is a file of the store.
func (c *cluster) path(name string) string {
	return filepath.Join(c.dir, "data", "store", filepath.FromSlash(name))
}

func (c *cluster) store() *artifact.Files {
	c.t.Helper()
	s, err := artifact.NewFiles(filepath.Join(c.dir, "data", "store"))
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// results are the times at which the results of steps were written, in order.
func (c *cluster) results() []time.Time {
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(c.path(lineage.Result(0))), "??????.json")) // the pattern is good
	var at []time.Time
	for _, name := range names {
		if st, err := os.Stat(name); err == nil {
			at = append(at, st.ModTime())
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// over reports whether the run has ended. The report is the last thing that it writes.
func (c *cluster) over() bool {
	c.t.Helper()
	if _, err := os.Stat(c.path(lineage.Report())); err != nil {
		return false
	}
	out, code := c.temporal("workflow", "describe", "--workflow-id", lineage.Run, "-o", "json")
	return code == 0 && !strings.Contains(out, "WORKFLOW_EXECUTION_STATUS_RUNNING")
}

// kill ends the process of a role with SIGKILL.
func (c *cluster) kill(role string) {
	w := c.workers[role]
	w.Kill()
	c.died(w, "killed")
}

// died notes the death of a process that was killed or has killed itself.
func (c *cluster) died(w *worker, how string) {
	c.deaths = append(c.deaths, death{w.role, how, w.EndedAt()})
}

// cutOff notes that the process of a role is stopped, as if the network were gone, and starts another one.
func (c *cluster) cutOff(role, how, order string) {
	w := c.workers[role]
	c.deaths = append(c.deaths, death{role, how, time.Now()})
	c.cut = append(c.cut, w)
	c.start(role, order)
}

// goOn lets all that is stopped go on beside the processes that took its place.
func (c *cluster) goOn() {
	for _, w := range c.cut {
		w.Signal(syscall.SIGCONT)
	}
}

// end waits for the workflow's result, and for all processes to end in order.
func (c *cluster) end() {
	c.t.Helper()
	c.goOn()
	if out, code := c.temporal("workflow", "result", "--workflow-id", lineage.Run); code != 0 {
		c.t.Fatalf("the run failed: %s", out)
	}
	all := c.cut
	for _, role := range roles {
		all = append(all, c.workers[role])
	}
	for _, w := range all {
		if w.Ended() && !w.reached() {
			c.t.Errorf("the process of %s ended by itself:\n%s", w.role, w.Output())
		}
		w.Interrupt()
	}
	for _, w := range all {
		if code := w.Wait(c.t, time.Minute); code != 0 && code != 4 && !w.reached() {
			c.t.Errorf("the process of %s ended with status %d after an interrupt:\n%s", w.role, code, w.Output())
		}
	}
}
