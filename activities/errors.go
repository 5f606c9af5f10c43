package activities

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/fault"
)

// lastAttempt is the attempt from which a fault that may be a bug, or a sandbox that may be broken for
// good, is final. Workers that die cost attempts too, so it is generous.
const lastAttempt = 5

// Details travel with a failure; the UI shows them.
type Details struct {
	Op   string `json:"op,omitempty"`
	Hint string `json:"hint,omitempty"`
}

// toTemporal maps an error of the domain to one of Temporal. Cancellation passes unchanged: whether it was
// asked for or came from a stopping worker is for the SDK to know.
func toTemporal(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return err
	}
	if _, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return err
	}
	kind := fault.KindOf(err)
	opts := temporal.ApplicationErrorOptions{NonRetryable: !kind.Retryable(), Cause: errors.Unwrap(err)}
	text := err.Error()
	if hint := fault.HintOf(err); hint != "" {
		text += " — try: " + hint
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		opts.Details = []any{Details{Op: e.Op, Hint: fault.HintOf(err)}}
	}
	switch kind {
	case fault.Stale:
		opts.Category = temporal.ApplicationErrorCategoryBenign
	case fault.Internal, fault.Infrastructure:
		if activity.GetInfo(ctx).Attempt >= lastAttempt {
			opts.NonRetryable = true
		}
	case fault.Busy:
		opts.NextRetryDelay = busyDelay(activity.GetInfo(ctx).Attempt)
	default:
	}
	return temporal.NewApplicationErrorWithOptions(text, string(kind), opts)
}

// doubt takes an error for Busy while the artifact store as a whole is away: that a file of it is missing or short says nothing
// then, and must end no run.
func doubt(s artifact.Store, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || fault.KindOf(err).Retryable() && !fault.Is(err, fault.Internal) {
		return err
	}
	if _, away := s.Path("runs"); fault.Is(away, fault.Busy) {
		return fault.New(fault.Busy, "activities.doubt", "%w (seen: %w)", away, err)
	}
	return err
}

// busyDelay grows to ten seconds; a full disk or a busy engine is looked at again soon.
func busyDelay(attempt int32) time.Duration {
	return min(10*time.Second, 250*time.Millisecond*time.Duration(1<<min(attempt, 6)))
}

// guard runs an activity's body: it turns a panic into Internal, keeps the heartbeat going, notes an attempt that
// follows a lost one, tells log, metrics and trace of the attempt, and maps the error. The heartbeat is the last value that progress was called with.
func guard[Req, Res any](a *Notes, body func(ctx context.Context, req Req, beat *Beat) (Res, error)) func(context.Context, Req) (Res, error) {
	return func(ctx context.Context, req Req) (res Res, err error) {
		beat, stop := startBeat(ctx)
		defer stop()
		ctx, ended := a.observe(ctx, req)
		defer func() {
			if p := recover(); p != nil {
				err = fault.New(fault.Internal, activity.GetInfo(ctx).ActivityType.Name, "panic: %v\n%s", p, debug.Stack())
			}
			ended(err)
			err = toTemporal(ctx, err)
		}()
		a.attempt(ctx, req)
		work, end := a.whileDevice(ctx)
		defer end()
		res, err = body(work, req, beat)
		if cause := context.Cause(work); err != nil && ctx.Err() == nil && fault.Is(cause, fault.Lost) {
			err = cause // and not that it was cancelled
		}
		return res, doubt(a.Store, err)
	}
}

// Beat sends heartbeats. Say replaces what is sent.
type Beat struct {
	values chan any
	done   <-chan struct{} // the activity has ended
}

// Say sets what the next heartbeats carry; it never blocks for long.
func (b *Beat) Say(format string, args ...any) {
	select {
	case b.values <- fmt.Sprintf(format, args...):
	case <-b.done: // said by work that was given up on
	}
}

// startBeat records a heartbeat at a third of the heartbeat time-out until stop is called. It does not stop
// while an engine loads or computes; a hang is bounded by supervise, where the work has a pulse, and by the start-to-close time-out.
func startBeat(ctx context.Context) (*Beat, func()) {
	timeout := activity.GetInfo(ctx).HeartbeatTimeout
	done := make(chan struct{})
	b := &Beat{values: make(chan any), done: done}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var tick <-chan time.Time
		if timeout > 0 {
			t := time.NewTicker(timeout / 3)
			defer t.Stop()
			tick = t.C
		}
		var last any
		for {
			select {
			case <-done:
				return
			case last = <-b.values:
			case <-tick:
			}
			activity.RecordHeartbeat(ctx, last)
		}
	}()
	return b, func() { close(done); <-ended }
}
