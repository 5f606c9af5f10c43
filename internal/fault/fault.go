// Package fault is the one vocabulary of failures in steady.
//
// Domain code returns *Error values of a Kind. Only activities/errors.go knows how a kind maps to
// Temporal, and only cmd/steady knows exit codes. A result that has a reason (a wrong answer, a
// trajectory cut at the length limit) is data, not an error, and never passes through here.
// Cancellation is not a kind: a context's error is returned as it is.
//
// The package imports nothing of this module.
package fault

import (
	"errors"
	"fmt"
)

// Kind classifies an error by what its caller can do about it.
type Kind string

// The kinds. The strings are part of the contract with stored histories: never rename one.
const (
	// Invalid means that this input can never work: bad configuration, a broken file, a wrong shape.
	Invalid Kind = "Invalid"
	// NotFound means that a named artifact is missing.
	NotFound Kind = "NotFound"
	// Corrupt means that bytes disagree with their digest, magic number or version.
	Corrupt Kind = "Corrupt"
	// Stale means that the world moved on: an old policy version, a fenced trainer, a closed run.
	Stale Kind = "Stale"
	// Numeric means a value that is not finite or out of its agreed range.
	Numeric Kind = "Numeric"
	// Exhausted means too big for this resource: disk full, memory, context length.
	Exhausted Kind = "Exhausted"
	// Busy means try again later.
	Busy Kind = "Busy"
	// Lost means that process or device state is gone; another host may go on.
	Lost Kind = "Lost"
	// Infrastructure means that a service around untrusted code failed (no sandbox, no
	// interpreter). It is retried and reported, and never becomes a reward.
	Infrastructure Kind = "Infrastructure"
	// Internal is everything unclassified, and every recovered panic.
	Internal Kind = "Internal"
)

// Kinds lists every kind once, in the order of the constants.
func Kinds() []Kind {
	return []Kind{Invalid, NotFound, Corrupt, Stale, Numeric, Exhausted, Busy, Lost, Infrastructure, Internal}
}

// Retryable reports whether the same call may succeed later without any change to its input.
func (k Kind) Retryable() bool {
	switch k {
	case Busy, Lost, Infrastructure, Internal:
		return true
	case Invalid, NotFound, Corrupt, Stale, Numeric, Exhausted:
		return false
	}
	return false
}

// Error is a failure with its kind, the operation that met it, and a hint for a person.
type Error struct {
	Kind Kind
	Op   string // package.Function, for example "artifact.Put"
	Hint string // what a person can do; may be empty
	Err  error  // cause; may be nil when Op says it all
}

// Error returns "op: cause".
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Op
	case e.Op == "":
		return e.Err.Error()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error of kind k; format and args make the cause as in fmt.Errorf (with %w).
func New(k Kind, op, format string, args ...any) *Error {
	return &Error{Kind: k, Op: op, Err: fmt.Errorf(format, args...)}
}

// WithHint returns e after setting its hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// KindOf returns the kind of the outermost *Error in err's chain, Internal for any other error,
// and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// Is reports whether err's outermost *Error has kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// HintOf returns the first non-empty hint of the *Error values in err's chain, outermost first.
func HintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
