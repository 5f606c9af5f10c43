package sandbox_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/sandbox/confine"
)

// usualImports is what an answer to a programming task imports.
const usualImports = "import sys, math, collections, heapq, bisect, itertools, functools, re, random\nprint(sum(range(1000)))"

// BenchmarkRun compares programs in the sandbox with bare starts of the same interpreter, in the same environment and
// with the same imports, one after the other in one process. ratio is the processor time of bare starts through that of runs, all
// processes included: the executions a second that isolation leaves of those without it, on busy cores.
func BenchmarkRun(b *testing.B) {
	s := box(b)
	program := sandbox.Program{Source: []byte(usualImports)}
	run := func() {
		if r, err := s.Run(b.Context(), program); err != nil || r.Outcome != sandbox.OK {
			b.Fatal(r, err)
		}
	}
	run()
	var bare, own, bareOwn time.Duration
	before := helperTime(b, s.HelperPID())
	for b.Loop() {
		self := usage(b, unix.RUSAGE_SELF)
		run()
		own += usage(b, unix.RUSAGE_SELF) - self
		child, self := usage(b, unix.RUSAGE_CHILDREN), usage(b, unix.RUSAGE_SELF)
		cmd := exec.CommandContext(b.Context(), s.Level().Python.Path, "-s", "-B", "-X", "utf8", "-c", usualImports)
		cmd.Env = confine.Environment()
		if out, err := cmd.Output(); err != nil || string(out) != "499500\n" {
			b.Fatal(string(out), err)
		}
		bare += usage(b, unix.RUSAGE_CHILDREN) - child
		bareOwn += usage(b, unix.RUSAGE_SELF) - self
	}
	isolated := helperTime(b, s.HelperPID()) - before
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
	b.ReportMetric(ms(isolated), "run-ms/op")
	b.ReportMetric(ms(own), "run-worker-ms/op")
	b.ReportMetric(ms(bare), "bare-ms/op")
	b.ReportMetric(ms(bareOwn), "bare-worker-ms/op")
	b.ReportMetric(bare.Seconds()/isolated.Seconds(), "ratio")
	b.ReportMetric((bare+bareOwn).Seconds()/(isolated+own).Seconds(), "ratio-with-worker")
}

// usage is the processor time of this process or of its ended children.
func usage(b *testing.B, who int) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// helperTime is the processor time of the helper and of all programs that it started and that have ended.
func helperTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	const first, tick = 14 - 3, 10 * time.Millisecond // of utime, stime, cutime, cstime
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var sum time.Duration
	for _, f := range fields[first : first+4] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
