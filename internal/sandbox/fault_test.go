package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/sandbox/confine"
	"github.com/steadyrl/steady/internal/testutil"
)

// What this binary is when a test starts it again.
const (
	asRefused = "as-helper-that-is-refused-a-call"
	asWorker  = "as-worker"
	asStarved = "as-worker-without-descriptors"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asRefused:
			becomeRefusedHelper(os.Args[2:])
		case asWorker:
			becomeWorker(os.Args[2])
		case asStarved:
			becomeStarvedWorker()
		}
	}
	os.Exit(m.Run())
}

// anyArg in refusal.arg means every call with the number.
const anyArg = -1

// refusal makes the kernel answer ENOMEM to system call nr, if argument arg is value.
type refusal struct {
	name       string // what the error must name
	nr         int
	arg, value int
}

// becomeRefusedHelper starts the helper under a filter that refuses one call: args are number, argument, value, helper's own.
func becomeRefusedHelper(args []string) {
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(args[i])
	}
	const load, equal, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{{Code: load}, {Code: equal, K: uint32(n[0]), Jf: 3}}
	if n[1] == anyArg {
		filter[1].Jf = 1
	} else {
		filter = append(filter, unix.SockFilter{Code: load, K: uint32(16 + 8*n[1])}, unix.SockFilter{Code: equal, K: uint32(n[2]), Jf: 1})
	}
	filter = append(filter, unix.SockFilter{Code: give, K: uint32(confine.Errno(unix.ENOMEM))}, unix.SockFilter{Code: give, K: uint32(confine.Allow)})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		const everyThread = 1 // SECCOMP_FILTER_FLAG_TSYNC
		_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, everyThread, uintptr(unsafe.Pointer(&prog)))
		if err = e; e == 0 {
			err = unix.Exec("/proc/self/exe", append([]string{confine.HelperArg}, args[3:]...), os.Environ())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Every call that the helper makes on the way to a program can fail. Then no program is judged, and the error says which.
func TestFault_everyStepOfTheHelper(t *testing.T) {
	t.Parallel()
	dup, prctl, limit := unix.SYS_DUP3, unix.SYS_PRCTL, unix.SYS_PRLIMIT64
	tests := []refusal{
		{"the helper has ended", unix.SYS_RECVMSG, anyArg, 0},
		{"the helper has ended", unix.SYS_SENDMSG, anyArg, 0},
		{"fork", unix.SYS_CLONE, 0, int(unix.SIGCHLD) | unix.CLONE_VFORK},
		{"fork", unix.SYS_PIDFD_OPEN, anyArg, 0},
		{"exited with 125", dup, 1, confine.StatusFD},
		{"streams", dup, 1, 0},
		{"streams", dup, 1, 1},
		{"streams", dup, 1, 2},
		{"streams", dup, 1, confine.ReadyFD},
		{"streams", dup, 1, confine.ProgramFD},
		{"interpreter descriptor", dup, 1, confine.InterpreterFD},
		{"close_range", unix.SYS_CLOSE_RANGE, 2, unix.CLOSE_RANGE_CLOEXEC},
		{"setsid", unix.SYS_SETSID, anyArg, 0},
		{"RLIMIT_NOFILE", limit, 1, unix.RLIMIT_NOFILE},
		{"RLIMIT_FSIZE", limit, 1, unix.RLIMIT_FSIZE},
		{"RLIMIT_MSGQUEUE", limit, 1, unix.RLIMIT_MSGQUEUE},
		{"RLIMIT_MEMLOCK", limit, 1, unix.RLIMIT_MEMLOCK},
		{"RLIMIT_CPU", limit, 1, unix.RLIMIT_CPU},
		{"RLIMIT_AS", limit, 1, unix.RLIMIT_AS},
		{"RLIMIT_STACK", limit, 1, unix.RLIMIT_STACK},
		{"RLIMIT_CORE", limit, 1, unix.RLIMIT_CORE},
		{"capset", unix.SYS_CAPSET, anyArg, 0},
		{"parent death signal", prctl, 0, unix.PR_SET_PDEATHSIG},
		{"dumpable", prctl, 0, unix.PR_SET_DUMPABLE},
		{"no_new_privs", prctl, 0, unix.PR_SET_NO_NEW_PRIVS},
		{"landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, anyArg, 0},
		{"seccomp", unix.SYS_SECCOMP, anyArg, 0},
		{"execveat", unix.SYS_EXECVEAT, anyArg, 0},
		{"wait for the program", unix.SYS_WAIT4, anyArg, 0},
	}
	if strings.HasPrefix(box(t).Level().User, "a user") {
		tests = append(tests, refusal{"setgroups", unix.SYS_SETGROUPS, anyArg, 0}, refusal{"setresgid", unix.SYS_SETRESGID, anyArg, 0},
			refusal{"setresuid", unix.SYS_SETRESUID, anyArg, 0}, refusal{"RLIMIT_NPROC", limit, 1, unix.RLIMIT_NPROC})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, tt := range tests {
		t.Run(fmt.Sprintf("%s/%d/%d", tt.name, tt.nr, tt.value), func(t *testing.T) {
			t.Parallel()
			helper := testutil.WriteScript(t, dir, fmt.Sprint("helper", i), fmt.Sprintf(`exec %q %s %d %d %d "$@"`, self, asRefused, tt.nr, tt.arg, tt.value))
			s, err := sandbox.New(t.Context(), sandbox.Options{Helper: helper, Python: box(t).Level().Python})
			if err == nil {
				_ = s.Close()
				t.Fatal("a sandbox was made")
			}
			if !fault.Is(err, fault.Infrastructure) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), tt.name) {
				t.Errorf("%v (kind %s); want Infrastructure with a hint, and %q", err, fault.KindOf(err), tt.name)
			}
		})
	}
}

// A call that the helper can do without is no reason to refuse.
func TestFault_optionalStepsMayFail(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []int{unix.PR_SET_SECUREBITS, unix.PR_CAP_AMBIENT} {
		helper := testutil.WriteScript(t, t.TempDir(), "helper", fmt.Sprintf(`exec %q %s %d 0 %d "$@"`, self, asRefused, unix.SYS_PRCTL, op))
		s, err := sandbox.New(t.Context(), sandbox.Options{Helper: helper, Python: box(t).Level().Python})
		if err != nil {
			t.Errorf("prctl %d: %v", op, err)
			continue
		}
		_ = s.Close()
	}
}

// A program cannot run without any one of the files that the interpreter needs; that is not its fault.
func TestFault_withheldFiles(t *testing.T) {
	t.Parallel()
	py := box(t).Level().Python
	for _, part := range []string{"/ld-", "/libc", "/libm", "/encodings", "/lib"} {
		short, removed := py.Without(part)
		if removed == 0 {
			t.Errorf("the interpreter needs no file with %s in its name", part)
			continue
		}
		s, err := sandbox.New(t.Context(), sandbox.Options{Python: short})
		if err == nil {
			_ = s.Close()
			t.Errorf("a sandbox without %s works", part)
		} else if !fault.Is(err, fault.Infrastructure) || fault.HintOf(err) == "" {
			t.Errorf("without %s: %v (kind %s), want Infrastructure with a hint", part, err, fault.KindOf(err))
		}
	}
}

// tree copies the interpreter into a folder of its own, where it runs custom at each start in a sandbox.
func tree(t *testing.T, custom string) sandbox.Python {
	t.Helper()
	dir := t.TempDir()
	py := box(t).Level().Python
	out, err := exec.CommandContext(t.Context(), py.Path, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		t.Fatal(err)
	}
	std := strings.TrimSpace(string(out))
	lib := filepath.Join(dir, "lib", filepath.Base(std))
	for _, d := range []string{filepath.Join(dir, "bin"), lib} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(std)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "sitecustomize.py" {
			if err := os.Symlink(filepath.Join(std, e.Name()), filepath.Join(lib, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	custom = "import os\nif 'PYTHONSAFEPATH' in os.environ:\n    " + strings.ReplaceAll(custom, "\n", "\n    ") + "\n"
	if err := os.WriteFile(filepath.Join(lib, "sitecustomize.py"), []byte(custom), 0o644); err != nil { //nolint:gosec // no secret
		t.Fatal(err)
	}
	shared, err := filepath.Glob(filepath.Join(filepath.Dir(py.Path), "..", "lib", "libpython*.so*")) // of an interpreter that finds it by its own place
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range shared {
		if err := os.Symlink(from, filepath.Join(dir, "lib", filepath.Base(from))); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	// A link would show the original; cp is another process, so that no fork of this one holds the copy open.
	copied := filepath.Join(dir, "bin", filepath.Base(py.Path))
	if out, err := exec.CommandContext(t.Context(), "cp", py.Path, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found, err := sandbox.FindPython(t.Context(), copied)
	if err != nil {
		t.Fatal(err)
	}
	if found.Path != copied {
		t.Fatalf("the interpreter is %s, want the copy %s", found.Path, copied)
	}
	return found
}

// Whatever becomes of the interpreter before the program's turn is a fault of the machine, also on a machine that worked before.
func TestFault_interpreterDiesBeforeTheProgram(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "broken-")
	py := tree(t, fmt.Sprintf(`
flag = %q
if os.path.exists(flag + "exit0"): os._exit(0)
if os.path.exists(flag + "exit1"): raise SystemExit(1)
if os.path.exists(flag + "killed"): os.kill(os.getpid(), 9)
if os.path.exists(flag + "crashed"): os.kill(os.getpid(), 11)
if os.path.exists(flag + "prints"): print("42"); os._exit(0)
if os.path.exists(flag + "forbidden"):
    import ctypes; ctypes.CDLL(None).syscall(101, 0, 0, 0, 0)
while os.path.exists(flag + "hangs"): pass`, flag))
	s, err := sandbox.New(t.Context(), sandbox.Options{Python: py})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing runs any more
	s.SetStartLimit(5 * time.Second)
	for _, how := range []string{"exit0", "exit1", "killed", "crashed", "prints", "forbidden", "hangs"} {
		if err := os.WriteFile(flag+how, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(t.Context(), sandbox.Program{Source: []byte("print(42)")})
		if !fault.Is(err, fault.Infrastructure) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, %v; want Infrastructure with a hint", how, r, err)
		}
		if err := os.Remove(flag + how); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Run(t.Context(), sandbox.Program{Source: []byte("print(42)")}); err != nil || r.Outcome != sandbox.OK {
			t.Errorf("after %s: %v, %v; want ok", how, r, err)
		}
	}
}

// A program whose memory limit is too low for the interpreter was not judged.
func TestFault_tooLittleMemoryToStart(t *testing.T) {
	t.Parallel()
	for _, memory := range []int64{1 << 12, 1 << 20, 4 << 20, 10 << 20} {
		r, err := box(t).Run(t.Context(), sandbox.Program{Source: []byte("pass"), Limits: &sandbox.Limits{Memory: memory}})
		if !fault.Is(err, fault.Infrastructure) {
			t.Errorf("%d bytes: %v, %v; want Infrastructure", memory, r, err)
		}
	}
}

// The helper can die at any time. The programs of that moment are not judged, and the next one finds a new helper.
func TestFault_helperIsKilled(t *testing.T) {
	t.Parallel()
	s, err := sandbox.New(t.Context(), sandbox.Options{Python: box(t).Level().Python, Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing runs any more
	errs := make(chan error, 2)
	for range cap(errs) {
		go func() {
			_, err := s.Run(t.Context(), sandbox.Program{Source: []byte("while True: pass"), Limits: short(time.Hour)})
			errs <- err
		}()
	}
	running := childrenOf(t, s.HelperPID(), 2)
	if err := unix.Kill(s.HelperPID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range cap(errs) {
		if err := <-errs; !fault.Is(err, fault.Infrastructure) {
			t.Errorf("error = %v, want Infrastructure", err)
		}
	}
	awaitEnd(t, running...)
	if r, err := s.Run(t.Context(), sandbox.Program{Source: []byte("print(42)")}); err != nil || r.Outcome != sandbox.OK {
		t.Errorf("after that: %v, %v; want ok", r, err)
	}
}

// becomeWorker runs a program for ever and prints the process ids of helper and program.
func becomeWorker(source string) {
	ctx := context.Background()
	py, err := sandbox.FindPython(ctx, os.Getenv("STEADY_SANDBOX_PYTHON"))
	if err == nil {
		var s *sandbox.Sandbox
		if s, err = sandbox.New(ctx, sandbox.Options{Python: py}); err == nil {
			go func() {
				program := waitForChildren(s.HelperPID(), 1)[0]
				fmt.Println(s.HelperPID(), program)
			}()
			_, err = s.Run(ctx, sandbox.Program{Source: []byte(source), Limits: short(time.Hour)})
		}
	}
	fmt.Println("the program ended:", err)
	os.Exit(1)
}

// becomeStarvedWorker runs a program with every number of descriptors that is too small, and with the first that is enough.
func becomeStarvedWorker() {
	ctx := context.Background()
	py, err := sandbox.FindPython(ctx, os.Getenv("STEADY_SANDBOX_PYTHON"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s, err := sandbox.New(ctx, sandbox.Options{Python: py})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	refused := 0
	for files := uint64(3); files < 64; files++ {
		limit := unix.Rlimit{Cur: files, Max: 4096}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		r, err := s.Run(ctx, sandbox.Program{Source: []byte("print(42)"), Stdin: []byte("x")})
		switch {
		case fault.Is(err, fault.Infrastructure):
			refused++
		case err != nil || r.Outcome != sandbox.OK || string(r.Stdout) != "42\n":
			fmt.Println(files, r, err)
			os.Exit(1)
		}
	}
	fmt.Println("refused", refused)
	os.Exit(0)
}

// A worker that has no descriptors left judges nothing, and judges again when it has some.
func TestFault_noDescriptors(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), self, asStarved).CombinedOutput()
	var refused int
	if n, _ := fmt.Sscanf(string(out), "refused %d", &refused); err != nil || n != 1 || refused < 10 || refused > 50 {
		t.Errorf("%v: %s", err, out)
	}
}

// A worker that is killed takes its programs along, whatever they do.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{
		"busy":    "while True: pass",
		"asleep":  "import time\ntime.sleep(3600)",
		"stopped": "import os\nos.kill(os.getpid(), 19)",
		"deaf":    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
		"threads": "import threading, time\nfor _ in range(9): threading.Thread(target=time.sleep, args=(3600,)).start()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := exec.CommandContext(t.Context(), self, asWorker, source)
			worker.Stderr = os.Stderr
			out, err := worker.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := worker.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			var helper, program int
			if n, _ := fmt.Sscan(line, &helper, &program); n != 2 {
				t.Fatalf("the worker says %q, %v", line, err)
			}
			fds := []int{pidfd(t, helper), pidfd(t, program)}
			if err := worker.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = worker.Wait()
			awaitEnd(t, fds...)
		})
	}
}

// waitForChildren returns the children of process pid as soon as there are n.
func waitForChildren(pid, n int) []int {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		var list []int
		for _, f := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(f)
			list = append(list, child)
		}
		if len(list) == n {
			return list
		}
	}
	return nil
}

// childrenOf returns descriptors of the n children of process pid.
func childrenOf(t *testing.T, pid, n int) []int {
	t.Helper()
	var fds []int
	for _, child := range waitForChildren(pid, n) {
		fds = append(fds, pidfd(t, child))
	}
	return fds
}

func pidfd(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// awaitEnd waits until the processes behind the descriptors have ended.
func awaitEnd(t *testing.T, fds ...int) {
	t.Helper()
	for _, fd := range fds {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 60_000)
		for err == unix.EINTR {
			n, err = unix.Poll(poll, 60_000)
		}
		if n != 1 {
			t.Fatalf("a process lives on (%d, %v)", n, err)
		}
	}
}
