// Package span lets code say where its time goes, without knowing who listens.
//
// A Tracer travels in the context. Without one every function here does nothing, at the cost of one look into the context. The
// package is a leaf: package trace implements Tracer with OpenTelemetry.
package span

import (
	"context"
	"time"
)

// Attr is a fact about a span. Value is a string, bool, int, int64 or float64.
type Attr struct {
	Key   string
	Value any
}

// End ends a span: with its error, which may be nil, and with what became known meanwhile.
type End func(err error, attrs ...Attr)

// Step names a step of a lineage of a run: what one trace is of.
type Step struct {
	Run, Lineage string
	N            int
}

// Tracer makes spans.
type Tracer interface {
	// Start begins a span below the one of ctx.
	Start(ctx context.Context, name string, attrs ...Attr) (context.Context, End)
	// Enter puts the spans that begin below the returned context into the trace of a step, whichever process they are in.
	Enter(ctx context.Context, s Step) context.Context
	// Whole tells of the step itself, once, when it is over: the span that the others of its trace lie below.
	Whole(s Step, began, ended time.Time, attrs ...Attr)
	// Link ties the span of ctx to a step of another trace.
	Link(ctx context.Context, s Step)
}

type key struct{}

// With returns a context whose spans t makes. A nil t changes nothing.
func With(ctx context.Context, t Tracer) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, t)
}

// Start begins a span below the one of ctx, if there is a tracer.
func Start(ctx context.Context, name string, attrs ...Attr) (context.Context, End) {
	t, ok := ctx.Value(key{}).(Tracer)
	if !ok {
		return ctx, nothing
	}
	return t.Start(ctx, name, attrs...)
}

func nothing(error, ...Attr) {}
