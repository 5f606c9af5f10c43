package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
)

// Notes writes events of a run to the store: what the time line of failures and recoveries is made of. It is best
// effort; a note that cannot be written is logged and never fails the work it is about.
type Notes struct {
	Store artifact.Store
	Host  string // for people
	// Device ends, with a cause of kind Lost, when the device of this process's engines is lost; what runs then ends with the cause. nil for never.
	Device context.Context //nolint:containedctx // the life of a device, not of a call
	// Log, Metrics and Tracer hear of every attempt of an activity. Nil ones are told nothing.
	Log     *zap.Logger
	Metrics *metrics.Set
	Tracer  span.Tracer
}

// whileDevice is ctx for as long as the device is there.
func (n *Notes) whileDevice(ctx context.Context) (context.Context, func()) {
	if n.Device == nil {
		return ctx, func() {}
	}
	work, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.Device, func() { end(context.Cause(n.Device)) })
	return work, func() { stop(); end(nil) }
}

// attempt notes that an activity runs again after an attempt that failed or was lost with its worker.
func (n *Notes) attempt(ctx context.Context, req any) {
	info := activity.GetInfo(ctx)
	k, ok := req.(keyed)
	if info.Attempt == 1 || !ok {
		return
	}
	n.Write(ctx, k.Key(), record.Event{
		Kind: "retried", Where: info.ActivityType.Name,
		Message: fmt.Sprintf("attempt %d began on %s (activity %s of %s)", info.Attempt, n.Host, info.ActivityID, info.WorkflowExecution.ID),
	})
}

// stalled notes that an activity was given up on because it made no progress; other errors are not its business.
func (n *Notes) stalled(ctx context.Context, k contract.RunKey, unit string, err error) {
	if fault.Is(err, fault.Lost) {
		if activity.IsActivity(ctx) {
			n.Metrics.Stalled(activity.GetInfo(ctx).ActivityType.Name)
		}
		n.Write(ctx, k, record.Event{Kind: "stalled", Where: n.Host, Message: unit + ": " + err.Error()})
	}
}

type keyed interface{ Key() contract.RunKey }

// Write stores an event; Time is set if empty.
func (n *Notes) Write(ctx context.Context, k contract.RunKey, e record.Event) {
	now := time.Now().UTC()
	if e.Time == "" {
		e.Time = now.Format("2006-01-02T15:04:05.000Z07:00")
	}
	id := fmt.Sprintf("%s-%s", now.Format("20060102T150405.000000000"), artifact.Digest([]byte(e.Where + e.Message))[:8])
	if _, err := artifact.PutJSON(ctx, n.Store, k.Layout().Event(id), e); err != nil { // a standby follows outside of an activity, whose context has no logger
		obs.FromOr(ctx, n.Log).Warn("an event was not recorded", zap.String("event", e.Kind), zap.String("where", e.Where), obs.Err(err))
	}
}
