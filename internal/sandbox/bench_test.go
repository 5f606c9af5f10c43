package sandbox_test

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/sandbox"
	"github.com/steadyrl/steady/internal/sandbox/confine"
)

// usualImports is what an answer to a programming task imports.
const usualImports = "import sys, math, collections, heapq, bisect, itertools, functools, re, random\nprint(sum(range(1000)))"

// BenchmarkRun compares programs in the sandbox with bare starts of the same interpreter, in the same environment and
// with the same imports, one after the other in one process. ratio is the processor time of bare starts through that of runs:
// the executions a second that isolation leaves of those without it, on busy cores.
func BenchmarkRun(b *testing.B) {
	s := box(b)
	var isolated, bare, own time.Duration
	for b.Loop() {
		child, self := usage(b, unix.RUSAGE_CHILDREN), usage(b, unix.RUSAGE_SELF)
		if r, err := s.Run(b.Context(), sandbox.Program{Source: []byte(usualImports)}); err != nil || r.Outcome != sandbox.OK {
			b.Fatal(r, err)
		}
		isolated += usage(b, unix.RUSAGE_CHILDREN) - child
		own += usage(b, unix.RUSAGE_SELF) - self
		child = usage(b, unix.RUSAGE_CHILDREN)
		cmd := exec.CommandContext(b.Context(), s.Level().Python.Path, "-s", "-B", "-X", "utf8", "-c", usualImports)
		cmd.Env = confine.Environment()
		if out, err := cmd.Output(); err != nil || string(out) != "499500\n" {
			b.Fatal(string(out), err)
		}
		bare += usage(b, unix.RUSAGE_CHILDREN) - child
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
	b.ReportMetric(ms(isolated), "run-ms/op")
	b.ReportMetric(ms(bare), "bare-ms/op")
	b.ReportMetric(ms(own), "worker-ms/op")
	b.ReportMetric(bare.Seconds()/isolated.Seconds(), "ratio")
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
