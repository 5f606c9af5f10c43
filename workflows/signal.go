package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// receive takes a signal from c. A signal without input is the zero value. Input that is no T is an error; the channel's own
// Receive would drop it and block its coroutine until the next one comes.
func receive[T any](ctx workflow.Context, c workflow.ReceiveChannel) (T, error) {
	var raw converter.RawValue
	c.Receive(ctx, &raw)
	return decode[T](c.Name(), raw)
}

// drain hands on, as receive, every signal that has come so far.
func drain[T any](c workflow.ReceiveChannel, apply func(T, error)) {
	for raw := (converter.RawValue{}); c.ReceiveAsync(&raw); raw = (converter.RawValue{}) {
		apply(decode[T](c.Name(), raw))
	}
}

func decode[T any](signal string, raw converter.RawValue) (v T, err error) {
	p := raw.Payload()
	if p == nil {
		return v, nil
	}
	if err := converter.GetDefaultDataConverter().FromPayload(p, &v); err != nil {
		var zero T
		return zero, fmt.Errorf("the signal %s has input that cannot be read: %.100q", signal, p.GetData())
	}
	return v, nil
}
