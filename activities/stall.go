package activities

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steadyrl/steady/internal/fault"
)

// pulse tells that an engine or a judge of this worker gets something done. All activities that share it keep each other alive: one that
// waits for its turn is not stuck as long as the others move. Activities are bounded by their start-to-close time-out besides.
type pulse struct {
	beats atomic.Uint64 // tokens, verdicts, ends of tool calls
	holds atomic.Int64  // work in progress that may be silent for long: an engine that loads weights
	stuck atomic.Int64  // calls that were given up on and have not returned
}

func (p *pulse) beat() { p.beats.Add(1) }

// hold makes silence count as progress until the returned function is called.
func (p *pulse) hold() (release func()) {
	p.holds.Add(1)
	return func() { p.holds.Add(-1); p.beat() }
}

// pulses are those of a worker, by what they belong to. The zero value is ready.
type pulses struct {
	mu sync.Mutex
	of map[string]*pulse
}

const maxPulses = 64

func (p *pulses) get(name string) *pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.of[name]; x != nil {
		return x
	}
	if p.of == nil || len(p.of) >= maxPulses {
		p.of = map[string]*pulse{} // of runs long gone; who still holds one keeps it
	}
	x := &pulse{}
	p.of[name] = x
	return x
}

// stallTicks is the number of ticks without a beat after which work is stuck. Ticks are counted and not the clock, so that a
// machine that slept has not been silent.
const stallTicks = 8

// supervise runs work, which beats p. When p is silent for `limit`, the context of work ends and supervise returns an error of kind Lost,
// so that another worker takes the task; it waits for work to end for two more ticks, no longer. As long as a call that was given up on has not
// returned, this worker refuses with Busy what would use the same engine.
func supervise[T any](ctx context.Context, p *pulse, what string, limit time.Duration, work func(context.Context) (T, error)) (T, error) {
	ticker := time.NewTicker(max(limit/stallTicks, time.Millisecond))
	defer ticker.Stop()
	return superviseBy(ctx, p, what, limit, ticker.C, work)
}

func superviseBy[T any](
	ctx context.Context, p *pulse, what string, limit time.Duration, ticks <-chan time.Time, work func(context.Context) (T, error),
) (T, error) {
	var zero T
	if n := p.stuck.Load(); n > 0 {
		return zero, fault.New(fault.Busy, what, "%d calls on this worker made no progress for %s and have not returned", n, limit).
			WithHint("restart this worker if it stays so; another worker of the role takes the task meanwhile")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	type outcome struct {
		v   T
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if x := recover(); x != nil {
				o.err = fault.New(fault.Internal, what, "panic: %v\n%s", x, debug.Stack())
			}
			ended <- o
		}()
		o.v, o.err = work(ctx)
	}()
	var stalled error
	last, quiet := p.beats.Load(), 0
	for {
		select {
		case o := <-ended:
			if stalled != nil && o.err != nil {
				return zero, stalled
			}
			return o.v, o.err
		case <-ticks:
		}
		if now := p.beats.Load(); stalled == nil && (now != last || p.holds.Load() > 0) {
			last, quiet = now, 0
			continue
		}
		quiet++
		switch {
		case quiet == stallTicks:
			stalled = fault.New(fault.Lost, what, "no progress for %s", limit)
			stop(stalled)
		case quiet >= stallTicks+2:
			p.stuck.Add(1)
			go func() { <-ended; p.stuck.Add(-1); p.beat() }()
			return zero, stalled
		}
	}
}
