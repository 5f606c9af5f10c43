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
	steps   int // of the run
	server  *devserver.Server
	cli     string
	counts  *crashpoint.Counts
	workers map[string]*worker // one of each role; others may be cut off
	cut     []*worker          // stopped, or going on after a stop
	deaths  []death
	started int // processes so far
	began   time.Time
}

// worker is a process with a role.
type worker struct {
	*testutil.Process
	role, order string // order: the crash point that it was started with
	gone        bool   // its end is known to c.deaths
	until       int    // of one that was cut off: the effects at which something happens to it next
	back        bool   // it goes on after having been cut off
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
	c := &cluster{t: t, dir: t.TempDir(), steps: steps, cli: testutil.Binary(t, "temporal"), workers: map[string]*worker{}, began: time.Now()}
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
	name := role
	if len(c.cut) > 0 { // the name of one that is cut off must not be used twice
		name = role + "-" + record.StepName(c.started+1)
	}
	c.workers[role] = c.process(role, order, name, filepath.Join(c.dir, "counts"))
}

// process starts a process of a role that counts its visits of points in a file.
func (c *cluster) process(role, order, name, counts string, args ...string) *worker {
	c.t.Helper()
	c.started++
	env := []string{
		"TEMPORAL_ADDRESS=" + c.server.Address(), crashpoint.CountsVariable + "=" + counts, crashpoint.Variable + "=" + order,
	}
	args = append([]string{"worker", "--roles", flags[role], "--data", filepath.Join(c.dir, "data"), "--name", name}, args...)
	return &worker{role: role, order: order, Process: testutil.StartWith(c.t, env, testutil.Binary(c.t, "steady"), args...)}
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

// unreachable is the exit status of a program that cannot reach the server.
const unreachable = 3

// drive lets the run end. A process that crashes at its point is started again with the order that next gives for its role;
// one that stops at its point is replaced, goes on when the others have done a piece of work without it, and is killed when
// they have done another. tick is called again and again and may do more harm.
func (c *cluster) drive(next func(role string) string, tick func()) {
	c.t.Helper()
	for _, role := range roles {
		if c.workers[role] == nil {
			c.start(role, next(role))
		}
	}
	deadline := time.Now().Add(quiet) // of the next effect
	effects := 0
	testutil.Eventually(c.t, 4*time.Hour, "the run ends", func() bool {
		for _, role := range roles {
			w := c.workers[role]
			switch {
			case w.reached() && strings.HasSuffix(w.order, ":stop"):
				c.cutOff(role, "stopped at "+w.point(), next(role))
			case w.Ended() && w.reached():
				c.died(w, "died at "+w.point())
				c.start(role, next(role))
			case w.Ended() && w.Wait(c.t, time.Minute) == unreachable: // the server is down: whoever supervises workers tries again
				c.start(role, w.order)
			case w.Ended():
				c.t.Fatalf("the process of %s ended by itself:\n%s", role, w.Output())
			}
		}
		c.advance()
		tick()
		if n := c.counts.Effects(); n != effects {
			effects, deadline = n, time.Now().Add(quiet)
		}
		if time.Now().After(deadline) {
			out, _ := c.temporal("workflow", "list")
			c.t.Fatalf("nothing has happened for %s:\n%s", quiet, out)
		}
		return c.over()
	})
	c.end()
}

// kill ends the process of a role with SIGKILL.
func (c *cluster) kill(role string) {
	w := c.workers[role]
	w.Kill()
	c.died(w, "killed")
}

// died notes the death of a process that was killed or has killed itself.
func (c *cluster) died(w *worker, how string) {
	w.gone = true
	c.note(w.role, how, w.EndedAt())
}

func (c *cluster) note(role, how string, at time.Time) {
	c.deaths = append(c.deaths, death{role, how, at})
	c.t.Logf("%6.1f s, %4d effects: %s %s", time.Since(c.began).Seconds(), c.counts.Effects(), role, how)
}

// pause is how many durable effects a stopped process misses, and how many it then sees before it is killed.
const pause = 100

// cutOff notes that the process of a role is stopped, as if the network were gone, and starts another one.
func (c *cluster) cutOff(role, how, order string) {
	w := c.workers[role]
	c.note(role, how, time.Now())
	w.until = c.counts.Effects() + pause
	c.cut = append(c.cut, w)
	c.start(role, order)
}

// advance lets the stopped processes go on that missed enough, and kills those that came back long enough ago.
func (c *cluster) advance() {
	for _, w := range c.cut {
		switch {
		case w.gone || c.counts.Effects() < w.until:
		case !w.back:
			c.t.Logf("%4d effects: %s goes on", c.counts.Effects(), w.role)
			w.Signal(syscall.SIGCONT)
			w.back, w.until = true, c.counts.Effects()+pause
		case w.Ended():
			c.t.Fatalf("the process of %s ended by itself after it had been stopped:\n%s", w.role, w.Output())
		default:
			w.Kill()
			c.died(w, "killed after it had been stopped")
		}
	}
}

// end waits for the workflow's result, and for all processes to end in order. The server stays.
func (c *cluster) end() {
	c.t.Helper()
	if out, code := c.temporal("workflow", "result", "--workflow-id", lineage.Run); code != 0 {
		c.t.Fatalf("the run failed: %s", out)
	}
	all := slices.Clone(c.cut)
	for _, role := range roles {
		all = append(all, c.workers[role])
	}
	for _, w := range slices.DeleteFunc(all, func(w *worker) bool { return w.gone || w.reached() }) {
		if w.Ended() {
			c.t.Errorf("the process of %s ended by itself:\n%s", w.role, w.Output())
		}
		w.Signal(syscall.SIGCONT)
		w.Interrupt()
		if code := w.Wait(c.t, time.Minute); code != 0 && code != 4 {
			c.t.Errorf("the process of %s ended with status %d after an interrupt:\n%s", w.role, code, w.Output())
		}
	}
}

// comesTo waits until a process has come to its crash point.
func (c *cluster) comesTo(w *worker) {
	c.t.Helper()
	testutil.Eventually(c.t, 5*time.Minute, "the process of "+w.role+" comes to "+w.point(), w.reached)
}
