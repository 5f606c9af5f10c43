package sandbox

import "time"

// Limits bound one program. A zero field means the default.
type Limits struct {
	// Time is charged time: wall time less waiting for a core. Default 3 s. As a net, the processor time of all threads together,
	// start included, is limited to Time, rounded down to seconds, plus 2 s.
	Time time.Duration
	// Memory is address space in bytes, libraries included. Default 1 GiB.
	Memory int64
	// Output is the longest output of each stream in bytes; one byte more ends the program. Default 1 MiB.
	Output int64
}

// DefaultLimits returns 3 s, 1 GiB, 1 MiB.
func DefaultLimits() Limits { return Limits{Time: 3 * time.Second, Memory: 1 << 30, Output: 1 << 20} }

func (l Limits) orElse(d Limits) Limits {
	if l.Time <= 0 {
		l.Time = d.Time
	}
	if l.Memory <= 0 {
		l.Memory = d.Memory
	}
	if l.Output <= 0 {
		l.Output = d.Output
	}
	return l
}

// wallCap ends programs whose charged time hardly grows. Sleeping and being stopped are charged, so only a machine
// with ten times more work than cores gets here, or a program that plays with its threads.
func (l Limits) wallCap() time.Duration { return 10*l.Time + time.Second }

// cpuNet is the processor time after which the kernel ends a program that we, on a busy machine, have not ended yet: whole seconds,
// start-up and rounding included. A worker that hears late of a program's start still knows by it whose fault the end was.
func (l Limits) cpuNet() time.Duration { return l.Time.Truncate(time.Second) + 2*time.Second }

// patient is the least wall time after which a program can be starved: programs with many threads may have the cores for seconds.
const patient = 31 * time.Second

// expired says whether a program is to be ended. timeUp: its time is used, or it has had threads and reached wallCap. starved: a
// program that never had a second thread waited for a core until wallCap, and for long. It cannot do that to itself, so it is no verdict.
func (l Limits) expired(used reading, mostTasks int) (timeUp, starved bool) {
	switch {
	case used.charged >= l.Time:
		return true, false
	case used.wall < l.wallCap():
		return false, false
	case mostTasks > 1:
		return true, false
	}
	return false, used.wall >= patient
}

const (
	// startLimit is the longest wait for a live interpreter; more is an infrastructure fault.
	startLimit = 10 * time.Second
	// stackSize is the stack of the first thread.
	stackSize = 64 << 20
	// openFiles is below confine.InterpreterFD and enough for any program.
	openFiles = 64
	// maxTasks is the largest number of threads of a program: a limit of the kernel if the program has a user of its own, else a
	// program that is seen with more is ended, with outcome Policy.
	maxTasks = 1024
)

// Options configure a Sandbox.
type Options struct {
	// Helper is the path of a binary that contains this package; it is started with a hidden first argument.
	// Default: the running binary.
	Helper string
	// Python is the interpreter, from FindPython. The zero value means FindPython's default.
	Python Python
	// Slots is the largest number of programs at once; further ones wait in a queue. Default: the number of cores.
	Slots int
	// Limits apply to programs that bring none. Default: DefaultLimits.
	Limits Limits
}

// Program is one program and its input.
type Program struct {
	Source []byte  // Python source text, UTF-8 unless it declares another encoding
	Stdin  []byte  // standard input: a read-only file, so that it can be read in any way
	Limits *Limits // nil: the sandbox's limits
}

// Result says how a program ended. Times are seconds, all finite and not negative.
type Result struct {
	Outcome  Outcome `json:"outcome"`
	ExitCode int     `json:"exit_code"` // -1 if a signal ended it
	Signal   int     `json:"signal"`    // 0 if it exited

	Stdout      []byte `json:"stdout"` // at most Limits.Output bytes
	Stderr      []byte `json:"stderr"`
	StdoutBytes int64  `json:"stdout_bytes"` // what was written before the program was ended, also beyond the limit
	StderrBytes int64  `json:"stderr_bytes"`

	QueueSeconds   float64 `json:"queue_s"`   // waiting for a slot
	StartupSeconds float64 `json:"startup_s"` // slot to live interpreter
	ChargedSeconds float64 `json:"run_s"`     // wall time less run delay: what is limited
	DelaySeconds   float64 `json:"delay_s"`   // runnable, waiting for a core
	WallSeconds    float64 `json:"wall_s"`    // live interpreter to end
	CPUSeconds     float64 `json:"cpu_s"`     // processor time of all threads since the interpreter was alive

	// PeakRSSBytes is the largest resident memory of the process, the interpreter included, as the kernel counted it. The copy of
	// the helper that became the interpreter counts too; it is smaller (about 1 MB) than any interpreter.
	PeakRSSBytes int64 `json:"peak_rss_bytes"`
}

// Level says what is enforced on this machine, for manifests and for a person.
type Level struct {
	LandlockABI    int    `json:"landlock_abi"`
	LandlockErrata int    `json:"landlock_errata"`
	Seccomp        string `json:"seccomp"`
	Namespaces     string `json:"namespaces"`
	User           string `json:"user"`      // whose rights programs have before the layers
	RunDelay       bool   `json:"run_delay"` // false: the kernel does not tell it, charged time is wall time
	Python         Python `json:"python"`
}
