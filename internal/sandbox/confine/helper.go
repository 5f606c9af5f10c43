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

// Descriptors that the helper inherits besides the three streams. Only Ready and Program reach the interpreter.
const (
	StatusFD  = 3 // errors before the exec; closed by the exec
	ReadyFD   = 4 // progress of the boot code
	ProgramFD = 5 // source text, read-only
	RulesetFD = 6 // Landlock ruleset
	ExecFD    = 7 // the interpreter, O_PATH
	firstFree = 8
)

// Params are the numbers that the helper is started with.
type Params struct {
	Parent int    // process id that must still be the parent
	Drop   int    // user and group id to change to; negative to keep the own
	Memory uint64 // address space, bytes
	CPU    uint64 // processor time, seconds: a net below the charged time
	Stack  uint64 // stack of the first thread, bytes
	Files  uint64 // open files
}

// Args is the command line of the helper: parameters, then the command line of the interpreter.
func (p Params) Args(argv []string) []string {
	args := []string{
		HelperArg, HelperArg, strconv.Itoa(p.Parent), strconv.Itoa(p.Drop), strconv.FormatUint(p.Memory, 10),
		strconv.FormatUint(p.CPU, 10), strconv.FormatUint(p.Stack, 10), strconv.FormatUint(p.Files, 10),
	}
	return append(args, argv...)
}

const paramArgs = 8 // length of the command line before that of the interpreter

// init hands over to the helper before the rest of the binary is initialised; the package comment says why.
func init() {
	if len(os.Args) > 1 && os.Args[1] == HelperArg {
		Main()
	}
}

// Main restricts this process and executes the interpreter in its place. It never returns: an error is
// written to StatusFD and the process exits. Bytes on StatusFD mean that the interpreter never started.
func Main() {
	runtime.LockOSThread() // credentials, no_new_privs, Landlock and seccomp belong to one thread, the one that execs
	stage, errno := run()
	text := stage + ": " + errno.Error()
	_, _ = unix.Write(StatusFD, []byte(text))
	unix.Exit(125)
}

func run() (string, unix.Errno) {
	if len(os.Args) < paramArgs+1 {
		return "arguments", unix.EINVAL
	}
	p, ok := parse(os.Args[2:paramArgs])
	if !ok {
		return "arguments", unix.EINVAL
	}
	if stage, errno := descriptors(); errno != 0 {
		return stage, errno
	}
	if stage, errno := credentials(p); errno != 0 {
		return stage, errno
	}
	if stage, errno := limits(p); errno != 0 {
		return stage, errno
	}
	return become(p, os.Args[paramArgs:])
}

func parse(args []string) (p Params, ok bool) {
	var n [6]int64
	for i := range n {
		v, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			return p, false
		}
		n[i] = v
	}
	return Params{ //nolint:gosec // written by Args
		Parent: int(n[0]), Drop: int(n[1]), Memory: uint64(n[2]), CPU: uint64(n[3]), Stack: uint64(n[4]), Files: uint64(n[5]),
	}, true
}

// descriptors moves the interpreter out of reach and lets nothing but the five wanted survive the exec.
func descriptors() (string, unix.Errno) {
	if _, _, e := unix.RawSyscall(unix.SYS_FCNTL, StatusFD, unix.F_SETFD, unix.FD_CLOEXEC); e != 0 {
		return "status pipe", e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_DUP3, ExecFD, InterpreterFD, unix.O_CLOEXEC); e != 0 {
		return "interpreter descriptor (the limit of open files must be above 1000)", e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_CLOSE_RANGE, RulesetFD, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC); e != 0 {
		return "close_range", e
	}
	return "", 0
}

func prctl(op, a, b uintptr) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_PRCTL, op, a, b, 0, 0, 0)
	return e
}

// credentials gives up user, groups and capabilities, and binds the process to its parent's life.
func credentials(p Params) (string, unix.Errno) {
	if p.Drop >= 0 {
		id := uintptr(p.Drop)
		if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 && e != unix.EPERM {
			return "setgroups", e // EPERM: a user namespace that has no further groups to give up
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); e != 0 {
			return "setresgid", e
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); e != 0 {
			return "setresuid", e
		}
	}
	// Root without capabilities is an ordinary user; the bits keep the exec from giving them back. Without
	// the right to set them there is nothing to give back, and no_new_privs holds anyway.
	const noroot = 1<<0 | 1<<1 | 1<<2 | 1<<3
	_ = prctl(unix.PR_SET_SECUREBITS, noroot, 0)
	_ = prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, e := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); e != 0 {
		return "capset", e
	}
	if e := prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0); e != 0 { // a change of user clears it
		return "parent death signal", e
	}
	if os.Getppid() != p.Parent {
		return "parent is gone", unix.ESRCH
	}
	if e := prctl(unix.PR_SET_DUMPABLE, 0, 0); e != 0 {
		return "dumpable", e
	}
	if e := prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0); e != 0 {
		return "no_new_privs", e
	}
	return "", 0
}

func setLimit(resource int, soft, hard uint64) unix.Errno {
	limit := unix.Rlimit{Cur: soft, Max: hard}
	_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	return e
}

func limits(p Params) (string, unix.Errno) {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"RLIMIT_NOFILE", unix.RLIMIT_NOFILE, p.Files},
		{"RLIMIT_FSIZE", unix.RLIMIT_FSIZE, 0},
		{"RLIMIT_CORE", unix.RLIMIT_CORE, 0},
		{"RLIMIT_MSGQUEUE", unix.RLIMIT_MSGQUEUE, 0},
		{"RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK, 0},
	} {
		if e := setLimit(l.resource, l.value, l.value); e != 0 {
			return l.name, e
		}
	}
	// The soft limit ends with a signal that the interpreter reports, the hard one with SIGKILL.
	if e := setLimit(unix.RLIMIT_CPU, p.CPU, p.CPU+1); e != 0 {
		return "RLIMIT_CPU", e
	}
	// The soft stack limit is also the default of every thread; the hard one stays, programs raise theirs.
	var old unix.Rlimit
	if e := unix.Getrlimit(unix.RLIMIT_STACK, &old); e != nil {
		return "RLIMIT_STACK", unix.EINVAL
	}
	if e := setLimit(unix.RLIMIT_STACK, min(p.Stack, old.Max), old.Max); e != 0 {
		return "RLIMIT_STACK", e
	}
	return "", 0
}

// become applies Landlock, the address space limit and the filter, and execs. The Go runtime maps more than the limit
// allows, so between it and the exec there are raw calls only, with everything allocated before.
func become(p Params, argv []string) (string, unix.Errno) {
	filter := Assemble(PolicyFor(os.Getpid()))
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // TestPolicy bounds the length
	args, err := pointers(argv)
	if err != nil {
		return "arguments", unix.EINVAL
	}
	env, err := pointers(Environment())
	if err != nil {
		return "environment", unix.EINVAL
	}
	empty := new(byte)
	memory := unix.Rlimit{Cur: p.Memory, Max: p.Memory}

	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, RulesetFD, 0, 0); e != 0 {
		return "landlock_restrict_self", e
	}
	if _, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_AS, uintptr(unsafe.Pointer(&memory)), 0, 0, 0); e != 0 {
		return "RLIMIT_AS", e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return "seccomp", e
	}
	_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, InterpreterFD, uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	runtime.KeepAlive(filter)
	return "execveat", e
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
