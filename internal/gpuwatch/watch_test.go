package gpuwatch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/gpuwatch"
)

// reading is what a GPU says in one round.
type reading struct {
	count    int64
	countErr error
	event    gpuwatch.Event
	ok       bool
	err      error
}

// card says what it was told to say, and ends the watch after that.
type card struct {
	rounds []reading
	end    context.CancelFunc
}

func (c *card) Uncorrected() (int64, error) {
	if len(c.rounds) == 0 {
		c.end()
		return 0, nil
	}
	r := c.rounds[0]
	if r.countErr != nil {
		c.rounds = c.rounds[1:]
	}
	return r.count, r.countErr
}

func (c *card) Wait(limit time.Duration) (gpuwatch.Event, bool, error) {
	if limit != gpuwatch.Interval {
		return gpuwatch.Event{}, false, errors.New("another interval")
	}
	if len(c.rounds) == 0 {
		return gpuwatch.Event{}, false, nil
	}
	r := c.rounds[0]
	c.rounds = c.rounds[1:]
	return r.event, r.ok, r.err
}

func xid(n uint64) reading { return reading{event: gpuwatch.Event{Xid: n}, ok: true} }

func TestWatch_tellsALostGPUFromAFailedProgram(t *testing.T) {
	t.Parallel()
	blind := reading{err: errors.New("unknown error")}
	for name, tt := range map[string]struct {
		rounds []reading
		lost   string // part of the message; "" for a GPU that is kept
		warns  int
	}{
		"nothing":                       {[]reading{{}, {}, {}}, "", 0},
		"a program's wrong address":     {[]reading{xid(31), xid(13), xid(43), xid(45), xid(69)}, "", 5},
		"a row was remapped":            {[]reading{xid(63), xid(92)}, "", 2},
		"off the bus":                   {[]reading{{}, xid(79)}, "Xid 79", 0},
		"double bit error":              {[]reading{xid(48)}, "Xid 48", 0},
		"contained error":               {[]reading{xid(94)}, "Xid 94", 0},
		"a number nobody knows yet":     {[]reading{xid(999)}, "Xid 999", 0},
		"event of memory":               {[]reading{{event: gpuwatch.Event{Uncorrected: true}, ok: true}}, "memory", 0},
		"counter was not zero at start": {[]reading{{count: 7}, {count: 7}}, "", 0},
		"counter grows":                 {[]reading{{count: 7}, {count: 9}}, "2 errors of memory", 0},
		"counter is not reported":       {[]reading{{count: -1}, {count: -1}}, "", 0},
		"counter comes back":            {[]reading{{count: 3}, {count: -1}, {count: 4}}, "1 errors of memory", 0},
		"gone":                          {[]reading{{err: fault.New(fault.Lost, "nvml", "GPU is lost")}}, "GPU is lost", 0},
		"gone, says the counter":        {[]reading{{countErr: fault.New(fault.Lost, "nvml", "GPU is lost")}}, "GPU is lost", 0},
		"unreadable for a while":        {append(slices.Repeat([]reading{blind}, gpuwatch.Patience-1), reading{}, blind, reading{}), "", gpuwatch.Patience},
		"unreadable for good":           {slices.Repeat([]reading{blind}, gpuwatch.Patience), "times in a row", gpuwatch.Patience - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, end := context.WithCancel(t.Context())
			defer end()
			var told []string
			err := gpuwatch.Watch(ctx, &card{rounds: tt.rounds, end: end}, "GPU-1", func(message string) { told = append(told, message) })
			if tt.lost == "" && err != nil || tt.lost != "" && (!fault.Is(err, fault.Lost) || !strings.Contains(err.Error(), "GPU-1: ") || !strings.Contains(err.Error(), tt.lost)) {
				t.Errorf("error %v, want %q", err, tt.lost)
			}
			if len(told) != tt.warns {
				t.Errorf("told %d times, want %d: %v", len(told), tt.warns, told)
			}
			if err != nil && fault.HintOf(err) == "" {
				t.Errorf("no hint: %v", err)
			}
		})
	}
}
