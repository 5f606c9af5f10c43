package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox/confine"
)

// job is what a launcher needs to bring one interpreter to life. Descriptors stay the caller's.
type job struct {
	params confine.Params
	argv   []string
	files  []uintptr // by number in the new process
}

// launcher starts a process that will report on its status and ready pipes.
type launcher interface {
	start(j job) (child, error)
	close()
}

// child is a started process, not yet reaped. Its process id is also its session and its group.
type child struct{ pid, pidfd int }

// spawner starts all children from one thread: the parent-death signal fires when the thread ends that forked.
type spawner struct {
	helper   string
	requests chan spawnRequest
	done     chan struct{}
}

type spawnRequest struct {
	job   job
	reply chan spawnReply
}

type spawnReply struct {
	child child
	err   error
}

func newSpawner(helper string) *spawner {
	s := &spawner{helper: helper, requests: make(chan spawnRequest), done: make(chan struct{})}
	go s.loop()
	return s
}

func (s *spawner) loop() {
	runtime.LockOSThread()
	defer close(s.done)
	for r := range s.requests {
		c, err := s.fork(r.job)
		r.reply <- spawnReply{c, err}
	}
}

func (s *spawner) start(j job) (child, error) {
	reply := make(chan spawnReply, 1)
	s.requests <- spawnRequest{j, reply}
	r := <-reply
	return r.child, r.err
}

func (s *spawner) close() {
	close(s.requests)
	<-s.done
}

func (s *spawner) fork(j job) (child, error) {
	pidfd := -1
	pid, err := syscall.ForkExec(s.helper, j.params.Args(j.argv), &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOGC=off", "GOMAXPROCS=1"}, Files: j.files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd},
	})
	if err != nil {
		return child{}, fmt.Errorf("start of the helper %s: %w", s.helper, err)
	}
	if pidfd < 0 {
		c := child{pid: pid, pidfd: -1}
		c.kill()
		_, _ = c.reap()
		return child{}, errors.New("the kernel gave no descriptor of the helper process")
	}
	return child{pid, pidfd}, nil
}

// kill ends the process and its group. The process id cannot have passed to another process before reap.
func (c child) kill() {
	_ = unix.Kill(-c.pid, unix.SIGKILL)
	_ = unix.Kill(c.pid, unix.SIGKILL)
}

// wait blocks until the process has ended and leaves it to be reaped.
func (c child) wait() {
	for {
		if err := unix.Waitid(unix.P_PIDFD, c.pidfd, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// exit is how a process ended.
type exit struct {
	status unix.WaitStatus
	maxRSS int64 // bytes
}

func (c child) reap() (exit, error) {
	if c.pidfd >= 0 {
		defer unix.Close(c.pidfd) //nolint:errcheck // nothing was written
	}
	for {
		var e exit
		var usage unix.Rusage
		_, err := unix.Wait4(c.pid, &e.status, 0, &usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return exit{}, fmt.Errorf("wait for the program: %w", err)
		}
		e.maxRSS = usage.Maxrss << 10
		return e, nil
	}
}

// plumbing holds the descriptors of one run: the child's ends, and ours as files.
type plumbing struct {
	child                      [confine.ExecFD + 1]int
	out, err, status, progress *os.File
	opened                     []int // child's ends that this run owns
}

func (s *Sandbox) plumb(p Program) (_ *plumbing, err error) {
	pl := &plumbing{}
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
		pl.child[f.fd] = fd
		pl.opened = append(pl.opened, fd)
	}
	for _, f := range []struct {
		fd  int
		own **os.File
	}{{1, &pl.out}, {2, &pl.err}, {confine.StatusFD, &pl.status}, {confine.ReadyFD, &pl.progress}} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
		pl.child[f.fd] = ends[1]
		pl.opened = append(pl.opened, ends[1])
		_ = unix.SetNonblock(ends[0], true) // so that reading does not hold a thread
		*f.own = os.NewFile(uintptr(ends[0]), "pipe")
	}
	pl.child[confine.RulesetFD], pl.child[confine.ExecFD] = s.ruleset, s.python
	return pl, nil
}

func (pl *plumbing) files() []uintptr {
	list := make([]uintptr, len(pl.child))
	for i, fd := range pl.child {
		list[i] = uintptr(fd)
	}
	return list
}

func (pl *plumbing) closeChild() {
	for _, fd := range pl.opened {
		_ = unix.Close(fd)
	}
	pl.opened = nil
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
