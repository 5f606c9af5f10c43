package activities

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/record"
	"github.com/steadyrl/steady/internal/span"
)

// observe prepares what tells of an attempt of an activity: a logger in the context that has the chain of ids, a span in the trace of
// the step, and the metrics. The returned function tells of the end.
func (n *Notes) observe(ctx context.Context, req any) (context.Context, func(error)) {
	info := activity.GetInfo(ctx)
	chain, name, role, began := contract.ChainOf(req), info.ActivityType.Name, contract.RoleOf(info.TaskQueue), time.Now()
	log := obs.Quiet()
	if n.Log != nil {
		log = n.Log
	}
	log = log.With(obs.Chain(chain)...).With(zap.String("activity", name), zap.Int32("attempt", info.Attempt), zap.String("role", role))
	ctx = obs.Into(ctx, log)
	if role == contract.RoleControl {
		n.Metrics.Seen(chain.Run)
	}
	counted := n.Metrics.Activity(name, int(info.Attempt))
	ctx, ended := n.trace(ctx, chain, name, role, int(info.Attempt))
	log.Debug("an activity begins")
	return ctx, func(err error) {
		took := time.Since(began)
		ended(err)
		switch {
		case err == nil:
			counted("")
			log.Debug("an activity is done", zap.Duration("took", took))
		case errors.Is(err, context.Canceled):
			counted("")
			log.Debug("an activity was cancelled", zap.Duration("took", took))
		default:
			kind := fault.KindOf(err)
			counted(string(kind))
			tell := log.Warn
			if kind == fault.Stale { // of a run that is closed, or a trainer that was replaced: expected
				tell = log.Info
			}
			tell("an activity failed", obs.Err(err), zap.Duration("took", took))
		}
	}
}

// trace begins the span of an attempt, in the trace of its step if it has one.
func (n *Notes) trace(ctx context.Context, c contract.Chain, name, role string, attempt int) (context.Context, span.End) {
	if n.Tracer == nil {
		return ctx, func(error, ...span.Attr) {}
	}
	ctx = span.With(ctx, n.Tracer)
	if c.Step != nil {
		ctx = n.Tracer.Enter(ctx, stepOf(c.RunKey, *c.Step))
	}
	attrs := []span.Attr{{Key: "run", Value: c.Run}, {Key: "lineage", Value: c.Lineage}, {Key: "attempt", Value: attempt}, {Key: "role", Value: role}, {Key: "worker", Value: n.Host}}
	if c.Step != nil {
		attrs = append(attrs, span.Attr{Key: "step", Value: *c.Step})
	}
	if c.Group != nil {
		attrs = append(attrs, span.Attr{Key: "group", Value: *c.Group})
	}
	if c.Unit != "" {
		attrs = append(attrs, span.Attr{Key: "unit", Value: c.Unit})
	}
	return n.Tracer.Start(ctx, name, attrs...)
}

func stepOf(k contract.RunKey, n int) span.Step {
	return span.Step{Run: k.Run, Lineage: k.Lineage, N: n}
}

// metrics are those of the process; nil, which counts nothing, for notes that are nil.
func (n *Notes) metrics() *metrics.Set {
	if n == nil {
		return nil
	}
	return n.Metrics
}

// link ties the span of ctx, which is of the sealed batch of a step, to the steps whose traces hold the batch's groups.
func (n *Notes) link(ctx context.Context, k contract.RunKey, step int, groups []record.Group) {
	if n == nil || n.Tracer == nil {
		return
	}
	told := map[int]bool{step: true}
	for _, g := range groups {
		if !told[g.Tag] {
			told[g.Tag] = true
			n.Tracer.Link(ctx, stepOf(k, g.Tag))
		}
	}
}

// splitOf names what a unit is of.
func splitOf(unit string) string {
	if strings.HasPrefix(unit, "groups/") {
		return "train"
	}
	return "dev"
}

// published tells that the weights of a step are live: the step is over.
func (n *Notes) published(q contract.PublishRequest) {
	n.metrics().Published(q.Run, q.Version)
	if n == nil || n.Tracer == nil || q.Began.IsZero() {
		return
	}
	n.Tracer.Whole(stepOf(q.RunKey, q.Version), q.Began, time.Now(),
		span.Attr{Key: "run", Value: q.Run}, span.Attr{Key: "lineage", Value: q.Lineage}, span.Attr{Key: "step", Value: q.Version})
}
