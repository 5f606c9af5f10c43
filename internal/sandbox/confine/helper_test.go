package confine

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func testHelper() *helper {
	return &helper{steps: make([]step, 0, 64), argv: make([]*byte, 1), env: make([]*byte, 1)}
}

// The filter that the child completes is the one of its process id, for every id.
func TestHelper_filterOfItsChild(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{1, 2, 1000, 4321, 1 << 22, somePID - 1} {
		filter := Assemble(PolicyFor(somePID))
		at := pidComparisons(filter)
		for _, i := range at {
			filter[i].K = uint32(pid)
		}
		if !slices.Equal(filter, Assemble(PolicyFor(pid))) || len(at) != 2 {
			t.Errorf("process %d: %d comparisons, and another filter than its own", pid, len(at))
		}
	}
}

func TestHelper_order(t *testing.T) {
	t.Parallel()
	h := testHelper()
	h.plan(&Params{User: 65000, Group: 65534, Tasks: 7})
	at := func(name string) int {
		i := slices.IndexFunc(h.steps, func(s step) bool { return s.name == name })
		if i < 0 {
			t.Errorf("there is no step %q", name)
		}
		return i
	}
	for _, order := range [][]string{
		{"status pipe", "streams", "interpreter descriptor (the limit of open files must be above 1000)", "close_range", "RLIMIT_NOFILE"},
		{"RLIMIT_STACK", "setgroups", "setresgid", "setresuid", "capset", "parent death signal", "parent is gone", "no_new_privs"},
		{"setresuid", "RLIMIT_NPROC"},
		{"RLIMIT_CORE", "setresuid"},
		{"dumpable", "no_new_privs", "landlock_restrict_self", "RLIMIT_AS", "getpid", "seccomp", "execveat"},
	} {
		for i := range order[1:] {
			if at(order[i]) >= at(order[i+1]) {
				t.Errorf("%q comes after %q", order[i], order[i+1])
			}
		}
	}
	if last := h.steps[len(h.steps)-1].name; at("status pipe") != 0 || last != "execveat" || h.steps[len(h.steps)-2].name != "seccomp" {
		t.Errorf("the last step is %q; want the status pipe first, the filter and the exec last", last)
	}
	h.plan(&Params{User: -1, Tasks: Keep})
	for _, s := range h.steps {
		if slices.Contains([]string{"setgroups", "setresgid", "setresuid", "RLIMIT_NPROC"}, s.name) {
			t.Errorf("a program that keeps its user has the step %q", s.name)
		}
	}
}

// The helper lives as long as its worker and has no garbage collection.
func TestHelper_allocatesNothing(t *testing.T) {
	h := testHelper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0]) //nolint:errcheck // a test
	defer unix.Close(ends[1]) //nolint:errcheck // a test
	h.link.sock = ends[1]
	q := &request{op: opReap, pid: 1 << 30, params: Params{User: 1, Tasks: 9}}
	client := NewClient(ends[0])
	one := func() {
		if e := client.l.send(unsafe.Pointer(q), unsafe.Sizeof(*q), []int32{0, 0}); e != 0 {
			t.Fatal(e)
		}
		fds, e := h.link.receive(unsafe.Pointer(q), unsafe.Sizeof(*q))
		if e != 0 || len(fds) != 2 {
			t.Fatal(fds, e)
		}
		for _, fd := range fds {
			_ = unix.Close(int(fd))
		}
		h.plan(&q.params)
		h.reap(int(q.pid))
		if _, e := client.l.receive(unsafe.Pointer(&h.reply), unsafe.Sizeof(h.reply)); e != 0 {
			t.Fatal(e)
		}
	}
	if n := testing.AllocsPerRun(100, one); n > 0 {
		t.Errorf("%v allocations for a request, want none", n)
	}
}

// A message of the wrong size is refused, its descriptors are closed, and a closed socket is told apart.
func TestLink_badMessages(t *testing.T) {
	t.Parallel()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1]) //nolint:errcheck // a test
	var r reply
	l := &link{sock: ends[1]}
	for _, size := range []int{1, int(unsafe.Sizeof(r)) - 1, int(unsafe.Sizeof(r)) + 1, 4000} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendmsg(ends[0], make([]byte, size), unix.UnixRights(pipe[1]), nil, 0); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(pipe[1])
		if fds, e := l.receive(unsafe.Pointer(&r), unsafe.Sizeof(r)); e != unix.EBADMSG || fds != nil {
			t.Errorf("%d bytes: %v, %v; want EBADMSG", size, fds, e)
		}
		if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("%d bytes: the descriptor that came along is still open (%d, %v)", size, n, err)
		}
		_ = unix.Close(pipe[0])
	}
	_ = unix.Close(ends[0])
	if _, e := l.receive(unsafe.Pointer(&r), unsafe.Sizeof(r)); e != unix.EPIPE {
		t.Errorf("closed: %v, want EPIPE", e)
	}
	if _, _, err := NewClient(ends[1]).Reap(1); !Gone(err) || Gone(errors.New("x")) || Gone(nil) {
		t.Errorf("asking a closed socket: %v; want that the helper is gone", err)
	}
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"seccomp\x00\x01": "seccomp: operation not permitted", "": "", "x": "x", "\x00\x01": "\x00\x01"} {
		if got := StatusText([]byte(in)); got != want {
			t.Errorf("StatusText(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestArgs_makeAHelper(t *testing.T) {
	t.Parallel()
	args := Args(os.Getpid(), []string{"python", "-c", "x"})
	if len(args) != ownArgs+3 || args[1] != HelperArg || args[ownArgs] != "python" {
		t.Errorf("Args = %q", args)
	}
}
