package devserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/fault"
)

// binary returns the temporal binary of the repository, fetched if need be.
func binary(t *testing.T) devserver.Binary {
	t.Helper()
	b, err := devserver.Fetch(t.Context(), "../../.tools/temporal", []string{"../../bin/temporal"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func options(t *testing.T, dir string) devserver.Options {
	t.Helper()
	return devserver.Options{
		Binary: binary(t), DBFile: filepath.Join(dir, "temporal.db"), Port: -1, UIPort: -1,
		Attributes: []devserver.Attribute{{Name: "RunName", Type: "Keyword"}, {Name: "Step", Type: "Int"}},
	}
}

// temporal runs a command of the binary against s and returns its output.
func temporal(t *testing.T, s *devserver.Server, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t).Path, append(args, "--address", s.Address())...).CombinedOutput()
	if err != nil {
		t.Fatalf("temporal %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func startWorkflow(t *testing.T, s *devserver.Server, id string) {
	t.Helper()
	temporal(t, s, "workflow", "start", "--type", "Nothing", "--task-queue", "nobody", "--workflow-id", id, "--search-attribute", `RunName="r1"`)
}

func TestServer_comesBackWithItsDataAfterKill(t *testing.T) {
	t.Parallel()
	events := make(chan devserver.Event, 16)
	o := options(t, t.TempDir())
	o.OnEvent = func(e devserver.Event) { events <- e }
	s, err := devserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	for i := range 3 {
		id := fmt.Sprintf("w%d", i)
		startWorkflow(t, s, id)
		pid := s.PID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := <-events; e.Err == nil || !strings.Contains(e.Err.Error(), "killed") {
			t.Fatalf("after kill %d: event = %+v, want the end of the process", i, e)
		}
		if e := <-events; e.Err != nil || e.Restarts != i+1 {
			t.Fatalf("after kill %d: event = %+v, want ready again after restart %d", i, e, i+1)
		}
		if s.PID() == pid || s.Restarts() != i+1 {
			t.Errorf("pid = %d (before %d), restarts = %d, want %d", s.PID(), pid, s.Restarts(), i+1)
		}
		if out := temporal(t, s, "workflow", "describe", "-w", id); !strings.Contains(out, "Nothing") {
			t.Errorf("workflow %s after kill:\n%s", id, out)
		}
	}
	if out := temporal(t, s, "operator", "namespace", "describe", "-n", "default", "-o", "json"); !strings.Contains(out, `"2592000s"`) {
		t.Errorf("retention is not 30 days:\n%s", out)
	}
}

func TestServer_secondStartKeepsDataAndAddsAttributes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options(t, dir)
	s, err := devserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	startWorkflow(t, s, "kept")
	_, err = devserver.Start(t.Context(), options(t, dir))
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("second server on the same folder: error = %v, want Invalid with the process", err)
	}
	taken := options(t, t.TempDir())
	taken.Port = portOf(t, s.Address())
	_, err = devserver.Start(t.Context(), taken)
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.HintOf(err), "--port") || !strings.Contains(err.Error(), strconv.Itoa(taken.Port)) {
		t.Errorf("busy port: error = %v, hint %q; want Invalid with the port and the flag", err, fault.HintOf(err))
	}
	if err := s.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}

	o.Attributes = append(o.Attributes, devserver.Attribute{Name: "Reward", Type: "Double"})
	s, err = devserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	if out := temporal(t, s, "workflow", "describe", "-w", "kept"); !strings.Contains(out, "Nothing") {
		t.Errorf("workflow after an orderly stop:\n%s", out)
	}
	temporal(t, s, "workflow", "start", "--type", "Nothing", "--task-queue", "nobody", "--workflow-id", "new", "--search-attribute", "Reward=0.5")
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStart_refusesADatabaseOfAnotherServer(t *testing.T) {
	t.Parallel()
	o := options(t, t.TempDir())
	for name, text := range map[string]string{o.DBFile: "", o.DBFile + ".version": "1.31.4\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := devserver.Start(t.Context(), o)
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "written by Temporal server 1.31.4") {
		t.Errorf("error = %v, want Invalid with the version", err)
	}
}

func TestStart_reportsAServerThatCannotStart(t *testing.T) {
	t.Parallel()
	o := options(t, t.TempDir())
	if err := os.WriteFile(o.DBFile, []byte("this is not a database, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := devserver.Start(t.Context(), o)
	if fault.KindOf(err) != fault.Lost || !strings.Contains(err.Error(), "database") || fault.HintOf(err) == "" {
		t.Errorf("error = %v, want Lost with the end of the log", err)
	}
	lock, err := devserver.LockDir(t.Context(), filepath.Dir(o.DBFile), nil)
	if err != nil {
		t.Errorf("the folder is not free after a failed start: %v", err)
	}
	lock.Unlock()
}

// TestServer_diesWithItsParent runs this test binary as the parent and kills it.
func TestServer_diesWithItsParent(t *testing.T) {
	const variable = "STEADY_TEST_DEVSERVER_DIR"
	if dir := os.Getenv(variable); dir != "" {
		s, err := devserver.Start(t.Context(), options(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("ready", s.PID(), s.Address())
		<-s.Done()
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServer_diesWithItsParent$")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var address string
	if _, err := fmt.Fscanf(out, "ready %d %s\n", &pid, &address); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	o := options(t, dir)
	o.Port = portOf(t, address)
	s, err := devserver.Start(t.Context(), o) // the folder and the port are free
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	if err := syscall.Kill(pid, 0); err == nil && pid != s.PID() {
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if !strings.Contains(string(state), ") Z ") { // dead, not yet reaped by init
			t.Errorf("server %d outlived its parent: %s", pid, state)
		}
	}
}

func TestServer_stopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := devserver.Start(ctx, options(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-s.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("still running 30 s after the end of its context")
	}
	if s.PID() != 0 {
		t.Errorf("pid = %d after the end", s.PID())
	}
}
