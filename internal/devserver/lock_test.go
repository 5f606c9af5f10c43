package devserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// held locks a new directory as another program would, under a process id of choice, and returns how to give it free.
func held(t *testing.T, holder string) (dir string, free func()) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(holder); err != nil {
		t.Fatal(err)
	}
	return dir, func() { _ = f.Close() }
}

// dead is the id of a process that has ended and was waited for.
func dead(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestLockDir_waitsForAHolderThatEnds(t *testing.T) {
	t.Parallel()
	for name, holder := range map[string]string{
		"gone":             strconv.Itoa(dead(t)) + "\n",
		"not written yet":  "",
		"not a process id": "what\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, free := held(t, holder)
			told := make(chan string, 1)
			var once sync.Once
			w := patience{
				ending: isEnding, poll: time.Millisecond, limit: time.Hour, waiting: func(holder string) { told <- holder },
				busy: func() {
					if len(told) > 0 { // it waits, and has said so
						once.Do(func() { go free() })
					}
				},
			}
			lock, err := w.lock(t.Context(), dir)
			if err != nil {
				t.Fatalf("the holder gave the directory free: %v", err)
			}
			defer lock.Unlock()
			if got, want := <-told, orUnknown(strings.TrimSpace(holder)); got != want {
				t.Errorf("told of holder %q, want %q", got, want)
			}
			if !lock.abandoned && holder != "" {
				t.Error("the last holder left its id, so it did not end in order")
			}
			if got := holderOf(lock.file); got != strconv.Itoa(os.Getpid()) {
				t.Errorf("the lock names %q, want this process", got)
			}
		})
	}
}

func TestLockDir_refusesAHolderThatStays(t *testing.T) {
	t.Parallel()
	alive := strconv.Itoa(os.Getpid())
	for name, c := range map[string]struct {
		holder string
		w      patience
	}{
		"alive":                {alive, patience{ending: isEnding, poll: time.Millisecond, grace: 3 * time.Millisecond, limit: time.Hour}},
		"ending, but too long": {alive, patience{ending: func(int) bool { return true }, poll: time.Millisecond, limit: 5 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := held(t, c.holder)
			_, err := c.w.lock(t.Context(), dir)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "in use by process "+c.holder) || fault.HintOf(err) == "" {
				t.Errorf("error = %v, want Invalid with the process and a hint", err)
			}
		})
	}
}

func TestLockDir_stopsWaitingWithItsContext(t *testing.T) {
	t.Parallel()
	dir, _ := held(t, strconv.Itoa(dead(t)))
	ctx, cancel := context.WithCancel(t.Context())
	w := patience{ending: isEnding, poll: time.Millisecond, limit: time.Hour, busy: cancel}
	if _, err := w.lock(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want the end of the context", err)
	}
}

func TestLock_knowsWhetherItsLastHolderEndedInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		l, err := LockDir(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if l.abandoned {
			t.Error("the directory is new, or was given free in order")
		}
		l.Unlock()
		l.Unlock()
	}
	l, err := LockDir(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.file.Close() // as the kernel does after kill -9
	l, err = LockDir(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if !l.abandoned {
		t.Error("the last holder did not end in order")
	}
}

func TestIsEnding_tellsTheLivingFromTheDead(t *testing.T) {
	t.Parallel()
	if isEnding(os.Getpid()) {
		t.Error("this process runs")
	}
	if !isEnding(dead(t)) {
		t.Error("a process that was waited for is gone")
	}
	// A killed child is a zombie until it is waited for; the end of its output says that it is on its way.
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIsEnding_child$")
	cmd.Env = append(os.Environ(), "STEADY_TEST_LOCK_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if isEnding(cmd.Process.Pid) {
		t.Error("the child runs")
	}
	_ = cmd.Process.Kill()
	_, _ = out.Read(make([]byte, 1<<10)) // until the kernel closed its files
	if runtime.GOOS == "linux" && !isEnding(cmd.Process.Pid) {
		t.Error("the child was killed")
	}
	_ = cmd.Wait() // killed
}

// TestIsEnding_child says that it runs, and waits to be killed.
func TestIsEnding_child(t *testing.T) {
	if os.Getenv("STEADY_TEST_LOCK_CHILD") == "" {
		t.Skip("is the child of TestIsEnding_tellsTheLivingFromTheDead")
	}
	if _, err := os.Stdout.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done()
}

func TestCheckPorts_saysFlagValueAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		port, ui int
		want     []string // in the message; none for good ports
	}{
		{7233, 8233, nil},
		{1, 65535, nil},
		{0, 8233, []string{"--port 0", "1 to 65535"}},
		{-1, 8233, []string{"--port -1", "1 to 65535"}},
		{7233, 99999, []string{"--ui-port 99999", "1 to 65535"}},
		{7233, 65536, []string{"--ui-port 65536", "1 to 65535"}},
		{7233, 7233, []string{"--port and --ui-port are both 7233"}},
	} {
		err := CheckPorts(c.port, c.ui)
		if c.want == nil {
			if err != nil {
				t.Errorf("%d, %d: %v", c.port, c.ui, err)
			}
			continue
		}
		if fault.KindOf(err) != fault.Invalid || fault.HintOf(err) == "" {
			t.Errorf("%d, %d: error = %v, want Invalid with a hint", c.port, c.ui, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%d, %d: %q does not say %q", c.port, c.ui, err, part)
			}
		}
	}
}
