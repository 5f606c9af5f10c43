package crashpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// The variables of the environment that Setup is given the values of.
const (
	Variable       = "STEADY_CRASHPOINT"
	CountsVariable = "STEADY_CRASHPOINT_COUNTS"
)

// orders are what Setup was told.
type orders struct {
	name   string // where to crash; empty: nowhere
	after  int64  // the visit that counts
	stop   bool
	seen   atomic.Int64
	counts []uint64 // shared with other processes, in the order of points; nil: not wanted
}

var current atomic.Pointer[orders]

// Here marks a point. Concurrency: any goroutine; of visits at the same time, one is the COUNTth.
func Here(name string) {
	if o := current.Load(); o != nil {
		o.visit(name)
	}
}

func (o *orders) visit(name string) {
	if o.counts != nil {
		atomic.AddUint64(&o.counts[slices.Index(points, name)], 1)
	}
	if o.name != name || o.seen.Add(1) != o.after {
		return
	}
	_, _ = os.Stderr.WriteString(Reached(name) + "\n") // for the test that waits for it
	if o.stop {
		stop()
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal has arrived
}

// Reached is the line that a process prints to standard error when it crashes or stops at a point.
func Reached(name string) string { return "crash point " + name }

// Setup takes the values of Variable and CountsVariable; empty ones ask for nothing. Errors: those of a value or a file that cannot
// be used.
func Setup(crash, counts string) error {
	if crash == "" && counts == "" {
		return nil
	}
	o := &orders{}
	if err := o.parse(crash); err != nil {
		return err
	}
	if counts != "" {
		c, err := OpenCounts(counts)
		if err != nil {
			return err
		}
		o.counts = c.n
	}
	current.Store(o)
	return nil
}

func (o *orders) parse(text string) error {
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ":")
	o.name, o.after = parts[0], 1
	if !slices.Contains(points, o.name) {
		return fmt.Errorf("%s=%s: there is no point %q", Variable, text, o.name)
	}
	parts = parts[1:]
	if n := len(parts); n > 0 && parts[n-1] == "stop" {
		o.stop, parts = true, parts[:n-1]
	}
	if len(parts) == 1 {
		n, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || n < 1 {
			return fmt.Errorf("%s=%s: %q is no count of visits", Variable, text, parts[0])
		}
		o.after, parts = n, nil
	}
	if len(parts) > 0 {
		return fmt.Errorf("%s=%s: want NAME[:COUNT][:stop]", Variable, text)
	}
	return nil
}

// Counts are the visits of all processes that share a file.
type Counts struct{ n []uint64 }

// OpenCounts maps the file of that name, which is made if needed, into memory. It stays mapped.
func OpenCounts(name string) (*Counts, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("counts of crash points: %w", err)
	}
	defer f.Close()
	size := len(points) * 8
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("counts of crash points: %w", err)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("counts of crash points: map %s: %w", name, err)
	}
	return &Counts{unsafe.Slice((*uint64)(unsafe.Pointer(&data[0])), len(points))}, nil //nolint:gosec // pages are aligned
}

// Of returns the visits of a point so far.
func (c *Counts) Of(name string) int {
	return int(atomic.LoadUint64(&c.n[slices.Index(points, name)])) //nolint:gosec // small
}

// Effects returns the visits of all points but those of single tokens: a clock that ticks with durable progress.
func (c *Counts) Effects() int {
	n := 0
	for _, name := range points {
		if name != "rollout.token" {
			n += c.Of(name)
		}
	}
	return n
}
