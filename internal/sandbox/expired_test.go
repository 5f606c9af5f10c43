package sandbox

import (
	"testing"
	"time"
)

// A program that used its time gets a verdict; one that never got a core gets none, unless it could have made itself wait.
func TestLimits_aStarvedProgramGetsNoVerdict(t *testing.T) {
	t.Parallel()
	l := Limits{Time: 3 * time.Second}
	at := func(wall, charged time.Duration) reading {
		return reading{wall: wall, charged: charged, delay: wall - charged}
	}
	for name, tt := range map[string]struct {
		used            reading
		tasks           int
		timeUp, starved bool
	}{
		"still running":              {at(2*time.Second, 2*time.Second), 1, false, false},
		"waiting, but in time":       {at(30*time.Second, 2*time.Second), 1, false, false},
		"time used":                  {at(3*time.Second, 3*time.Second), 1, true, false},
		"time used late":             {at(40*time.Second, 3*time.Second), 1, true, false},
		"never got a core":           {at(31*time.Second, 2*time.Second), 1, false, true},
		"the same with threads":      {at(31*time.Second, 2*time.Second), 2, true, false},
		"the same, threads not seen": {at(31*time.Second, 2*time.Second), 0, false, true},
	} {
		if timeUp, starved := l.expired(tt.used, tt.tasks); timeUp != tt.timeUp || starved != tt.starved {
			t.Errorf("%s: time up %v, starved %v; want %v, %v", name, timeUp, starved, tt.timeUp, tt.starved)
		}
	}
	short := Limits{Time: time.Second / 2}
	if timeUp, starved := short.expired(at(30*time.Second, 0), 1); timeUp || starved {
		t.Error("a short limit makes the wait for a core short")
	}
	if _, starved := short.expired(at(31*time.Second, 0), 1); !starved {
		t.Error("a short limit never ends a starved program")
	}
	r := &run{limits: l, starved: true, last: running, meter: &meter{}}
	if res, err := r.result(exit{}, at(31*time.Second, time.Second)); err == nil {
		t.Errorf("a starved program got the verdict %s", res.Outcome)
	}
}

// What the kernel's net ends has used its time, also if the worker heard of its start only then; another SIGKILL is the program's own.
func TestClassify_killedByTheNet(t *testing.T) {
	t.Parallel()
	l := Limits{Time: 500 * time.Millisecond, Output: 1, Memory: 1 << 30}
	r := &run{limits: l, last: running, meter: &meter{}}
	for _, tt := range []struct {
		signal int
		total  time.Duration
		want   Outcome
	}{
		{9, 2 * time.Second, TimeLimit},
		{24, 2 * time.Second, TimeLimit},
		{9, 300 * time.Millisecond, RuntimeError},
		{11, 2 * time.Second, RuntimeError},
	} {
		used := reading{wall: 80 * time.Millisecond, charged: 80 * time.Millisecond, cpu: 80 * time.Millisecond, total: tt.total}
		if got := r.classify(Result{ExitCode: -1, Signal: tt.signal}, used); got != tt.want {
			t.Errorf("signal %d after %s: %s, want %s", tt.signal, tt.total, got, tt.want)
		}
	}
}
