//go:build durability

package durability

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/testutil"
)

// cluster is a Temporal server with every role of steady in a process of its own.
type cluster struct {
	t       *testing.T
	dir     string
	server  *devserver.Server
	cli     string
	workers map[string]*testutil.Process
}

var roles = []string{"control,data", "rollout", "judge", "trainer"}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), cli: testutil.Binary(t, "temporal"), workers: map[string]*testutil.Process{}}
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
	t.Setenv("TEMPORAL_ADDRESS", c.server.Address())
	for _, r := range roles {
		c.work(r)
	}
	return c
}

// work starts the process of a role.
func (c *cluster) work(role string) {
	c.workers[role] = testutil.Start(c.t, testutil.Binary(c.t, "steady"),
		"worker", "--roles", role, "--data", filepath.Join(c.dir, "data"), "--name", strings.ReplaceAll(role, ",", "-"))
}

func (c *cluster) temporal(args ...string) (string, int) {
	c.t.Helper()
	out, code, err := testutil.Run(c.t.Context(), c.cli, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out, code
}

// step is the last step that the run reports, -1 while it does not answer.
func (c *cluster) step() int {
	c.t.Helper()
	out, code := c.temporal("workflow", "query", "--workflow-id", "r", "--name", "progress", "-o", "json")
	var res struct {
		QueryResult []contract.Progress `json:"queryResult"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &res) != nil || len(res.QueryResult) != 1 {
		return -1
	}
	return res.QueryResult[0].Step
}

// Each role dies once in the middle of the run, alone, and is started again: the run ends as if nothing had happened.
func TestKillEachRole_endsWithTheSameWeights(t *testing.T) {
	want := undisturbed(t)
	c := startCluster(t)
	out, code, err := testutil.Run(t.Context(), testutil.Binary(t, "steady"), append([]string{"config", "print", "--recipe", "demo", "--json"}, settings()...)...)
	if err != nil || code != 0 {
		t.Fatalf("config print: %v %s", err, out)
	}
	input := filepath.Join(c.dir, "run.json")
	if err := os.WriteFile(input, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := c.temporal("workflow", "start", "--type", "TrainRun", "--task-queue", contract.QueueControl, "--workflow-id", "r", "--input-file", input); code != 0 {
		t.Fatalf("start: %s", out)
	}
	for i, role := range []string{"trainer", "rollout", "judge", "control,data"} {
		testutil.Eventually(t, 3*time.Minute, fmt.Sprintf("step %d is trained", i+1), func() bool { return c.step() > i })
		if c.workers[role].Ended() {
			t.Fatalf("the process of %s ended by itself:\n%s", role, c.workers[role].Output())
		}
		c.workers[role].Kill()
		c.work(role)
	}
	testutil.Eventually(t, 5*time.Minute, "the run ends", func() bool {
		out, code := c.temporal("workflow", "describe", "--workflow-id", "r", "-o", "json")
		return code == 0 && !strings.Contains(out, "WORKFLOW_EXECUTION_STATUS_RUNNING")
	})
	if out, code := c.temporal("workflow", "result", "--workflow-id", "r"); code != 0 {
		t.Fatalf("the run failed: %s", out)
	}
	if state, weights := digests(t, c.dir); state != want.state || weights != want.weights {
		t.Errorf("state %s weights %s, undisturbed %s %s", state, weights, want.state, want.weights)
	}
	for _, role := range roles {
		if c.workers[role].Ended() {
			t.Errorf("the process of %s ended by itself:\n%s", role, c.workers[role].Output())
		}
		c.workers[role].Interrupt()
		if code := c.workers[role].Wait(t, time.Minute); code != 0 && code != 4 {
			t.Errorf("the process of %s ended with status %d after an interrupt:\n%s", role, code, c.workers[role].Output())
		}
	}
}
