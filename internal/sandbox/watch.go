package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox/confine"
)

// Progress bytes of the boot code.
const (
	alive      = 'B' // the interpreter works and is about to compile the program
	notCompile = 'C' // the program does not compile
	running    = 'R' // the program's first line is next; nothing can be written after it
)

// mark is a progress byte with the time at which it was read.
type mark struct {
	b  byte
	at time.Time
}

// stream collects one output: the first limit bytes, the number of all, and the last few.
type stream struct {
	kept  []byte
	tail  []byte
	count int64
}

const tailBytes = 256

// drain reads f to its end, so that nobody blocks on a full pipe, and calls over once when limit is passed.
func (s *stream) drain(f io.Reader, limit int64, over func()) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if room := limit - int64(len(s.kept)); room > 0 {
			s.kept = append(s.kept, buf[:min(int64(n), room)]...)
		}
		s.tail = append(s.tail, buf[max(0, n-tailBytes):n]...)
		s.tail = s.tail[max(0, len(s.tail)-tailBytes):]
		before := s.count
		s.count += int64(n)
		if before <= limit && s.count > limit {
			over()
		}
		if err != nil {
			return
		}
	}
}

// run is the state of one program from its start to its end.
type run struct {
	limits   Limits
	patience time.Duration // for the start
	child    child
	out, err stream
	status   []byte // errors of the helper
	meter    *meter // nil until the interpreter is alive
	last     byte   // last progress byte, 0 before the first
	startup  time.Duration
	late     bool // the interpreter was not alive in time
	timeUp   bool // ended by us for its time
	starved  bool // ended by us because it had no fair share of a core
	crowded  bool // ended by us for its threads
	ended    time.Time
}

func (s *Sandbox) runOnce(ctx context.Context, p Program, l Limits, slot int) (Result, error) {
	pl, err := plumb(p)
	if err != nil {
		return Result{}, err
	}
	defer pl.closeOwn()
	begin := time.Now()
	c, err := s.launch.start(job{params: s.params(l, slot), files: pl.child})
	pl.closeChild()
	if err != nil {
		return Result{}, err
	}
	r := &run{limits: l, patience: s.startLimit, child: c}
	r.follow(ctx, pl, begin)
	var used reading
	if r.meter != nil {
		used = r.meter.read(r.ended)
	}
	e, err := c.reap()
	if err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	return r.result(e, used)
}

// follow watches the program until it has ended and its pipes are drained; it is then still to be reaped.
func (r *run) follow(ctx context.Context, pl *plumbing, begin time.Time) {
	over := make(chan struct{}, 2)
	overflow := func() { over <- struct{}{} }
	pending := make(chan struct{}, 3)
	go func() { r.out.drain(pl.out, r.limits.Output, overflow); pending <- struct{}{} }()
	go func() { r.err.drain(pl.err, r.limits.Output, overflow); pending <- struct{}{} }()
	go func() { r.status, _ = io.ReadAll(pl.status); pending <- struct{}{} }()
	marks := make(chan mark, 4)
	go readMarks(pl.progress, marks)
	exited := make(chan time.Time, 1)
	go func() { r.child.wait(); exited <- time.Now() }()

	tick := time.NewTimer(r.patience)
	defer tick.Stop()
	done := ctx.Done()
	progress := marks
	pause := 8 * time.Millisecond
	for r.ended.IsZero() {
		select {
		case m, ok := <-progress:
			if !ok {
				progress = nil
				continue
			}
			if r.advance(m, begin) {
				tick.Reset(pause)
			}
		case <-over:
			r.child.kill()
		case <-done:
			done = nil
			r.child.kill()
		case now := <-tick.C:
			pause = min(2*pause, 250*time.Millisecond)
			tick.Reset(r.check(now, pause))
		case r.ended = <-exited:
		}
	}
	if progress != nil {
		for m := range progress {
			r.advance(m, begin)
		}
	}
	for range cap(pending) {
		<-pending
	}
}

func readMarks(f *os.File, marks chan<- mark) {
	defer close(marks)
	var buf [1]byte
	for range cap(marks) {
		if n, err := f.Read(buf[:]); n != 1 || err != nil {
			return
		}
		marks <- mark{buf[0], time.Now()}
	}
}

// advance takes one progress byte and reports whether the clock starts with it.
func (r *run) advance(m mark, begin time.Time) bool {
	r.last = m.b
	if r.meter != nil {
		return false
	}
	r.meter = newMeter(r.child.pid, m.at)
	r.startup = m.at.Sub(begin)
	return true
}

// check ends the program if its time is up and returns when to look again, at most in pause.
func (r *run) check(now time.Time, pause time.Duration) time.Duration {
	if r.meter == nil {
		r.late = true
		r.child.kill()
		return pause
	}
	r.meter.sampleMemory()
	used := r.meter.read(now)
	if r.meter.tasks > maxTasks {
		r.crowded = true
		r.child.kill()
		return pause
	}
	r.timeUp, r.starved = r.limits.expired(used, r.meter.mostTasks)
	if r.timeUp || r.starved {
		r.child.kill()
		return pause
	}
	return min(pause, max(2*time.Millisecond, r.limits.Time-used.charged))
}

// result turns what was seen into a verdict on the program, or into an error if the program never had its chance.
func (r *run) result(e exit, used reading) (Result, error) {
	if len(r.status) > 0 {
		return Result{}, fmt.Errorf("helper: %s", confine.StatusText(r.status))
	}
	if r.late {
		return Result{}, fmt.Errorf("the interpreter was not alive after %s", r.patience)
	}
	if r.starved {
		return Result{}, fmt.Errorf("the program waited %s of %s for a core: there is far more work than cores",
			used.delay.Round(time.Millisecond), used.wall.Round(time.Millisecond))
	}
	if r.meter == nil {
		text := bytes.TrimSpace(r.err.kept)
		if e.status.Signaled() {
			return Result{}, fmt.Errorf("the interpreter died of signal %d before the program: %.300s", e.status.Signal(), text)
		}
		return Result{}, fmt.Errorf("the interpreter exited with %d before the program: %.300s", e.status.ExitStatus(), text)
	}
	res := Result{
		Stdout: r.out.kept, Stderr: r.err.kept, StdoutBytes: r.out.count, StderrBytes: r.err.count,
		StartupSeconds: r.startup.Seconds(), ChargedSeconds: used.charged.Seconds(), DelaySeconds: used.delay.Seconds(),
		WallSeconds: used.wall.Seconds(), CPUSeconds: used.cpu.Seconds(), PeakRSSBytes: e.maxRSS,
	}
	if e.status.Signaled() {
		res.ExitCode, res.Signal = -1, int(e.status.Signal())
	} else {
		res.ExitCode = e.status.ExitStatus()
	}
	res.Outcome = r.classify(res, used)
	return res, nil
}

// tolerance is how far two of the kernel's clocks of processor time may be apart.
const tolerance = 100 * time.Millisecond

// classify names the cause. Which kind of failure a failed program gets can be influenced by it (it may
// print MemoryError, or send itself a signal); that it failed, and that a limit was passed, cannot.
func (r *run) classify(res Result, used reading) Outcome {
	signal := unix.Signal(res.Signal)
	killed := signal == unix.SIGKILL || signal == unix.SIGXCPU
	switch {
	case res.StdoutBytes > r.limits.Output || res.StderrBytes > r.limits.Output:
		return OutputLimit
	case r.timeUp || used.charged > r.limits.Time || killed && used.cpu >= r.limits.Time || killed && used.total >= r.limits.cpuNet()-tolerance:
		return TimeLimit
	case signal == unix.SIGSYS || r.crowded:
		return Policy
	case r.last != running:
		return CompileError
	case res.Signal == 0 && res.ExitCode == 0:
		return OK
	case r.outOfMemory(res):
		return MemoryLimit
	}
	return RuntimeError
}

func (r *run) outOfMemory(res Result) bool {
	if res.Signal != 0 && r.meter.peakSize >= r.limits.Memory/16*15 {
		return true
	}
	lines := bytes.Split(bytes.TrimSpace(r.err.tail), []byte("\n"))
	return res.ExitCode == 1 && bytes.HasPrefix(lines[len(lines)-1], []byte("MemoryError"))
}

// String names the outcome and what explains it, for logs.
func (r Result) String() string {
	return fmt.Sprintf("%s (exit %d, signal %d, %.3f s)", r.Outcome, r.ExitCode, r.Signal, r.ChargedSeconds)
}
