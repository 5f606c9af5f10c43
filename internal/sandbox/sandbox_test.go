package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/testutil"
)

var shared = sync.OnceValues(func() (*sandbox.Sandbox, error) {
	py, err := sandbox.FindPython(context.Background(), os.Getenv("STEADY_SANDBOX_PYTHON"))
	if err != nil {
		return nil, err
	}
	return sandbox.New(context.Background(), sandbox.Options{Python: py})
})

// box returns the sandbox that all tests share: its own self-test runs once.
func box(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, fault.HintOf(err))
	}
	return s
}

func mustRun(t testing.TB, p sandbox.Program) sandbox.Result {
	t.Helper()
	r, err := box(t).Run(t.Context(), p)
	if err != nil {
		t.Fatalf("Run: %v\nprogram:\n%s", err, p.Source)
	}
	return r
}

func short(d time.Duration) *sandbox.Limits { return &sandbox.Limits{Time: d} }

func TestRun_outcomes(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	tests := []struct {
		name, source, stdin string
		limits              *sandbox.Limits
		want                sandbox.Outcome
		exit, signal        int
		stdout              string // "" is not compared
	}{
		{name: "ok", source: "print(int(input())*2)", stdin: "21", want: sandbox.OK, stdout: "42\n"},
		{name: "empty program", source: "", want: sandbox.OK},
		{name: "exit 0", source: "print(1); exit(0)", want: sandbox.OK, stdout: "1\n"},
		{name: "os._exit 0", source: "import os; os._exit(0)", want: sandbox.OK},
		{name: "exit 3", source: "import sys; sys.exit(3)", want: sandbox.RuntimeError, exit: 3},
		{name: "exit with text", source: "exit('no')", want: sandbox.RuntimeError, exit: 1},
		{name: "exception", source: "1/0", want: sandbox.RuntimeError, exit: 1},
		{name: "syntax error", source: "print(", want: sandbox.CompileError, exit: 1},
		{name: "tabs", source: "if 1:\n        x=1\n\ty=2", want: sandbox.CompileError, exit: 1},
		{name: "null byte", source: "x=1\x00", want: sandbox.CompileError, exit: 1},
		{name: "bad encoding", source: "# -*- coding: nonsense -*-\nx=1", want: sandbox.CompileError, exit: 1},
		{name: "invalid utf-8", source: "x='\xff\xfe'", want: sandbox.CompileError, exit: 1},
		{name: "return outside", source: "return 1", want: sandbox.CompileError, exit: 1},
		{name: "a syntax error raised later is no compile error", source: "exec('print(')", want: sandbox.RuntimeError, exit: 1},
		{name: "segmentation fault", source: "import os; os.kill(os.getpid(), 11)", want: sandbox.RuntimeError, exit: -1, signal: 11},
		{name: "abort", source: "import os; os.abort()", want: sandbox.RuntimeError, exit: -1, signal: 6},
		{name: "loop", source: "while True: pass", limits: short(300 * time.Millisecond), want: sandbox.TimeLimit, exit: -1, signal: 9},
		{name: "sleep counts", source: "import time; time.sleep(60)", limits: short(300 * time.Millisecond), want: sandbox.TimeLimit, exit: -1, signal: 9},
		{name: "memory", source: "x = bytearray(3 << 30)", want: sandbox.MemoryLimit, exit: 1},
		{name: "memory in steps", source: "x=[]\nwhile True: x.append(bytearray(1<<24))", want: sandbox.MemoryLimit, exit: 1},
		{name: "1 MiB of output", source: "import sys; sys.stdout.write('x'*(1<<20))", want: sandbox.OK, stdout: strings.Repeat("x", mib)},
		{name: "one byte more", source: "import sys; sys.stdout.write('x'*((1<<20)+1))", want: sandbox.OutputLimit},
		{name: "1 MiB of errors", source: "import sys; sys.stderr.write('x'*(1<<20))", want: sandbox.OK},
		{name: "one byte more of errors", source: "import sys; sys.stderr.write('x'*((1<<20)+1))", want: sandbox.OutputLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustRun(t, sandbox.Program{Source: []byte(tt.source), Stdin: []byte(tt.stdin), Limits: tt.limits})
			if r.Outcome != tt.want {
				t.Fatalf("outcome = %v, want %s; stderr %.400q", r, tt.want, r.Stderr)
			}
			if tt.want != sandbox.OutputLimit && (r.ExitCode != tt.exit || r.Signal != tt.signal) {
				t.Errorf("exit %d signal %d, want %d, %d; stderr %.400q", r.ExitCode, r.Signal, tt.exit, tt.signal, r.Stderr)
			}
			if tt.stdout != "" && string(r.Stdout) != tt.stdout {
				t.Errorf("stdout = %.60q (%d bytes), want %.60q", r.Stdout, len(r.Stdout), tt.stdout)
			}
		})
	}
}

func TestRun_figures(t *testing.T) {
	t.Parallel()
	r := mustRun(t, sandbox.Program{Source: []byte(`
import time, sys
x = bytearray(200 << 20)
end = time.process_time() + 0.2
while time.process_time() < end: pass
time.sleep(0.4)
sys.stdout.write("y" * 5)
`)})
	if r.Outcome != sandbox.OK || r.StdoutBytes != 5 {
		t.Fatalf("%v, stderr %s", r, r.Stderr)
	}
	if r.CPUSeconds < 0.15 || r.CPUSeconds > r.WallSeconds {
		t.Errorf("cpu = %v s, want about 0.2 and less than wall %v", r.CPUSeconds, r.WallSeconds)
	}
	if r.ChargedSeconds < 0.4 || r.ChargedSeconds > r.WallSeconds {
		t.Errorf("charged = %v s, want at least the sleep of 0.4 and at most wall %v", r.ChargedSeconds, r.WallSeconds)
	}
	if r.StartupSeconds <= 0 || r.QueueSeconds < 0 {
		t.Errorf("startup = %v, queue = %v", r.StartupSeconds, r.QueueSeconds)
	}
}

// The peak is the program's own and exact, however short it runs and however large this process is.
func TestRun_peakMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	ballast := bytes.Repeat([]byte{1}, 300*mib)
	if empty := mustRun(t, sandbox.Program{Source: []byte("pass")}).PeakRSSBytes; empty < 4*mib || empty > 64*mib {
		t.Errorf("peak of an empty program = %d bytes, want that of an interpreter", empty)
	}
	peak := func(used int64, end string) int64 {
		return mustRun(t, sandbox.Program{Source: fmt.Appendf(nil, "x = b'x' * (%d << 20); del x%s", used, end)}).PeakRSSBytes
	}
	const base = 32
	least := peak(base, "")
	for _, used := range []int64{48, 128} {
		for _, end := range []string{"", "\nimport os; os._exit(0)", "\n1/0", "\nimport os; os.kill(os.getpid(), 9)"} {
			if more := peak(used, end) - least; more < (used-base-2)*mib || more > (used-base+8)*mib {
				t.Errorf("%d MiB, then %q: peak %d bytes above a program of %d MiB", used, end, more, base)
			}
		}
	}
	runtime.KeepAlive(ballast)
}

func TestRun_streamsAreCutAndCounted(t *testing.T) {
	t.Parallel()
	r := mustRun(t, sandbox.Program{
		Source: []byte("import sys\nsys.stdout.write('abc'); sys.stdout.flush(); sys.stdout.write('d'*1000)"),
		Limits: &sandbox.Limits{Output: 4},
	})
	if r.Outcome != sandbox.OutputLimit || string(r.Stdout) != "abcd" || r.StdoutBytes <= 4 {
		t.Errorf("%v, stdout %q of %d bytes; want output_limit, abcd", r, r.Stdout, r.StdoutBytes)
	}
}

func TestRun_cancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := box(t).Run(ctx, sandbox.Program{Source: []byte("import time; time.sleep(60)")})
	if err != context.DeadlineExceeded {
		t.Errorf("error = %v, want the context's own", err)
	}
}

// What keeps the interpreter from its start is our fault, never the program's.
func TestNew_infrastructure(t *testing.T) {
	t.Parallel()
	py, err := sandbox.FindPython(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := testutil.WriteScript(t, dir, "helper", "exit 7")
	gone := py
	gone.Path = filepath.Join(dir, "python")
	notPython := py
	notPython.Path = "/bin/ls"
	for name, o := range map[string]sandbox.Options{
		"no helper":                  {Helper: filepath.Join(dir, "nothing"), Python: py},
		"a helper that does nothing": {Helper: script, Python: py},
		"no interpreter":             {Python: gone},
		"no Python":                  {Python: notPython},
		"too little memory to start": {Python: py, Limits: sandbox.Limits{Memory: 1 << 20}},
	} {
		s, err := sandbox.New(t.Context(), o)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: a sandbox was made", name)
		} else if !fault.Is(err, fault.Infrastructure) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (kind %s), want Infrastructure with a hint", name, err, fault.KindOf(err))
		}
	}
}

// Of what is there the wanted range comes first, then whatever can be used; one that cannot is named in the reason.
func TestChoose_prefersTheWantedRange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(version string) string {
		return testutil.WriteScript(t, dir, "python"+version, "echo "+version)
	}
	broken := testutil.WriteScript(t, dir, "broken", "exit 1")
	for _, c := range []struct {
		names  []string
		best   string
		passed string
	}{
		{[]string{at("3.11.7"), at("3.12.3"), at("3.13.0")}, at("3.12.3"), ""},
		{[]string{at("3.12.2"), at("3.13.0"), at("3.11.7")}, at("3.13.0"), "3.12.2"},
		{[]string{at("3.12.1"), at("3.8.18"), broken, "/nonexistent/python3"}, "", "3.12.1 at " + at("3.12.1")},
		{[]string{at("3.8.18"), broken}, "", ""},
		{nil, "", ""},
	} {
		best, passed := sandbox.Choose(t.Context(), c.names)
		if best != c.best || (passed == "") != (c.passed == "") || !strings.Contains(passed, c.passed) {
			t.Errorf("%v: got %q, passed over %q; want %q, %q", c.names, best, passed, c.best, c.passed)
		}
	}
}

func TestFindPython_explicit(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/nonexistent/python3", "/bin/ls", "/"} {
		if _, err := sandbox.FindPython(t.Context(), path); !fault.Is(err, fault.Invalid) {
			t.Errorf("FindPython(%q) = %v, want kind Invalid", path, err)
		}
	}
}

// Who is interrupted while an interpreter answers hears of the interrupt and not of a bad interpreter.
func TestFindPython_interrupted(t *testing.T) {
	path := os.Getenv("PATH")
	for _, question := range []string{"version", "description"} {
		for _, named := range []bool{true, false} {
			pipe, ctx := testutil.Asked(t)
			script := "exec cat " + pipe
			if question == "description" {
				script = `case "$3" in *"print(\"%d.%d.%d\""*) echo 3.12.4; exit;; esac; ` + script
			}
			dir := t.TempDir()
			program := testutil.WriteScript(t, dir, "python3.12", script)
			if !named { // it is the first that is looked for
				program = ""
			}
			t.Setenv("PATH", dir+string(filepath.ListSeparator)+path)
			_, err := sandbox.FindPython(ctx, program)
			if !errors.Is(err, context.Canceled) || fault.Is(err, fault.Invalid) || fault.Is(err, fault.Infrastructure) {
				t.Errorf("interrupted at its %s (named: %v): %v, want that it was canceled", question, named, err)
			}
		}
	}
}
