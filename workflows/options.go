package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

// nonRetryable lists the kinds that stop a retry policy, so that a worker that forgets to mark an error as
// final is stopped all the same.
func nonRetryable() []string {
	var kinds []string
	for _, k := range fault.Kinds() {
		if !k.Retryable() {
			kinds = append(kinds, string(k))
		}
	}
	return kinds
}

func retry() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:        500 * time.Millisecond,
		BackoffCoefficient:     2,
		MaximumInterval:        20 * time.Second,
		NonRetryableErrorTypes: nonRetryable(),
	}
}

// class returns ctx with the options of one class of activities: a queue, a start-to-close time-out, the
// heartbeat of the run, and a summary for the timeline of the UI. Attempts are not limited: a dead
// worker costs as many as it likes, and what cannot be cured by trying again ends by its kind.
func class(ctx workflow.Context, queue string, startToClose time.Duration, t contract.Timeouts, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           queue,
		StartToCloseTimeout: startToClose,
		HeartbeatTimeout:    t.Heartbeat,
		WaitForCancellation: true,
		RetryPolicy:         retry(),
		Summary:             summary,
	})
}

func control(ctx workflow.Context, t contract.Timeouts, summary string) workflow.Context {
	return class(ctx, contract.QueueControl, t.Control, t, summary)
}

// onHost is the class of activities on an acquired trainer's own queue: a host that does not take the task
// in time is lost, and the time-out comes back to the loop. So does the silence of one that had taken it: another
// attempt on the queue of a dead host would wait for that time-out too, and a host that is back can be acquired again.
func onHost(ctx workflow.Context, trainer contract.Trainer, t contract.Timeouts, summary string) workflow.Context {
	ctx = class(ctx, trainer.Queue, t.Update, t, summary)
	o := workflow.GetActivityOptions(ctx)
	o.ScheduleToStartTimeout = t.TrainerLost
	o.RetryPolicy.NonRetryableErrorTypes = append(o.RetryPolicy.NonRetryableErrorTypes, heartbeatTimeout)
	return workflow.WithActivityOptions(ctx, o)
}

// heartbeatTimeout is the server's name of that failure in a retry policy.
const heartbeatTimeout = "TemporalTimeout:Heartbeat"

// offer is the class of an acquisition that is offered to the standbys of a run: one try, taken at once or not at all.
func offer(ctx workflow.Context, run string, t contract.Timeouts) workflow.Context {
	ctx = class(ctx, contract.StandbyQueue(run), offerToClose, t, "acquire a standby")
	o := workflow.GetActivityOptions(ctx)
	o.ScheduleToStartTimeout = offerToStart
	o.RetryPolicy.MaximumAttempts = 1
	return workflow.WithActivityOptions(ctx, o)
}

// A standby waits in a poll, so it takes an offer within milliseconds; without one each recovery takes this much longer.
const (
	offerToStart = 2 * time.Second
	offerToClose = 15 * time.Second
)

// bounded returns the options of an activity that must not hold back for ever what comes after it: it is given up when no worker takes it for
// `wait`, and after a number of attempts. It has no bound from schedule to close: the SDK compares that with the worker's time of day, so that
// a worker whose clock is ahead of the server's would never begin.
func bounded(ctx workflow.Context, wait time.Duration, attempts int32) workflow.Context {
	o := workflow.GetActivityOptions(ctx)
	o.ScheduleToStartTimeout = wait
	o.RetryPolicy.MaximumAttempts = attempts
	return workflow.WithActivityOptions(ctx, o)
}

// bootstrap are the time-outs of the one activity that runs before the configuration is known.
func bootstrap() contract.Timeouts {
	return contract.Timeouts{Control: time.Minute, Heartbeat: 10 * time.Second}
}

// kindOf returns the fault kind that an activity or child workflow failed with; time-outs are Lost.
func kindOf(err error) fault.Kind {
	if err == nil {
		return ""
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		for _, k := range fault.Kinds() {
			if app.Type() == string(k) {
				return k
			}
		}
		return fault.Internal
	}
	if _, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		return fault.Lost
	}
	return fault.KindOf(err)
}

// message returns the innermost text of a failure, which is what a person needs first.
func message(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return err.Error()
}
