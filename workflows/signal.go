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

// request reads the input of an update. Without input it is the zero value. Errors: what cannot be read, a second input, and what is doubtful.
func request[T interface{ Doubt() error }](update string, raw, more converter.RawValue) (T, error) {
	v, err := decode[T](update, raw)
	if err == nil && v.Doubt() != nil {
		err = fmt.Errorf("%s: %w", update, v.Doubt())
	}
	if err == nil && more.Payload() != nil {
		err = fmt.Errorf("%s: there is more than one input", update)
	}
	return v, err
}

// decode reads the input of a message, which may be none. An error names the message, and what is wrong with the input of a person's command.
func decode[T any](name string, raw converter.RawValue) (v T, err error) {
	p := raw.Payload()
	if p == nil {
		return v, nil
	}
	if err := converter.GetDefaultDataConverter().FromPayload(p, &v); err != nil {
		var zero T
		// A request of the contract knows what is wrong with it; the converter's error has only its text, among others.
		if q, ok := any(v).(interface{ Doubt() error }); ok && q.Doubt() != nil {
			return zero, fmt.Errorf("%s: %w", name, q.Doubt())
		}
		return zero, fmt.Errorf("%s has input that cannot be read: %.100q", name, p.GetData())
	}
	return v, nil
}
