package crashpoint_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/steadyrl/steady/internal/crashpoint"
)

// child makes the test binary visit points in a process of its own.
const child = "STEADY_TEST_CRASHPOINT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	if err := crashpoint.Setup(os.Getenv(crashpoint.Variable), os.Getenv(crashpoint.CountsVariable)); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	for range 3 {
		crashpoint.Here("judge.verdicts.before")
		crashpoint.Here("judge.verdicts.after")
	}
}

func TestHere_endsOrStopsTheProcessAtTheVisitThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		order  string
		visits int // in all, that of the crash included
		signal syscall.Signal
	}{
		{"", 6, 0},
		{"judge.verdicts.before", 1, syscall.SIGKILL},
		{"judge.verdicts.after", 2, syscall.SIGKILL},
		{"judge.verdicts.before:3", 5, syscall.SIGKILL},
		{"judge.verdicts.after:4", 6, 0},
		{"judge.verdicts.after:2:stop", 4, syscall.SIGSTOP},
		{"judge.verdicts.before:stop", 1, syscall.SIGSTOP},
		{"control.run.before", 6, 0},
	} {
		file := filepath.Join(t.TempDir(), "counts")
		var out strings.Builder
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1", crashpoint.Variable+"="+tt.order, crashpoint.CountsVariable+"="+file)
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if tt.signal == syscall.SIGSTOP {
			var status syscall.WaitStatus
			if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
				t.Fatalf("%q: %v, status %v, want a stop", tt.order, err, status)
			}
			if n := visits(t, file); n != tt.visits {
				t.Errorf("%q: %d visits before the stop, want %d", tt.order, n, tt.visits)
			}
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			tt.visits = 6 // it goes on to its end
		}
		err := cmd.Wait()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if killed := status.Signaled() && status.Signal() == syscall.SIGKILL; killed != (tt.signal == syscall.SIGKILL) || !killed && err != nil {
			t.Errorf("%q: ended with %v, want signal %v", tt.order, err, tt.signal)
		}
		want := ""
		if tt.signal != 0 {
			point, _, _ := strings.Cut(tt.order, ":")
			want = crashpoint.Reached(point) + "\n"
		}
		if n := visits(t, file); n != tt.visits || out.String() != want {
			t.Errorf("%q: %d visits and %q said, want %d and %q", tt.order, n, out.String(), tt.visits, want)
		}
	}
}

func visits(t *testing.T, file string) int {
	t.Helper()
	c, err := crashpoint.OpenCounts(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Of("judge.verdicts.before") + c.Of("judge.verdicts.after"); got != c.Effects() {
		t.Errorf("%d effects in all, of them %d of the judge; there are no others", c.Effects(), got)
	}
	return c.Effects()
}

func TestSetup_refusesWhatIsNoOrder(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"nothing", "judge.verdicts", "rollout.token:", "rollout.token:0", "rollout.token:-1", "rollout.token:x", "rollout.token:1:2", "rollout.token:stop:1", "rollout.token:stop:stop", ":stop"} {
		if err := crashpoint.Setup(text, ""); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if err := crashpoint.Setup("", filepath.Join(t.TempDir(), "no", "such")); err == nil {
		t.Error("a file that cannot be made is taken")
	}
	crashpoint.Here("rollout.token") // still does nothing
}

func TestAll_namesAreUniqueAndSpeakOfTheirRole(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range crashpoint.All() {
		role, rest, ok := strings.Cut(name, ".")
		if seen[name] || !ok || rest == "" || !slices.Contains([]string{"control", "data", "trainer", "rollout", "judge", "store"}, role) {
			t.Errorf("%q is there twice, or not of a role", name)
		}
		seen[name] = true
	}
}

func BenchmarkHere(b *testing.B) {
	for b.Loop() {
		crashpoint.Here("rollout.token")
	}
}
