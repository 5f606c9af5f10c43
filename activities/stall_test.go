package activities

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// supervised runs work with ticks that the test gives.
type supervised struct {
	p     *pulse
	ticks chan time.Time
	ended chan error
}

func startSupervised(ctx context.Context, p *pulse, work func(context.Context) (int, error)) *supervised {
	s := &supervised{p: p, ticks: make(chan time.Time), ended: make(chan error, 1)}
	go func() {
		_, err := superviseBy(ctx, p, "test", time.Minute, s.ticks, work)
		s.ended <- err
	}()
	return s
}

// tick gives n ticks, and returns false if supervise ended before it took them.
func (s *supervised) tick(n int) (error, bool) {
	for range n {
		select {
		case s.ticks <- time.Time{}:
		case err := <-s.ended:
			return err, false
		}
	}
	return nil, true
}

func TestSupervise_workWithProgressIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]func(p *pulse, round int){
		"it beats":      func(p *pulse, _ int) { p.beat() },
		"another beats": func(p *pulse, _ int) { p.beat() }, // pulses are shared
		"an engine loads": func(p *pulse, round int) {
			if round == 0 {
				p.hold()
			}
		},
	} {
		p := &pulse{}
		finish := make(chan struct{})
		s := startSupervised(t.Context(), p, func(context.Context) (int, error) { <-finish; return 1, nil })
		for round := range 5 {
			sign(p, round)
			if err, ok := s.tick(stallTicks); !ok {
				t.Fatalf("%s: given up: %v", name, err)
			}
		}
		close(finish)
		if err := <-s.ended; err != nil || p.stuck.Load() != 0 {
			t.Errorf("%s: error %v, %d stuck", name, err, p.stuck.Load())
		}
	}
}

func TestSupervise_silentWorkIsLost(t *testing.T) {
	t.Parallel()
	p := &pulse{}
	var cause error
	s := startSupervised(t.Context(), p, func(ctx context.Context) (int, error) {
		<-ctx.Done() // it hears that it is given up on
		cause = context.Cause(ctx)
		return 0, ctx.Err()
	})
	err, _ := s.tick(stallTicks + 1)
	if err == nil {
		err = <-s.ended
	}
	if !fault.Is(err, fault.Lost) || !fault.Is(cause, fault.Lost) || p.stuck.Load() != 0 {
		t.Errorf("error %v, cause %v, %d stuck; want Lost, Lost and none", err, cause, p.stuck.Load())
	}
}

// A call that does not even return must not hold its activity, and its engine takes no other work until it has.
func TestSupervise_aCallThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	p := &pulse{}
	free := make(chan struct{})
	s := startSupervised(t.Context(), p, func(context.Context) (int, error) { <-free; return 0, errors.New("late") })
	err, ok := s.tick(stallTicks + 3)
	if ok {
		err = <-s.ended
	}
	if !fault.Is(err, fault.Lost) || p.stuck.Load() != 1 {
		t.Fatalf("error %v, %d stuck; want Lost, 1", err, p.stuck.Load())
	}
	none := func(context.Context) (int, error) { t.Error("work began on a stuck engine"); return 0, nil }
	if _, err := superviseBy(t.Context(), p, "test", time.Minute, nil, none); !fault.Is(err, fault.Busy) {
		t.Errorf("beside a stuck call: %v, want Busy", err)
	}
	beats := p.beats.Load()
	close(free)
	for p.beats.Load() == beats { // it says that it is back
		runtime.Gosched()
	}
	if v, err := superviseBy(t.Context(), p, "test", time.Minute, nil, func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("after it has returned: %d, %v", v, err)
	}
}

func TestSupervise_passesOnWhatWorkEndsWith(t *testing.T) {
	t.Parallel()
	planned := fault.New(fault.Numeric, "x", "planned")
	if _, err := supervise(t.Context(), &pulse{}, "test", time.Hour, func(context.Context) (int, error) { return 0, planned }); !errors.Is(err, planned) {
		t.Errorf("error %v, want that of the work", err)
	}
	_, err := supervise(t.Context(), &pulse{}, "test", time.Hour, func(context.Context) (int, error) { panic("boom") })
	if !fault.Is(err, fault.Internal) {
		t.Errorf("a panic gives %v, want Internal", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = supervise(ctx, &pulse{}, "test", time.Hour, func(ctx context.Context) (int, error) { cancel(); <-ctx.Done(); return 0, ctx.Err() })
	if !errors.Is(err, context.Canceled) || fault.Is(err, fault.Lost) {
		t.Errorf("a cancelled activity gives %v, want that it was cancelled", err)
	}
}
