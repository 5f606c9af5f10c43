//go:build e2e

// Package e2e drives `steady dev` with the real temporal command line, as a user would.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/eval"
	"github.com/steadyrl/steady/internal/ledger"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/testutil"
)

// site is a running `steady dev` with its folder.
type site struct {
	t       *testing.T
	dir     string
	steady  string
	cli     string
	port    int
	args    []string
	process *testutil.Process
}

// open starts `steady dev`, with more flags if there are any.
func open(t *testing.T, more ...string) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), steady: testutil.Binary(t, "steady"), cli: testutil.Binary(t, "temporal"), port: testutil.FreePort(t)}
	s.args = append([]string{"dev", "--data", s.data(), "--port", strconv.Itoa(s.port), "--ui-port", strconv.Itoa(testutil.FreePort(t))}, more...)
	s.begin()
	return s
}

// begin starts the process, or starts it again.
func (s *site) begin() {
	t := s.t
	t.Helper()
	s.process = testutil.Start(t, s.steady, s.args...)
	testutil.Eventually(t, 2*time.Minute, "steady dev says how to start a run", func() bool {
		return s.process.Ended() || strings.Contains(s.process.Output(), "start a run")
	})
	if s.process.Ended() {
		t.Fatalf("steady dev ended:\n%s", s.process.Output())
	}
}

func (s *site) data() string { return filepath.Join(s.dir, "data") }

// temporal runs the command line and fails the test unless it succeeds.
func (s *site) temporal(args ...string) string {
	s.t.Helper()
	out, code := s.try(args...)
	if code != 0 {
		s.t.Fatalf("temporal %s ended with status %d:\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

func (s *site) try(args ...string) (string, int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Minute)
	defer cancel()
	out, code, err := testutil.Run(ctx, s.cli, append(args, "--address", fmt.Sprintf("127.0.0.1:%d", s.port))...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out, code
}

// input writes run.json with assignments over the demo recipe.
func (s *site) input(name string, sets ...string) string {
	s.t.Helper()
	args := []string{"config", "print", "--recipe", "demo", "--json"}
	for _, a := range append([]string{
		"data.train=32", "data.dev=8", "rollout.batch_problems=4", "run.validate_every=2", "run.checkpoint_every=2", "timeouts.heartbeat=3s",
	}, sets...) {
		args = append(args, "--set", a)
	}
	out, code, err := testutil.Run(s.t.Context(), s.steady, args...)
	if err != nil || code != 0 {
		s.t.Fatalf("config print: %v %s", err, out)
	}
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *site) start(id, input string) {
	s.t.Helper()
	s.temporal("workflow", "start", "--type", "TrainRun", "--task-queue", "steady", "--workflow-id", id, "--input-file", input)
}

func (s *site) progress(id string) contract.Progress {
	s.t.Helper()
	out, code := s.try("workflow", "query", "--workflow-id", id, "--name", "progress", "-o", "json")
	var p contract.Progress
	if code != 0 {
		return p
	}
	var res struct {
		QueryResult []json.RawMessage `json:"queryResult"`
	}
	if err := json.Unmarshal([]byte(out), &res); err != nil || len(res.QueryResult) == 0 {
		s.t.Fatalf("query result %q: %v", out, err)
	}
	if err := json.Unmarshal(res.QueryResult[0], &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// end waits for a workflow and returns its status.
func (s *site) end(id string, limit time.Duration) string {
	s.t.Helper()
	status := ""
	testutil.Eventually(s.t, limit, id+" ends", func() bool {
		out, code := s.try("workflow", "describe", "--workflow-id", id, "-o", "json")
		if code != 0 {
			return false
		}
		var d struct {
			Info struct {
				Status string `json:"status"`
			} `json:"workflowExecutionInfo"`
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			s.t.Fatal(err)
		}
		status = strings.TrimPrefix(d.Info.Status, "WORKFLOW_EXECUTION_STATUS_")
		return status != "RUNNING"
	})
	return status
}

func (s *site) store() artifact.Store {
	s.t.Helper()
	st, err := artifact.NewFiles(filepath.Join(s.data(), "store"))
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

func TestCommandLine_drivesARun(t *testing.T) {
	s := open(t)
	s.start("r1", s.input("run.json", "run.steps=40"))
	testutil.Eventually(t, 3*time.Minute, "the first step is trained", func() bool { return s.progress("r1").Step >= 1 })

	s.temporal("workflow", "update", "execute", "--workflow-id", "r1", "--name", "pause")
	testutil.Eventually(t, time.Minute, "the loop pauses", func() bool {
		out, code := s.try("workflow", "query", "--workflow-id", "r1/train", "--name", "progress")
		return code == 0 && strings.Contains(out, "paused")
	})
	if out, code := s.try("workflow", "update", "execute", "--workflow-id", "r1", "--name", "pause"); code == 0 || !strings.Contains(out, "paused already") {
		t.Errorf("a second pause must be refused with a reason, got status %d: %s", code, out)
	}
	if out, code := s.try("workflow", "update", "execute", "--workflow-id", "r1", "--name", "stop_after_step", "--input", `{"step": 99}`); code == 0 {
		t.Errorf("a stop after the last step must be refused: %s", out)
	}
	step := s.progress("r1").Step
	stop := step + 2 + step%2 // even, so that step and interval agree
	s.temporal("workflow", "update", "execute", "--workflow-id", "r1", "--name", "stop_after_step", "--input", fmt.Sprintf(`{"step": %d}`, stop))
	s.temporal("workflow", "signal", "--workflow-id", "r1", "--name", "resume")
	if got := s.end("r1", 4*time.Minute); got != "COMPLETED" {
		t.Fatalf("r1 ended as %s", got)
	}
	if out := s.temporal("workflow", "show", "--workflow-id", "r1"); !strings.Contains(out, "WorkflowExecutionCompleted") {
		t.Errorf("show: %s", out)
	}
	if out := s.temporal("workflow", "list", "--query", fmt.Sprintf("RunName='r1' and Step = %d and Phase = 'done'", stop)); !strings.Contains(out, "r1") {
		t.Errorf("the search attributes do not find the run: %s", out)
	}
	led, err := ledger.Load(t.Context(), s.store(), record.Layout{Run: "r1", Lineage: "l0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := led.Balance(); err != nil {
		t.Error(err)
	}
	if n := led.Count(); n.Trained != 4*stop || n.Open != 0 {
		t.Errorf("ledger %+v, want %d groups trained", n, 4*stop)
	}
	s.checkExport("r1")
	s.evaluate("r1")
	s.restart(stop)
	s.refuse()
}

// checkExport verifies the export, and that a changed byte is found and named.
func (s *site) checkExport(run string) {
	t := s.t
	t.Helper()
	dir := filepath.Join(s.data(), "store", "runs", run, "l0", "export")
	if out, code, err := testutil.Run(t.Context(), s.steady, "verify-export", dir); err != nil || code != 0 {
		t.Errorf("verify-export: %v, status %d: %s", err, code, out)
	}
	page := filepath.Join(dir, "README.md")
	card, err := os.ReadFile(page)
	if err != nil || !bytes.HasPrefix(card, []byte("---\nlicense: ")) || !bytes.Contains(card, []byte("\n# "+run+", step ")) {
		t.Errorf("the export has the card %q, %v", card, err)
	}
	if err := os.WriteFile(page, append(bytes.Clone(card), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, err := testutil.Run(t.Context(), s.steady, "verify-export", dir); err != nil || code != 5 || !strings.Contains(out, "README.md differs") {
		t.Errorf("the card was changed: %v, status %d, want 5 and the file named: %s", err, code, out)
	}
	if err := os.WriteFile(page, card, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "model.safetensors")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(good)
	bad[len(bad)-3] ^= 1
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, err := testutil.Run(t.Context(), s.steady, "verify-export", dir); err != nil || code != 5 || !strings.Contains(out, "model.norm.weight") {
		t.Errorf("one byte changed: %v, status %d, want 5 and the tensor named: %s", err, code, out)
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
}

// evaluate repeats the validation of the export with steady eval, under the run's settings: it has the same figures and verdicts.
func (s *site) evaluate(run string) {
	t := s.t
	t.Helper()
	l := record.Layout{Run: run, Lineage: "l0"}
	var set record.Dataset
	var want record.Validation
	_, err := artifact.GetJSON(t.Context(), s.store(), l.Dataset(), &set)
	_, verr := artifact.GetJSON(t.Context(), s.store(), l.Validation("export"), &want)
	if err != nil || verr != nil {
		t.Fatal(err, verr)
	}
	root, out := filepath.Join(s.data(), "store"), filepath.Join(s.dir, "eval")
	text, code, err := testutil.Run(t.Context(), s.steady, "eval", "--model", filepath.Join(root, l.Export()), "-f", filepath.Join(root, l.ConfigFile()),
		"--data", "taco", "--set", filepath.Join(root, set.Dir), "--out", out)
	if err != nil || code != 0 {
		t.Fatalf("eval: %v, status %d: %s", err, code, text)
	}
	got, err := eval.Read(filepath.Join(out, eval.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	if got.Totals.Metrics != want.Metrics || got.Settings.Model.Weights != want.Weights || len(got.Problems) != len(want.Items) {
		t.Errorf("evaluation %+v of %.12s, validation %+v of %.12s", got.Totals.Metrics, got.Settings.Model.Weights, want.Metrics, want.Weights)
	}
	for i, item := range want.Items {
		if o := got.Problems[i].Samples[0]; got.Problems[i].ID != item.Problem || o.Kind != item.Kind || o.Passed != item.Passed || o.Total != item.Total {
			t.Errorf("%s: evaluation %+v, validation %+v", got.Problems[i].ID, o, item)
		}
	}
}

// restart cancels one run, terminates another, and goes on from its last checkpoint under a new id.
func (s *site) restart(step int) {
	t := s.t
	t.Helper()
	s.start("r2", s.input("r2.json", "run.steps=40", "run.init_run=r1"))
	testutil.Eventually(t, 2*time.Minute, "r2 trains on", func() bool { return s.progress("r2").Step > step })
	s.serverPause("r2")
	s.temporal("workflow", "cancel", "--workflow-id", "r2")
	if got := s.end("r2", time.Minute); got != "CANCELED" {
		t.Errorf("r2 ended as %s, want CANCELED", got)
	}
	s.start("r3", s.input("r3.json", "run.steps=40", "timeouts.closed_check=1s"))
	testutil.Eventually(t, 2*time.Minute, "r3 trains", func() bool { return s.progress("r3").Step >= 3 })
	s.temporal("workflow", "terminate", "--workflow-id", "r3")
	testutil.Eventually(t, time.Minute, "no group of r3 is left running", func() bool {
		out, code := s.try("workflow", "count", "--query", "WorkflowId STARTS_WITH 'r3' and ExecutionStatus='Running'")
		return code == 0 && strings.Contains(out, "Total: 0")
	})
	s.start("r4", s.input("r4.json", "run.steps=4", "run.init_run=r3", "run.init_step=2"))
	if got := s.end("r4", 3*time.Minute); got != "COMPLETED" {
		t.Errorf("r4 ended as %s", got)
	}
	var r record.Run
	if _, err := artifact.GetJSON(t.Context(), s.store(), record.Layout{Run: "r4", Lineage: "l0"}.RunFile(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Parent == nil || r.Parent.Run != "r3" || r.Parent.Step != 2 {
		t.Errorf("parent of r4: %+v", r.Parent)
	}
}

// serverPause pauses the training loop of a run by the server's own means, where the command line has them, and has it go on.
func (s *site) serverPause(run string) {
	t := s.t
	t.Helper()
	if _, code := s.try("workflow", "pause", "--help"); code != 0 {
		t.Log("this temporal command line has no `workflow pause`")
		return
	}
	loop := run + "/train"
	s.temporal("workflow", "pause", "--workflow-id", loop, "--reason", "a look at the machine")
	if out := s.temporal("workflow", "describe", "--workflow-id", loop); !strings.Contains(out, "a look at the machine") {
		t.Errorf("describe does not tell the pause and its reason:\n%s", out)
	}
	step := s.progress(run).Step
	s.temporal("workflow", "unpause", "--workflow-id", loop)
	testutil.Eventually(t, 2*time.Minute, "the loop goes on after the server's pause", func() bool { return s.progress(run).Step > step })
}

// refuse starts runs that can never work; each ends with a message that says what to do.
func (s *site) refuse() {
	t := s.t
	t.Helper()
	write := func(name, text string) string {
		file := filepath.Join(s.dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	broken := write("broken.parquet", "PAR1 this is no parquet file PAR1")
	for id, c := range map[string]struct{ input, want string }{
		"bad-key":   {write("a.json", `{"recipe": "demo", "run": {"stepz": 3}}`), "stepz"},
		"bad-shape": {write("b.json", `[1, 2]`), "want an object"},
		"bad-value": {write("c.json", `{"recipe": "demo", "rollout": {"group_size": 0}}`), "rollout.group_size"},
		"bad-model": {write("d.json", `{"recipe": "demo", "model": {"path": "/nonexistent/model"}}`), "model.path"},
		"bad-data":  {s.input("e.json", "data.shards=["+broken+"]"), "broken.parquet"},
		"no-gpu":    {write("f.json", `{"recipe": "sc-taco-1gpu"}`), "engine.backend"},
		"r1":        {s.input("g.json", "run.steps=3"), "init_run"}, // the id of a finished run
	} {
		s.start(id, c.input)
		if got := s.end(id, time.Minute); got != "FAILED" {
			t.Errorf("%s ended as %s, want FAILED", id, got)
		}
		if out := s.temporal("workflow", "show", "--workflow-id", id, "-o", "json"); !strings.Contains(out, c.want) {
			t.Errorf("%s: the failure does not say %q:\n%.3000s", id, c.want, out)
		}
	}
}

func TestDev_refusesASecondOneAndABusyPort(t *testing.T) {
	s := open(t)
	for name, args := range map[string][]string{
		"the same data directory": {"--data", s.data(), "--port", strconv.Itoa(testutil.FreePort(t)), "--ui-port", strconv.Itoa(testutil.FreePort(t))},
		"a busy port":             {"--data", t.TempDir(), "--port", strconv.Itoa(s.port), "--ui-port", strconv.Itoa(testutil.FreePort(t))},
	} {
		out, code, err := testutil.Run(t.Context(), s.steady, append([]string{"dev"}, args...)...)
		if err != nil || code != 2 || !strings.Contains(out, "try:") || strings.Contains(out, "goroutine") {
			t.Errorf("%s: %v, status %d, want 2 with a hint and no stack:\n%s", name, err, code, out)
		}
	}
	s.process.Interrupt()
	if code := s.process.Wait(t, 30*time.Second); code != 0 && code != 4 {
		t.Errorf("after an interrupt the status is %d", code)
	}
}
