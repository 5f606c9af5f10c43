package confine

import "golang.org/x/sys/unix"

// Supported is true where a policy for this processor exists.
const Supported = true

// InterpreterFD is the descriptor from which the one allowed exec happens. It is above the limit of open
// files and closed by the exec, so the program can never own it.
const InterpreterFD = 1000

const (
	all64 = ^uint64(0)
	all32 = uint64(0xffffffff)
	// threadFlags are those of pthread_create: a new thread of this process and nothing else.
	threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD |
		unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID
	// writeFlags are the flags of open that could change a file; the last is O_TMPFILE without O_DIRECTORY.
	writeFlags = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND | 0x400000
	// futexOptions do not change what a futex operation is: for this process only, and which clock.
	futexOptions   = 128 | 256
	archSetFS      = 0x1002
	fcntlSeals     = 1034   // F_GET_SEALS
	ioctlNonblock  = 0x5421 // FIONBIO
	ioctlCloexec   = 0x5451 // FIOCLEX
	ioctlNoCloexec = 0x5450 // FIONCLEX
)

type call struct {
	name string
	nr   uint32
}

// allowed calls reach nothing but the process itself and what it may already read.
var allowed = []call{
	{"read", unix.SYS_READ},
	{"write", unix.SYS_WRITE},
	{"brk", unix.SYS_BRK},
	{"mmap", unix.SYS_MMAP},
	{"munmap", unix.SYS_MUNMAP},
	{"mremap", unix.SYS_MREMAP},
	{"mprotect", unix.SYS_MPROTECT},
	{"madvise", unix.SYS_MADVISE},
	{"fstat", unix.SYS_FSTAT},
	{"newfstatat", unix.SYS_NEWFSTATAT},
	{"stat", unix.SYS_STAT},
	{"lstat", unix.SYS_LSTAT},
	{"statx", unix.SYS_STATX},
	{"lseek", unix.SYS_LSEEK},
	{"close", unix.SYS_CLOSE},
	{"getdents64", unix.SYS_GETDENTS64},
	{"readv", unix.SYS_READV},
	{"writev", unix.SYS_WRITEV},
	{"pread64", unix.SYS_PREAD64},
	{"access", unix.SYS_ACCESS},
	{"readlink", unix.SYS_READLINK},
	{"getcwd", unix.SYS_GETCWD},
	{"umask", unix.SYS_UMASK},
	{"rt_sigaction", unix.SYS_RT_SIGACTION},
	{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK},
	{"rt_sigreturn", unix.SYS_RT_SIGRETURN},
	{"sigaltstack", unix.SYS_SIGALTSTACK},
	{"rt_sigpending", unix.SYS_RT_SIGPENDING},
	{"rt_sigsuspend", unix.SYS_RT_SIGSUSPEND},
	{"rt_sigtimedwait", unix.SYS_RT_SIGTIMEDWAIT},
	{"pause", unix.SYS_PAUSE},
	{"alarm", unix.SYS_ALARM},
	{"setitimer", unix.SYS_SETITIMER},
	{"getitimer", unix.SYS_GETITIMER},
	{"set_robust_list", unix.SYS_SET_ROBUST_LIST},
	{"set_tid_address", unix.SYS_SET_TID_ADDRESS},
	{"rseq", unix.SYS_RSEQ},
	{"getrandom", unix.SYS_GETRANDOM},
	{"clock_gettime", unix.SYS_CLOCK_GETTIME},
	{"clock_getres", unix.SYS_CLOCK_GETRES},
	{"clock_nanosleep", unix.SYS_CLOCK_NANOSLEEP},
	{"nanosleep", unix.SYS_NANOSLEEP},
	{"gettimeofday", unix.SYS_GETTIMEOFDAY},
	{"time", unix.SYS_TIME},
	{"times", unix.SYS_TIMES},
	{"getrusage", unix.SYS_GETRUSAGE},
	{"getrlimit", unix.SYS_GETRLIMIT},
	{"getpid", unix.SYS_GETPID},
	{"gettid", unix.SYS_GETTID},
	{"getppid", unix.SYS_GETPPID},
	{"getuid", unix.SYS_GETUID},
	{"geteuid", unix.SYS_GETEUID},
	{"getgid", unix.SYS_GETGID},
	{"getegid", unix.SYS_GETEGID},
	{"getgroups", unix.SYS_GETGROUPS},
	{"getresuid", unix.SYS_GETRESUID},
	{"getresgid", unix.SYS_GETRESGID},
	{"getpgrp", unix.SYS_GETPGRP},
	{"getpgid", unix.SYS_GETPGID},
	{"getsid", unix.SYS_GETSID},
	{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY},
	{"sched_yield", unix.SYS_SCHED_YIELD},
	{"uname", unix.SYS_UNAME},
	{"sysinfo", unix.SYS_SYSINFO},
	{"select", unix.SYS_SELECT},
	{"pselect6", unix.SYS_PSELECT6},
	{"poll", unix.SYS_POLL},
	{"ppoll", unix.SYS_PPOLL},
	{"epoll_create1", unix.SYS_EPOLL_CREATE1},
	{"epoll_ctl", unix.SYS_EPOLL_CTL},
	{"epoll_wait", unix.SYS_EPOLL_WAIT},
	{"epoll_pwait", unix.SYS_EPOLL_PWAIT},
	{"eventfd2", unix.SYS_EVENTFD2},
	{"dup", unix.SYS_DUP},
	{"dup2", unix.SYS_DUP2},
	{"dup3", unix.SYS_DUP3},
	{"pipe", unix.SYS_PIPE},
	{"pipe2", unix.SYS_PIPE2},
	{"exit", unix.SYS_EXIT},
	{"exit_group", unix.SYS_EXIT_GROUP},
	{"restart_syscall", unix.SYS_RESTART_SYSCALL},
}

// killed calls have no use in a program that solves a task and a history of kernel faults: the process dies with
// SIGSYS and the outcome is Policy. Everything else that is not listed is refused with EPERM, so
// that a program that merely tries goes on.
var killed = []call{
	{"ptrace", unix.SYS_PTRACE},
	{"process_vm_readv", unix.SYS_PROCESS_VM_READV},
	{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV},
	{"kcmp", unix.SYS_KCMP},
	{"mount", unix.SYS_MOUNT},
	{"umount2", unix.SYS_UMOUNT2},
	{"pivot_root", unix.SYS_PIVOT_ROOT},
	{"chroot", unix.SYS_CHROOT},
	{"unshare", unix.SYS_UNSHARE},
	{"setns", unix.SYS_SETNS},
	{"open_tree", unix.SYS_OPEN_TREE},
	{"move_mount", unix.SYS_MOVE_MOUNT},
	{"fsopen", unix.SYS_FSOPEN},
	{"fsconfig", unix.SYS_FSCONFIG},
	{"fsmount", unix.SYS_FSMOUNT},
	{"fspick", unix.SYS_FSPICK},
	{"mount_setattr", unix.SYS_MOUNT_SETATTR},
	{"bpf", unix.SYS_BPF},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER},
	{"io_uring_register", unix.SYS_IO_URING_REGISTER},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN},
	{"userfaultfd", unix.SYS_USERFAULTFD},
	{"keyctl", unix.SYS_KEYCTL},
	{"add_key", unix.SYS_ADD_KEY},
	{"request_key", unix.SYS_REQUEST_KEY},
	{"init_module", unix.SYS_INIT_MODULE},
	{"finit_module", unix.SYS_FINIT_MODULE},
	{"delete_module", unix.SYS_DELETE_MODULE},
	{"kexec_load", unix.SYS_KEXEC_LOAD},
	{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD},
	{"reboot", unix.SYS_REBOOT},
	{"swapon", unix.SYS_SWAPON},
	{"swapoff", unix.SYS_SWAPOFF},
	{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT},
	{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT},
	{"seccomp", unix.SYS_SECCOMP},
	{"personality", unix.SYS_PERSONALITY},
	{"modify_ldt", unix.SYS_MODIFY_LDT},
	{"fanotify_init", unix.SYS_FANOTIFY_INIT},
	{"quotactl", unix.SYS_QUOTACTL},
	{"acct", unix.SYS_ACCT},
	{"syslog", unix.SYS_SYSLOG},
	{"iopl", unix.SYS_IOPL},
	{"ioperm", unix.SYS_IOPERM},
}

// PolicyFor returns the policy of a process with this process id: the only target of its signals.
func PolicyFor(pid int) Policy {
	p := Policy{Arch: unix.AUDIT_ARCH_X86_64, Default: Errno(unix.EPERM)}
	for _, c := range allowed {
		p.Rules = append(p.Rules, Rule{Name: c.name, Nr: c.nr, Do: Allow})
	}
	p.Rules = append(p.Rules, conditional(uint64(pid))...) //nolint:gosec // a process id is positive
	for _, c := range killed {
		p.Rules = append(p.Rules, Rule{Name: c.name, Nr: c.nr, Do: Kill})
	}
	return p
}

func conditional(pid uint64) []Rule {
	self := [][]Cond{{{Arg: 0, Mask: all64, Value: pid}}}
	stack := Cond{Arg: 1, Mask: all64, Value: unix.RLIMIT_STACK}
	return []Rule{
		{Name: "openat", Nr: unix.SYS_OPENAT, When: [][]Cond{{{Arg: 2, Mask: writeFlags}}}, Else: Errno(unix.EACCES)},
		{Name: "open", Nr: unix.SYS_OPEN, When: [][]Cond{{{Arg: 1, Mask: writeFlags}}}, Else: Errno(unix.EACCES)},
		{Name: "clone", Nr: unix.SYS_CLONE, When: oneOf(0, threadFlags), Else: Errno(unix.EPERM)},
		// Without CLOSE_RANGE_UNSHARE, which gives each thread 64 descriptors of its own, and the kernel memory behind them.
		{Name: "close_range", Nr: unix.SYS_CLOSE_RANGE, When: oneOf(2, 0, unix.CLOSE_RANGE_CLOEXEC), Else: Errno(unix.EPERM)},
		// The C library falls back to clone, whose flags can be seen.
		{Name: "clone3", Nr: unix.SYS_CLONE3, Do: Errno(unix.ENOSYS)},
		{Name: "execveat", Nr: unix.SYS_EXECVEAT, When: [][]Cond{{
			{Arg: 0, Mask: all64, Value: InterpreterFD}, {Arg: 4, Mask: all64, Value: unix.AT_EMPTY_PATH},
		}}, Else: Errno(unix.EPERM)},
		{Name: "ioctl", Nr: unix.SYS_IOCTL, When: oneOf32(1, unix.TCGETS, unix.TIOCINQ, ioctlCloexec, ioctlNoCloexec,
			unix.TIOCGWINSZ, ioctlNonblock), Else: Errno(unix.ENOTTY)},
		{Name: "fcntl", Nr: unix.SYS_FCNTL, When: oneOf32(1, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_DUPFD,
			unix.F_DUPFD_CLOEXEC, fcntlSeals), Else: Errno(unix.EPERM)},
		{Name: "prlimit64", Nr: unix.SYS_PRLIMIT64, When: [][]Cond{
			{{Arg: 0, Mask: all64}, {Arg: 2, Mask: all64}}, // reading
			{{Arg: 0, Mask: all64}, stack},
		}, Else: Errno(unix.EPERM)},
		{Name: "setrlimit", Nr: unix.SYS_SETRLIMIT, When: oneOf(0, unix.RLIMIT_STACK), Else: Errno(unix.EPERM)},
		{Name: "arch_prctl", Nr: unix.SYS_ARCH_PRCTL, When: oneOf(0, archSetFS), Else: Errno(unix.EINVAL)},
		{Name: "kill", Nr: unix.SYS_KILL, When: self, Else: Errno(unix.EPERM)},
		{Name: "tgkill", Nr: unix.SYS_TGKILL, When: self, Else: Errno(unix.EPERM)},
		// A stream pair inside the process is what an event loop wakes itself with; no address can be given.
		{Name: "socketpair", Nr: unix.SYS_SOCKETPAIR, When: [][]Cond{{
			{Arg: 0, Mask: all64, Value: unix.AF_UNIX}, {Arg: 1, Mask: 0xf, Value: unix.SOCK_STREAM},
		}}, Else: Errno(unix.EPERM)},
		// Out-of-band bytes and other rare flags have had faults in the kernel.
		{Name: "sendto", Nr: unix.SYS_SENDTO, When: [][]Cond{{
			{Arg: 3, Mask: all32 &^ (unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT)}, {Arg: 4, Mask: all64},
		}}, Else: Errno(unix.EPERM)},
		{Name: "recvfrom", Nr: unix.SYS_RECVFROM, When: [][]Cond{{
			{Arg: 3, Mask: all32 &^ (unix.MSG_DONTWAIT | unix.MSG_PEEK | unix.MSG_WAITALL)},
		}}, Else: Errno(unix.EPERM)},
		// What the C library waits and wakes with; the operations with priority inheritance have had faults in the kernel.
		{Name: "futex", Nr: unix.SYS_FUTEX, When: alternatives(1, all32&^futexOptions, []uint64{
			0, 1, 3, 4, 5, 9, 10, // wait, wake, requeue, compare and requeue, wake with operation, wait and wake by bits
		}), Else: Errno(unix.ENOSYS)},
	}
}

func oneOf(arg int, values ...uint64) [][]Cond { return alternatives(arg, all64, values) }

// oneOf32 is for arguments of which the kernel reads 32 bits only.
func oneOf32(arg int, values ...uint64) [][]Cond { return alternatives(arg, all32, values) }

func alternatives(arg int, mask uint64, values []uint64) [][]Cond {
	when := make([][]Cond, len(values))
	for i, v := range values {
		when[i] = []Cond{{Arg: arg, Mask: mask, Value: v}}
	}
	return when
}
