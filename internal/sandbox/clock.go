package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// meter measures one live program from outside. It sees threads that live when it looks.
type meter struct {
	pid       int
	began     time.Time     // interpreter alive
	cpuBase   time.Duration // processor time until then
	base      time.Duration // run delay of the first thread until then
	delays    map[int]time.Duration
	peakSize  int64 // address space, bytes, sampled
	tasks     int   // threads at the last reading
	mostTasks int   // largest number of threads at a reading
}

func newMeter(pid int, began time.Time) *meter {
	m := &meter{pid: pid, began: began, delays: map[int]time.Duration{}}
	m.cpuBase = m.processorTime()
	m.base = runDelay(pid, pid)
	return m
}

// processorTime is that of all threads of the process, also ended ones; it works until the process is reaped.
func (m *meter) processorTime() time.Duration {
	const schedClock = 2 // CPUCLOCK_SCHED of a process
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^m.pid<<3|schedClock), &ts); err != nil { //nolint:gosec // the kernel's encoding
		return 0
	}
	return time.Duration(ts.Nano())
}

// reading is what a program has used so far.
type reading struct {
	wall, delay, charged, cpu time.Duration
	total                     time.Duration // processor time, the start of the interpreter included
}

// read measures at the time now. A process does not wait while one of its threads runs, so charged time is at
// least the processor time: many waiting threads do not buy more of it.
func (m *meter) read(now time.Time) reading {
	list := threads(m.pid)
	m.tasks = len(list)
	m.mostTasks = max(m.mostTasks, m.tasks)
	for _, tid := range list[:min(len(list), maxTasks)] {
		m.delays[tid] = max(m.delays[tid], runDelay(m.pid, tid))
	}
	sum := -m.base
	for _, d := range m.delays {
		sum += d
	}
	total := m.processorTime()
	r := reading{wall: max(0, now.Sub(m.began)), cpu: max(0, total-m.cpuBase), total: total}
	r.charged = max(r.wall-max(0, sum), min(r.wall, r.cpu))
	r.delay = r.wall - r.charged
	return r
}

func threads(pid int) []int {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // only read
	names, _ := dir.Readdirnames(-1)
	list := make([]int, 0, len(names))
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			list = append(list, tid)
		}
	}
	return list
}

// runDelay is how long a thread was runnable without running; 0 if the kernel does not tell.
func runDelay(pid, tid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	ns, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(ns)
}

// sampleMemory records the high-water mark of the address space, which is gone when the process has ended.
func (m *meter) sampleMemory() {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		return
	}
	_, rest, _ := bytes.Cut(text, []byte("\nVmPeak:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		kib, _ := strconv.ParseInt(string(f[0]), 10, 64)
		m.peakSize = max(m.peakSize, kib<<10)
	}
}
