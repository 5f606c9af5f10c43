package obs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steadyrl/steady/internal/fault"
)

// lines parses a log file without its times.
func lines(t *testing.T, name string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(data)) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if m["time"] == nil {
			t.Errorf("no time in %q", line)
		}
		delete(m, "time")
		out = append(out, m)
	}
	return out
}

func TestNewLogger_fileAndConsoleHaveTheirOwnLevel(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "logs", "steady.log")
	var console bytes.Buffer
	l, done, err := NewLogger(Options{Level: "debug", File: name, Console: &console, ConsoleLevel: "warn"})
	if err != nil {
		t.Fatal(err)
	}
	cause := fault.New(fault.Busy, "a.B", "full: %w", errors.New("no slot")).WithHint("wait")
	l.Debug("small")
	l.Warn("large", Err(fmt.Errorf("step 3: %w", cause)), Err(nil))
	if err := done(); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"level": "debug", "message": "small"},
		{"level": "warn", "message": "large", "error": "step 3: a.B: full: no slot", "kind": "Busy", "hint": "wait"},
	}
	if d := cmp.Diff(want, lines(t, name)); d != "" {
		t.Errorf("file (-want +got):\n%s", d)
	}
	if got := console.String(); strings.Contains(got, "small") || !strings.Contains(got, "warn large") {
		t.Errorf("console = %q, want only the warning", got)
	}
}

func TestNewLogger_refusesUnknownLevels(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Level: "loud"}, {ConsoleLevel: "loud"}, {File: filepath.Join(os.DevNull, "x")}} {
		if _, _, err := NewLogger(o); fault.KindOf(err) != fault.Invalid {
			t.Errorf("NewLogger(%+v): error = %v, want Invalid", o, err)
		}
	}
}

func TestNewLogger_aFileThatTakesNothingIsSaidOnce(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no device that is always full")
	}
	var lost []error
	var console bytes.Buffer
	l, _, err := NewLogger(Options{File: "/dev/full", Console: &console, OnLost: func(err error) { lost = append(lost, err) }})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.Info("line")
	}
	if len(lost) != 1 || !errors.Is(lost[0], syscall.ENOSPC) {
		t.Errorf("told of %v, want one full device", lost)
	}
	if got := strings.Count(console.String(), "line"); got != 3 {
		t.Errorf("the console has %d lines, want 3", got)
	}
	l, _, err = NewLogger(Options{File: "/dev/full"})
	if err != nil {
		t.Fatal(err)
	}
	l.Error("nobody is told")
}

// broken fails as a closed pipe does.
type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) { b.writes++; return 0, syscall.EPIPE }

// What zap cannot write must not reach standard error, where the display of a run is. This test binary is the program.
func TestNewLogger_keepsItsTroublesToItself(t *testing.T) {
	const variable = "STEADY_TEST_OBS"
	if os.Getenv(variable) != "" {
		b := &broken{}
		l, _, err := NewLogger(Options{File: "/dev/full", Console: b})
		if err != nil {
			t.Fatal(err)
		}
		l.Warn("line")
		if b.writes == 0 {
			t.Error("the console was not tried")
		}
		return
	}
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no device that is always full")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNewLogger_keepsItsTroublesToItself$")
	cmd.Env = append(os.Environ(), variable+"=1")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if out, err := cmd.Output(); err != nil || errOut.Len() > 0 {
		t.Errorf("%v, standard error %q, output %s; want nothing", err, &errOut, out)
	}
}

func TestSDKLogger_keysAndOddArguments(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "x.log")
	l, done, err := NewLogger(Options{File: name})
	if err != nil {
		t.Fatal(err)
	}
	s := SDKLogger(l)
	s.Debug("hidden")
	s.Info("plain", "Namespace", "default", "TaskQueue", "steady", "WorkflowID", "r/train", "Attempt", 2)
	s.Error("odd", 7, "x", "Error", errors.New("boom"), "tail")
	if err := done(); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"level": "info", "message": "plain", "namespace": "default", "task_queue": "steady", "workflow_id": "r/train", "attempt": 2.0, "run": "r", "lineage": "l0", "role": "control"},
		{"level": "error", "message": "odd", "extra": []any{7.0, "x", "tail"}, "error": "boom"},
	}
	got := lines(t, name)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestSnake_followsGoAcronyms(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"WorkflowID": "workflow_id", "TaskQueue": "task_queue", "RunID": "run_id", "step": "step", "HTTPPort": "http_port", "worker_id": "worker_id", "Attempt": "attempt", "": ""} {
		if got := snake(in); got != want {
			t.Errorf("snake(%q) = %q, want %q", in, got, want)
		}
	}
}
