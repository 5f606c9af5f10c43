package contract

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"
)

// Activity is a typed reference: the name, the request and the result of one activity. A call or a
// registration that does not fit is a compile error, and workflows need not import the implementation.
type Activity[Req, Res any] struct{ Name string }

// Start schedules the activity with the options of ctx.
func (a Activity[Req, Res]) Start(ctx workflow.Context, req Req) workflow.Future {
	return workflow.ExecuteActivity(ctx, a.Name, req)
}

// Do schedules the activity and waits for its result.
func (a Activity[Req, Res]) Do(ctx workflow.Context, req Req) (Res, error) {
	var res Res
	err := a.Start(ctx, req).Get(ctx, &res)
	return res, err
}

// Registry is the part of a worker that Register needs.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register binds the implementation.
func (a Activity[Req, Res]) Register(r Registry, fn func(context.Context, Req) (Res, error)) {
	r.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: a.Name})
}
