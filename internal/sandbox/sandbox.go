package sandbox

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/sandbox/confine"
)

//go:embed boot.py
var bootCode string

const kernelHint = "programs run only on Linux 5.13 or newer with Landlock switched on (landlock in the list of the lsm= boot " +
	"parameter) and with the calls landlock_* and seccomp allowed by the container; docs/security.md says how to check a machine"

// Sandbox runs programs. It is safe for concurrent use.
type Sandbox struct {
	opts    Options
	level   Level
	slots   chan int // numbers of free slots
	ruleset int      // Landlock ruleset, shared by all helpers
	python  int      // the interpreter, O_PATH
	users   users    // of the slots; empty: programs keep the user of this process
	launch  launcher

	startLimit time.Duration // the longest wait for a live interpreter
}

// IsHelper reports whether this process was started as the helper of a sandbox.
func IsHelper() bool { return len(os.Args) > 1 && os.Args[1] == confine.HelperArg }

// HelperMain is the helper; it never returns. A binary that imports this package becomes the helper even before
// main, so the call is needed only where that is to be visible.
func HelperMain() { confine.Main() }

// New prepares a sandbox and tries it: one good and three bad programs. The caller closes it.
// Errors: Infrastructure, with a hint, if this machine cannot isolate programs or the interpreter does not work.
func New(ctx context.Context, o Options) (*Sandbox, error) {
	const op = "sandbox.New"
	o, err := o.complete(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{opts: o, slots: make(chan int, o.Slots), ruleset: -1, python: -1, startLimit: startLimit}
	for slot := range o.Slots {
		s.slots <- slot
	}
	if err := s.prepare(); err != nil {
		_ = s.Close()
		return nil, fault.New(fault.Infrastructure, op, "%w", err).WithHint("%s", kernelHint)
	}
	if err := s.selfTest(ctx); err != nil {
		_ = s.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.New(fault.Infrastructure, op, "self-test: %w", err).WithHint("%s", kernelHint)
	}
	return s, nil
}

func (o Options) complete(ctx context.Context) (Options, error) {
	var err error
	if o.Helper == "" {
		if o.Helper, err = os.Executable(); err != nil {
			return o, fault.New(fault.Infrastructure, "sandbox.New", "own binary: %w", err)
		}
	}
	if o.Python.Path == "" {
		if o.Python, err = FindPython(ctx, ""); err != nil {
			return o, err
		}
	}
	if o.Slots <= 0 {
		o.Slots = runtime.GOMAXPROCS(0)
	}
	o.Limits = o.Limits.orElse(DefaultLimits())
	return o, nil
}

func (s *Sandbox) prepare() error {
	if !confine.Supported {
		return fmt.Errorf("there is no system-call policy for %s", runtime.GOARCH)
	}
	abi, err := confine.LandlockABI()
	if err != nil {
		return fmt.Errorf("this kernel offers no Landlock: %w", err)
	}
	kill := uint32(confine.Kill)
	const actionAvailable = 2 // SECCOMP_GET_ACTION_AVAIL
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, actionAvailable, 0, uintptr(unsafe.Pointer(&kill))); errno != 0 {
		return fmt.Errorf("this kernel offers no seccomp filters: %w", errno)
	}
	grants, err := s.opts.Python.grants()
	if err != nil {
		return fmt.Errorf("the interpreter's files: %w", err)
	}
	if s.ruleset, err = confine.NewRuleset(abi, grants); err != nil {
		return err
	}
	if s.python, err = unix.Open(s.opts.Python.Path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("interpreter %s: %w", s.opts.Python.Path, err)
	}
	_, delayErr := os.ReadFile("/proc/self/schedstat")
	s.level = Level{
		LandlockABI: abi, LandlockErrata: confine.LandlockErrata(), Seccomp: "filter",
		Namespaces: "not used: whether a path exists is visible", RunDelay: delayErr == nil, Python: s.opts.Python,
	}
	var drop bool
	if drop, s.level.User = chooseUser(grants); drop {
		s.users = reserveUsers(s.opts.Slots)
	}
	s.launch = newSpawner(s.opts.Helper, s.argv(), s.ruleset, s.python)
	return nil
}

// chooseUser decides whose rights programs have. Root gives each slot a user of its own, so that the kernel counts
// threads, signals and pipes by program, unless such a user could not read the interpreter or has no number in this user namespace, or
// this process may not change users; then programs keep its id without any capability.
func chooseUser(grants []confine.Grant) (drop bool, description string) {
	if id := os.Geteuid(); id != 0 {
		return false, fmt.Sprintf("user %d, as this process", id)
	}
	const kept = "user 0 without capabilities: "
	if closed := closedTo(grants); closed != "" {
		return false, kept + "other users cannot reach " + closed
	}
	if !mapped("/proc/self/uid_map") || !mapped("/proc/self/gid_map") {
		return false, fmt.Sprintf(kept+"the user namespace has no users %d to %d", firstUser, nobody)
	}
	if !mayChangeUsers() {
		return false, kept + "this process may not change users, or not end their programs"
	}
	return true, fmt.Sprintf("a user above %d for each slot, dropped from root", firstUser-1)
}

// mapped reports whether the users of programs exist in the user namespace that the map file describes.
func mapped(path string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, count int64
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && inside <= firstUser && nobody < inside+count {
			return true
		}
	}
	return false
}

// mayChangeUsers reports whether this process has the capabilities to change user and group and to signal other users.
func mayChangeUsers() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const need = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&need == need
}

// Level says what is enforced.
func (s *Sandbox) Level() Level { return s.level }

// Slots returns the largest number of programs at once.
func (s *Sandbox) Slots() int { return s.opts.Slots }

// Close waits for running programs and gives the descriptors back. Run must not be called afterwards.
func (s *Sandbox) Close() error {
	for range cap(s.slots) {
		<-s.slots
	}
	if s.launch != nil {
		s.launch.close()
	}
	s.users.release()
	for _, fd := range []int{s.ruleset, s.python} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// Run runs p and waits for its end. Waiting for a slot is counted apart.
// Errors: Infrastructure if the program was not given a fair run; the context's error if it ended first.
func (s *Sandbox) Run(ctx context.Context, p Program) (Result, error) {
	const op = "sandbox.Run"
	limits := s.opts.Limits
	if p.Limits != nil {
		limits = p.Limits.orElse(limits)
	}
	queued := time.Now()
	var slot int
	select {
	case slot = <-s.slots:
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	defer func() { s.slots <- slot }()
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	started := time.Now()
	r, err := s.runOnce(ctx, p, limits, slot)
	if err != nil {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		return Result{}, fault.New(fault.Infrastructure, op, "%w", err).
			WithHint("run `steady doctor`; if the interpreter was replaced, start the process again")
	}
	r.QueueSeconds = started.Sub(queued).Seconds()
	return r, nil
}

// argv is the command line of the interpreter. Isolated mode would ignore the hash seed; the environment is ours
// anyway. site stays, because programs use its exit and quit.
func (s *Sandbox) argv() []string {
	return []string{s.opts.Python.Path, "-s", "-B", "-X", "utf8", "-X", "int_max_str_digits=0", "-c", bootCode}
}

func (s *Sandbox) params(l Limits, slot int) confine.Params {
	p := confine.Params{
		User: -1, Memory: uint64(l.Memory), //nolint:gosec // positive
		CPU:   uint64(l.cpuNet().Seconds()),
		Stack: stackSize, Files: openFiles, Tasks: confine.Keep,
	}
	if len(s.users.ids) > 0 {
		p.User, p.Group, p.Tasks = s.users.ids[slot], nobody, maxTasks
	}
	return p
}

// selfTest proves on this machine that a program runs and that each layer refuses.
func (s *Sandbox) selfTest(ctx context.Context) error {
	path := strconv.Quote(s.opts.Helper)
	tests := []struct{ name, source, want string }{
		{"a program reads and writes", "print(sum(map(int, input().split())))", "42\n"},
		{"a file is not readable", refusal("open(" + path + ", 'rb')"), "refused\n"},
		{"no process is started", refusal("__import__('os').fork()"), "refused\n"},
		{"no socket is opened", refusal("__import__('_socket').socket()"), "refused\n"},
	}
	errs := make(chan error, len(tests))
	for _, tt := range tests {
		go func() {
			r, err := s.Run(ctx, Program{Source: []byte(tt.source), Stdin: []byte("40 2\n")})
			switch {
			case err != nil:
				errs <- fmt.Errorf("%s: %w", tt.name, err)
			case r.Outcome != OK || string(r.Stdout) != tt.want:
				errs <- fmt.Errorf("%s: outcome %s, output %.100q, errors %.300q", tt.name, r.Outcome, r.Stdout, r.Stderr)
			default:
				errs <- nil
			}
		}()
	}
	failed := make([]error, 0, len(tests))
	for range tests {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if len(failed) > 0 {
		return failed[0]
	}
	return nil
}

func refusal(expression string) string {
	return "try:\n    " + expression + "\nexcept PermissionError:\n    print('refused')\n"
}
