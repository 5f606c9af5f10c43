package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/sandbox"
)

// holdings is what this process and the helper hold that a run could leave behind.
type holdings struct {
	descriptors, helperDescriptors int
	goroutines                     int
	children, programs             int
	heap, helperMemory             int64 // bytes
}

func (h holdings) String() string {
	return fmt.Sprintf("%d descriptors, %d of the helper, %d goroutines, %d children, %d programs, heap %d KiB, helper %d KiB",
		h.descriptors, h.helperDescriptors, h.goroutines, h.children, h.programs, h.heap>>10, h.helperMemory>>10)
}

func held(t *testing.T, s *sandbox.Sandbox) holdings {
	t.Helper()
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	children := func(pid int) (n int) {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
			n += len(strings.Fields(string(text)))
		}
		return n
	}
	helper := s.HelperPID()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", helper))
	if err != nil {
		t.Fatal(err)
	}
	_, anonymous, _ := strings.Cut(string(status), "\nRssAnon:")
	kib, err := strconv.ParseInt(strings.Fields(anonymous)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return holdings{
		count("/proc/self/fd"), count(fmt.Sprintf("/proc/%d/fd", helper)), runtime.NumGoroutine(), children(os.Getpid()), children(helper),
		int64(memory.HeapAlloc), kib << 10,
	}
}

// soakPrograms end in every way, some by force.
var soakPrograms = []string{
	"print(42)",
	"import threading\nthreading.Thread(target=print).start()",
	"1/0",
	"x = (",
	"import os\nos.kill(os.getpid(), 9)",
	"import os\nwhile True: os.write(1, b'x' * 65536)",
	"import ctypes\nctypes.CDLL(None).syscall(101, 0, 0, 0, 0)",
	"import os\nos.closerange(0, 64)\nos._exit(3)",
	"x = bytearray(1 << 40)",
	"import os, socket\na, b = socket.socketpair()\nr, w = os.pipe()\nos.write(w, b'x')\nos._exit(0)",
}

// TestSoak runs many programs one after the other and at once; what the process and the helper hold stays the same.
// STEADY_SOAK is the number of runs, 300 if it is not set. Not parallel: it counts what the whole process holds.
func TestSoak(t *testing.T) {
	s := box(t)
	runs := 300
	if text := os.Getenv("STEADY_SOAK"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			t.Fatalf("STEADY_SOAK=%q", text)
		}
		runs = n
	}
	many := func(n int) {
		var next atomic.Int64
		var group sync.WaitGroup
		for range s.Slots() {
			group.Go(func() {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					if _, err := s.Run(t.Context(), sandbox.Program{Source: []byte(soakPrograms[int(i)%len(soakPrograms)])}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	many(3 * len(soakPrograms))
	before := held(t, s)
	t.Logf("before: %v", before)
	var after holdings
	for part := range 10 {
		many(runs/10 + runs%10*(part/9))
		after = held(t, s)
		t.Logf("%d runs: %v", runs*(part+1)/10, after)
	}
	if after.descriptors > before.descriptors || after.helperDescriptors != before.helperDescriptors {
		t.Errorf("descriptors: %v after %v", after, before)
	}
	if after.children != 1 || after.programs != 0 {
		t.Errorf("processes: %v; want the helper alone", after)
	}
	if after.goroutines > before.goroutines {
		t.Errorf("goroutines: %v after %v", after, before)
	}
	if after.heap > before.heap+(1<<20) || after.helperMemory > before.helperMemory+(256<<10) {
		t.Errorf("memory: %v after %v", after, before)
	}
}

// A program that is cut off by its caller leaves nothing either.
func TestSoak_cancelled(t *testing.T) {
	s := box(t)
	before := held(t, s)
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10*i)*time.Millisecond)
		defer cancel()
		if _, err := s.Run(ctx, sandbox.Program{Source: []byte("while True: pass")}); err == nil {
			t.Error("a cancelled run has no error")
		}
	}
	if after := held(t, s); after.programs != 0 || after.descriptors > before.descriptors || after.goroutines > before.goroutines {
		t.Errorf("%v after %v", after, before)
	}
}

// What a run holds, its helper forgets: descriptors of one program never reach the next.
func TestSoak_nextProgramSeesNothing(t *testing.T) {
	t.Parallel()
	const source = `
import os
print([fd for fd in range(64) if os.path.exists("/proc/self/fd/%d" % fd)])`
	var seen []string
	for range 5 {
		seen = append(seen, string(mustRun(t, sandbox.Program{Source: []byte(source)}).Stdout))
	}
	if seen = slices.Compact(seen); len(seen) != 1 || seen[0] != "[0, 1, 2]\n" {
		t.Errorf("open descriptors: %q; want the three streams", seen)
	}
}
