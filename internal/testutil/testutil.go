// Package testutil starts the real program for the tests in test/: it finds bin/steady, starts it in a
// folder of its own on free ports, and waits for conditions. Only tests import it.
package testutil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Root is the root of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Binary returns a program that `make build` left in bin.
func Binary(t *testing.T, name string) string {
	t.Helper()
	p := filepath.Join(Root(), "bin", name)
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	return p
}

// FreePort returns a TCP port that is free on the loopback address now.
func FreePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener
}

// Eventually waits until ok returns true, asking ten times a second, and fails the test after limit.
func Eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %s: %s has not happened", limit, what)
		}
	}
}

// Process is a running program with its output.
type Process struct {
	Cmd  *exec.Cmd
	done chan struct{}
	err  error     // of Wait; set before done is closed
	at   time.Time // of the end; set before done is closed

	mu  sync.Mutex
	out bytes.Buffer
}

// Start starts a program in its own process group; it is killed at the end of the test.
func Start(t *testing.T, name string, args ...string) *Process {
	t.Helper()
	return StartWith(t, nil, name, args...)
}

// StartWith is Start with more variables of the environment, each "NAME=value".
func StartWith(t *testing.T, env []string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(name, args...), done: make(chan struct{})} //nolint:gosec,noctx // our own binary, ended by Kill
	p.Cmd.Env = append(os.Environ(), env...)
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cmd.Stdout, p.Cmd.Stderr = p, p
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		p.at = time.Now()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of %s %s:\n%s", filepath.Base(name), strings.Join(args, " "), p.Output())
		}
	})
	return p
}

// Write collects output.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// Output is what the process printed so far.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Kill ends the process with SIGKILL and waits for it; one that has ended stays so.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.done
}

// Signal sends a signal; a process that has ended gets none.
func (p *Process) Signal(s os.Signal) { _ = p.Cmd.Process.Signal(s) }

// EndedAt is when the process ended, the zero time while it runs.
func (p *Process) EndedAt() time.Time {
	if !p.Ended() {
		return time.Time{}
	}
	return p.at
}

// Interrupt asks the process to end.
func (p *Process) Interrupt() { _ = p.Cmd.Process.Signal(os.Interrupt) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait waits for the end and returns the exit status.
func (p *Process) Wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("%s did not end within %s", p.Cmd.Path, limit)
	}
	if e, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return e.ExitCode()
	}
	return 0
}

// Run runs a program to its end and returns its output and exit status.
func Run(ctx context.Context, name string, args ...string) (string, int, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput() //nolint:gosec // our own binary
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), e.ExitCode(), nil
	}
	if err != nil {
		return "", -1, fmt.Errorf("%s: %w", name, err)
	}
	return string(out), 0, nil
}

// Page returns the body of an address, and reports any status but 200.
func Page(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d, %v\n%s", url, res.StatusCode, err, body)
	}
	return string(body)
}
