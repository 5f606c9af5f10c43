package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox/confine"
)

// job is what a launcher needs to bring one interpreter to life. Descriptors stay the caller's.
type job struct {
	params confine.Params
	files  [confine.FileCount]int32 // by number in the new process
}

// launcher starts a process that will report on its status and ready pipes.
type launcher interface {
	start(j job) (child, error)
	close()
}

// child is a started process, not yet reaped. Its process id is also its session and its group.
type child struct {
	pid, pidfd int
	from       *spawner
	helper     int // the helper that started it
}

// spawner starts programs through one helper process, which it starts when it is first needed and again if it has died.
type spawner struct {
	helper string
	argv   []string
	files  [2]int // Landlock ruleset, interpreter
	forks  chan func()
	done   chan struct{}

	mu     sync.Mutex // guards what follows, and the conversation with the helper
	client *confine.Client
	sock   int // 0: no helper
	pid    int
}

// newSpawner uses the binary helper to start argv. The descriptors stay the caller's and have to be open until close.
func newSpawner(helper string, argv []string, ruleset, python int) *spawner {
	s := &spawner{helper: helper, argv: argv, files: [2]int{ruleset, python}, forks: make(chan func()), done: make(chan struct{})}
	go s.loop()
	return s
}

// loop forks helpers from one thread that stays: the parent-death signal fires when the thread ends that forked.
func (s *spawner) loop() {
	runtime.LockOSThread()
	defer close(s.done)
	for fork := range s.forks {
		fork()
	}
}

func (s *spawner) close() {
	s.mu.Lock()
	s.drop()
	s.mu.Unlock()
	close(s.forks)
	<-s.done
}

// start starts a program.
func (s *spawner) start(j job) (child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sock == 0 {
		if err := s.launch(); err != nil {
			return child{}, fmt.Errorf("start of the helper %s: %w", s.helper, err)
		}
	}
	pid, pidfd, err := s.client.Start(j.params, j.files)
	if err != nil {
		return child{}, s.explain(err)
	}
	return child{pid: pid, pidfd: pidfd, from: s, helper: s.pid}, nil
}

// launch starts the helper. Its descriptors below the first free one are all taken, so that what it receives is above.
func (s *spawner) launch() error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ends[1]) //nolint:errcheck // nothing was written
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(ends[0])
		return err
	}
	defer unix.Close(null) //nolint:errcheck // nothing was written
	var files [confine.ExecFD + 1]uintptr
	for i := range files {
		files[i] = uintptr(null)
	}
	if _, err := unix.FcntlInt(2, unix.F_GETFD, 0); err == nil {
		files[2] = 2 // where a fault of the helper itself is told
	}
	files[confine.SocketFD] = uintptr(ends[1])
	files[confine.RulesetFD], files[confine.ExecFD] = uintptr(s.files[0]), uintptr(s.files[1])
	forked := make(chan struct{})
	s.forks <- func() {
		defer close(forked)
		s.pid, err = syscall.ForkExec(s.helper, confine.Args(os.Getpid(), s.argv), &syscall.ProcAttr{
			Dir: "/", Env: []string{"GOGC=off", "GOMAXPROCS=1"}, Files: files[:],
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	<-forked
	if err != nil {
		_ = unix.Close(ends[0])
		return err
	}
	s.sock, s.client = ends[0], confine.NewClient(ends[0])
	return nil
}

// drop ends the helper, and with it all that it started.
func (s *spawner) drop() (status unix.WaitStatus) {
	if s.sock == 0 {
		return 0
	}
	_ = unix.Close(s.sock)
	_ = unix.Kill(s.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(s.pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	s.sock, s.client, s.pid = 0, nil, 0
	return status
}

// explain drops a helper that does not answer and says how it ended.
func (s *spawner) explain(err error) error {
	if !confine.Gone(err) {
		return err
	}
	if status := s.drop(); status.Signaled() {
		return fmt.Errorf("%w, by signal %d", err, status.Signal())
	} else {
		return fmt.Errorf("%w with status %d", err, status.ExitStatus())
	}
}

// kill ends the process; it has no children. Its descriptor cannot mean another process.
func (c child) kill() { _ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0) }

// wait blocks until the process has ended and leaves it to be reaped.
func (c child) wait() {
	fds := []unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// exit is how a process ended.
type exit struct {
	status unix.WaitStatus
	maxRSS int64 // bytes
}

// reap returns how the ended process ended. If its helper has died meanwhile, nobody knows.
func (c child) reap() (e exit, err error) {
	_ = unix.Close(c.pidfd)
	s := c.from
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sock == 0 || s.pid != c.helper {
		return exit{}, errors.New("the helper died, and the program with it")
	}
	if e.status, e.maxRSS, err = s.client.Reap(c.pid); err != nil {
		return exit{}, s.explain(err)
	}
	return e, nil
}

// plumbing holds the descriptors of one run: the child's ends, and ours as files.
type plumbing struct {
	child                      [confine.FileCount]int32 // the child's ends, ours until they are handed over
	out, err, status, progress *os.File
}

func plumb(p Program) (_ *plumbing, err error) {
	pl := &plumbing{}
	for i := range pl.child {
		pl.child[i] = -1
	}
	defer func() {
		if err != nil {
			pl.closeChild()
			pl.closeOwn()
		}
	}()
	for _, f := range []struct {
		fd   int
		name string
		data []byte
	}{{0, "stdin", p.Stdin}, {confine.ProgramFD, "program", p.Source}} {
		fd, err := sealed(f.name, f.data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		pl.child[f.fd] = int32(fd) //nolint:gosec // a descriptor
	}
	for _, f := range []struct {
		fd  int
		own **os.File
	}{{1, &pl.out}, {2, &pl.err}, {confine.StatusFD, &pl.status}, {confine.ReadyFD, &pl.progress}} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
		pl.child[f.fd] = int32(ends[1])     //nolint:gosec // a descriptor
		_ = unix.SetNonblock(ends[0], true) // so that reading does not hold a thread
		*f.own = os.NewFile(uintptr(ends[0]), "pipe")
	}
	return pl, nil
}

func (pl *plumbing) closeChild() {
	for i, fd := range pl.child {
		if fd >= 0 {
			_ = unix.Close(int(fd))
		}
		pl.child[i] = -1
	}
}

func (pl *plumbing) closeOwn() {
	for _, f := range []*os.File{pl.out, pl.err, pl.status, pl.progress} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// sealed returns a read-only descriptor, with an offset of its own, of an unchangeable file in memory.
func sealed(name string, data []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd) //nolint:errcheck // the data is in memory
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return -1, err
		}
		data = data[max(n, 0):]
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return -1, err
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}
