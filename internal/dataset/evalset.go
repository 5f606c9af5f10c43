package dataset

import (
	"fmt"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/judge"
)

// EvalProblem is a problem with its hidden tests, as an evaluation needs it.
type EvalProblem struct {
	Problem
	Tests []judge.Test
	// FnName is set for problems that call a function instead of reading standard input; these are counted, not run.
	FnName string
}

// EvalSet yields problems in a fixed order. With an error that is a *RowError (errors.AsType) one row is no usable problem and the next
// row follows; the problem beside it has only its ID. Any other error is the last thing that is yielded.
//
// Of a problem with a FnName, Tests is empty and HiddenTests counts what is stored. Index counts the problems that were yielded
// without an error, from 0. A set may be ranged over more than once, but not concurrently.
type EvalSet func(yield func(EvalProblem, error) bool)

// RowError says why a row of an EvalSet is no usable problem.
type RowError struct {
	ID       string // of the row, as a problem would have it
	Reason   Reason
	Evidence string // what the rule saw, for a person
}

// Error returns the id, the reason and the evidence.
func (e *RowError) Error() string { return fmt.Sprintf("%s: %s: %s", e.ID, e.Reason, e.Evidence) }

// Unwrap gives the error its kind, Invalid.
func (e *RowError) Unwrap() error { return fault.New(fault.Invalid, "", "%s", e.Evidence) }

// Reasons that only an EvalSet has; the others are BadStatement, BadTests, UnequalTests, NoTests, CellTooLarge and DuplicatePlatformID.
const (
	TooManyTests  Reason = "too_many_tests"  // more than MaxTests
	TestsTooLarge Reason = "tests_too_large" // inputs and outputs have more bytes than MaxTestBytes
	BadDate       Reason = "bad_date"        // a date is needed and the row has none
)

// UnknownFn is the FnName of a problem that calls a function of which the row does not give the name.
const UnknownFn = "?"
