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
	r := &run{limits: l, starved: true, last: running, meter: &meter{}}
	if res, err := r.result(exit{}, at(31*time.Second, time.Second)); err == nil {
		t.Errorf("a starved program got the verdict %s", res.Outcome)
	}
}
