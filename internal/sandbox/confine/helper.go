package confine

import (
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HelperArg is the hidden first argument that makes a binary the helper.
const HelperArg = "__sandbox-helper"

// Descriptors of a program that is being started. Only 0, 1, 2, ReadyFD and ProgramFD reach the interpreter.
const (
	StatusFD  = 3 // errors before the exec; closed by the exec
	ReadyFD   = 4 // progress of the boot code
	ProgramFD = 5 // source text, read-only
	FileCount = 6 // the descriptors above and the three streams come with each request
	RulesetFD = 6 // Landlock ruleset
	ExecFD    = 7 // the interpreter, O_PATH
)

// SocketFD is where the helper gets its requests. What arrives has numbers above ExecFD, because all below are taken.
const SocketFD = 3

// Keep is the value of a number in Params that leaves things as they are.
const Keep = ^uint64(0)

// Params are the numbers that a program is started with.
type Params struct {
	User   int64  // user id to change to, with group Group; negative to keep the own
	Group  int64  // group id
	Memory uint64 // address space, bytes
	CPU    uint64 // processor time, seconds: a net below the charged time
	Stack  uint64 // stack of the first thread, bytes
	Files  uint64 // open files
	Tasks  uint64 // processes and threads of the user, all programs together; Keep where the user is not the program's own
}

// Args is the command line of the helper: the process that must be its parent, then the command line of the interpreter.
func Args(parent int, argv []string) []string {
	return append([]string{HelperArg, HelperArg, strconv.Itoa(parent)}, argv...)
}

const ownArgs = 3 // length of the command line before that of the interpreter

// init hands over to the helper before the rest of the binary is initialised; the package comment says why.
func init() {
	if len(os.Args) > 1 && os.Args[1] == HelperArg {
		Main()
	}
}

// exitFailed is the exit status of a helper, or of its child before the exec, that cannot go on.
const exitFailed = 125

// Main serves requests until the other end of the socket is closed. It never returns.
func Main() {
	runtime.LockOSThread() // programs die with the thread that forked them
	h, e := newHelper()
	if e != 0 {
		unix.Exit(exitFailed)
	}
	h.serve()
}

// step is one system call on the way from the helper to the interpreter.
type step struct {
	name     string
	nr       uintptr
	args     [6]uintptr
	optional bool       // it may fail
	tolerate unix.Errno // it may fail in this way
	check    bool       // its result must be want
	want     uintptr
	own      bool // its result is the process id: the filter allows signals to it
}

// helper starts programs: for each it forks, and the child makes the calls in steps, of which the last becomes the interpreter.
// Serving a request allocates nothing: there is no garbage collection, and the child counts the helper's memory as its own.
type helper struct {
	link   link
	steps  []step
	filter []unix.SockFilter
	pidAt  []int // instructions of filter that compare with the program's process id
	prog   unix.SockFprog
	argv   []*byte
	env    []*byte
	empty  byte
	mask   uint64
	limits [16]unix.Rlimit
	caps   unix.CapUserHeader
	none   [2]unix.CapUserData
	reply  reply
	files  [FileCount]int32
	status unix.WaitStatus
	usage  unix.Rusage
	self   int
	stack  uint64 // the hard limit that the helper itself has
	core   uint64
}

// somePID stands for the process id in a filter that is assembled before the process exists. No process can have it.
const somePID = 1<<31 - 1

func newHelper() (*helper, unix.Errno) {
	if len(os.Args) < ownArgs+1 {
		return nil, unix.EINVAL
	}
	parent, err := strconv.Atoi(os.Args[2])
	if err != nil || os.Getppid() != parent {
		return nil, unix.ESRCH
	}
	h := &helper{
		link: link{sock: SocketFD}, steps: make([]step, 0, 64), self: os.Getpid(),
		filter: Assemble(PolicyFor(somePID)), caps: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3},
	}
	h.pidAt = pidComparisons(h.filter)
	h.prog = unix.SockFprog{Len: uint16(len(h.filter)), Filter: &h.filter[0]} //nolint:gosec // TestPolicy bounds the length
	if h.argv, err = pointers(os.Args[ownArgs:]); err != nil {
		return nil, unix.EINVAL
	}
	if h.env, err = pointers(Environment()); err != nil {
		return nil, unix.EINVAL
	}
	var stack unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_STACK, &stack) != nil {
		return nil, unix.EINVAL
	}
	h.stack = stack.Max
	// 1 is less than any core file and, unlike 0, also keeps the kernel from piping the core to a program of the machine.
	// A hard limit of 0 cannot be raised without privilege.
	if setLimit(unix.RLIMIT_CORE, 1) == 0 {
		h.core = 1
	}
	return h, 0
}

func setLimit(resource uintptr, value uint64) unix.Errno {
	limit := unix.Rlimit{Cur: value, Max: value}
	_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return e
}

// pidComparisons returns the instructions that compare with somePID.
func pidComparisons(filter []unix.SockFilter) []int {
	var at []int
	for i, f := range filter {
		if f.Code == jeq && f.K == somePID {
			at = append(at, i)
		}
	}
	return at
}

func (h *helper) serve() {
	q := new(request)
	for {
		fds, e := h.link.receive(unsafe.Pointer(q), unsafe.Sizeof(*q))
		switch {
		case e == unix.EPIPE:
			unix.Exit(0)
		case e != 0:
			unix.Exit(exitFailed)
		case q.op == opStart && len(fds) == FileCount:
			h.start(q, fds)
		case q.op == opReap:
			h.reap(int(q.pid))
		default:
			unix.Exit(exitFailed)
		}
	}
}

func (h *helper) answer(r reply, fds []int32) {
	h.reply = r
	if h.link.send(unsafe.Pointer(&h.reply), unsafe.Sizeof(h.reply), fds) != 0 {
		unix.Exit(exitFailed)
	}
}

func (h *helper) start(q *request, received []int32) {
	copy(h.files[:], received)
	h.plan(&q.params)
	pid, e := h.fork()
	for _, fd := range h.files {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	}
	if e != 0 {
		h.answer(reply{errno: int64(e)}, nil)
		return
	}
	pidfd, _, e := unix.RawSyscall(unix.SYS_PIDFD_OPEN, pid, 0, 0)
	if e != 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0)
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
		h.answer(reply{errno: int64(e)}, nil)
		return
	}
	h.files[0] = int32(pidfd) //nolint:gosec // a descriptor
	h.answer(reply{pid: int64(pid)}, h.files[:1])
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, pidfd, 0, 0)
}

func (h *helper) reap(pid int) {
	got, _, e := unix.RawSyscall6(unix.SYS_WAIT4, uintptr(pid), uintptr(unsafe.Pointer(&h.status)), unix.WNOHANG,
		uintptr(unsafe.Pointer(&h.usage)), 0, 0)
	switch {
	case e != 0:
		h.answer(reply{errno: int64(e)}, nil)
	case got != uintptr(pid):
		h.answer(reply{errno: int64(unix.EBUSY)}, nil)
	default:
		h.answer(reply{pid: int64(pid), status: int64(h.status), maxRSS: h.usage.Maxrss}, nil)
	}
}

// fork starts a child that makes the calls of h.steps. In the child there is one thread and no Go runtime behind it: nothing
// here may grow the stack, allocate, or be preempted. VFORK stops the helper until the child has its own
// memory, so that neither copies pages that the other writes.
//
//go:norace
//go:nosplit
func (h *helper) fork() (uintptr, unix.Errno) {
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_VFORK, 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		return pid, e
	}
	for i := range h.steps {
		s := &h.steps[i]
		r, _, e := unix.RawSyscall6(s.nr, s.args[0], s.args[1], s.args[2], s.args[3], s.args[4], s.args[5])
		if e != 0 && (s.optional || e == s.tolerate) {
			continue
		}
		if e == 0 && s.check && r != s.want {
			e = unix.ESRCH
		}
		if e != 0 && i == 0 {
			break // StatusFD is still the helper's socket
		}
		if e != 0 {
			failed := [2]byte{0, byte(e)}
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, StatusFD, uintptr(unsafe.Pointer(unsafe.StringData(s.name))), uintptr(len(s.name)))
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, StatusFD, uintptr(unsafe.Pointer(&failed)), 2)
			break
		}
		if s.own {
			for _, at := range h.pidAt {
				h.filter[at].K = uint32(r)
			}
		}
	}
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, exitFailed, 0, 0)
	}
}

// StatusText is what the status file of a failed start says: the step and the error.
func StatusText(status []byte) string {
	if n := len(status); n > 2 && status[n-2] == 0 {
		return string(status[:n-2]) + ": " + unix.Errno(status[n-1]).Error()
	}
	return string(status)
}

func (h *helper) do(name string, nr uintptr, args ...uintptr) *step {
	h.steps = append(h.steps, step{name: name, nr: nr})
	s := &h.steps[len(h.steps)-1]
	copy(s.args[:], args)
	return s
}

// plan writes down the way to the interpreter. The order matters: descriptors before their limit, limits before
// the rights that raise them are gone, and at the end what leaves less and less: Landlock, filter, exec.
func (h *helper) plan(p *Params) {
	h.steps = h.steps[:0]
	// The status file is the first, so that every later failure can be told.
	h.do("status pipe", unix.SYS_DUP3, uintptr(h.files[StatusFD]), StatusFD, unix.O_CLOEXEC)
	for to, fd := range h.files {
		if to != StatusFD {
			h.do("streams", unix.SYS_DUP3, uintptr(fd), uintptr(to), 0)
		}
	}
	h.do("interpreter descriptor (the limit of open files must be above 1000)", unix.SYS_DUP3, ExecFD, InterpreterFD, unix.O_CLOEXEC)
	// Also what the Go runtime has opened, which the helper itself needs.
	h.do("close_range", unix.SYS_CLOSE_RANGE, RulesetFD, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	h.do("setsid", unix.SYS_SETSID)
	h.do("signal mask", unix.SYS_RT_SIGPROCMASK, 2, uintptr(unsafe.Pointer(&h.mask)), 0, 8) // SIG_SETMASK
	h.planLimits(p)
	h.planCredentials(p)
	h.do("landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, RulesetFD, 0)
	// The Go runtime maps more than the limit allows, so after it there is nothing that needs memory.
	h.limit(len(h.limits)-1, "RLIMIT_AS", unix.RLIMIT_AS, p.Memory, p.Memory)
	h.do("getpid", unix.SYS_GETPID).own = true
	h.do("seccomp", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&h.prog)))
	h.do("execveat", unix.SYS_EXECVEAT, InterpreterFD, uintptr(unsafe.Pointer(&h.empty)),
		uintptr(unsafe.Pointer(&h.argv[0])), uintptr(unsafe.Pointer(&h.env[0])), unix.AT_EMPTY_PATH)
}

func (h *helper) limit(slot int, name string, resource uintptr, soft, hard uint64) {
	h.limits[slot] = unix.Rlimit{Cur: soft, Max: hard}
	h.do(name, unix.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(&h.limits[slot])), 0)
}

func (h *helper) planLimits(p *Params) {
	h.limit(0, "RLIMIT_NOFILE", unix.RLIMIT_NOFILE, p.Files, p.Files)
	h.limit(1, "RLIMIT_FSIZE", unix.RLIMIT_FSIZE, 0, 0)
	h.limit(2, "RLIMIT_CORE", unix.RLIMIT_CORE, h.core, h.core)
	h.limit(3, "RLIMIT_MSGQUEUE", unix.RLIMIT_MSGQUEUE, 0, 0)
	h.limit(4, "RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK, 0, 0)
	// The soft limit ends with a signal that the interpreter reports, the hard one with SIGKILL.
	h.limit(5, "RLIMIT_CPU", unix.RLIMIT_CPU, p.CPU, p.CPU+1)
	// The soft stack limit is also the default of every thread; the hard one stays, programs raise theirs.
	h.limit(6, "RLIMIT_STACK", unix.RLIMIT_STACK, min(p.Stack, h.stack), h.stack)
}

// planCredentials gives up user, groups and capabilities, and binds the process to its parent's life.
func (h *helper) planCredentials(p *Params) {
	if p.User >= 0 {
		user, group := uintptr(p.User), uintptr(p.Group)
		// EPERM: a user namespace that has no further groups to give up.
		h.do("setgroups", unix.SYS_SETGROUPS, 0, 0).tolerate = unix.EPERM
		h.do("setresgid", unix.SYS_SETRESGID, group, group, group)
		h.do("setresuid", unix.SYS_SETRESUID, user, user, user)
	}
	if p.Tasks != Keep {
		// After the change of user: else the kernel refuses the exec if the user has too many threads in another sandbox.
		h.limit(7, "RLIMIT_NPROC", unix.RLIMIT_NPROC, p.Tasks, p.Tasks)
	}
	// Root without capabilities is an ordinary user; the bits keep the exec from giving them back. Without
	// the right to set them there is nothing to give back, and no_new_privs holds anyway.
	const noroot = 1<<0 | 1<<1 | 1<<2 | 1<<3
	h.do("securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noroot).optional = true
	h.do("ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL).optional = true
	h.do("capset", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h.caps)), uintptr(unsafe.Pointer(&h.none)))
	h.do("parent death signal", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL)) // a change of user clears it
	alive := h.do("parent is gone", unix.SYS_GETPPID)
	alive.check, alive.want = true, uintptr(h.self)
	h.do("dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	h.do("no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
}

func pointers(list []string) ([]*byte, error) {
	out := make([]*byte, len(list)+1)
	for i, s := range list {
		p, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// Environment is the whole environment of a program. A fixed hash seed makes the order of sets, and so a verdict, repeatable;
// one allocator arena keeps threads from reserving address space.
func Environment() []string {
	return []string{
		"LC_ALL=C.UTF-8", "TZ=UTC", "HOME=/nonexistent", "PATH=", "MALLOC_ARENA_MAX=1", "PYTHONHASHSEED=0", "PYTHONSAFEPATH=1",
	}
}
