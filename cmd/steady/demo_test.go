package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/steadyrl/steady/internal/contract"
)

// However a run ends, a person reads its name, how it ended and what to do, in the words of no library.
func TestRunError_everyEndHasWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		code int
		want string
	}{
		"terminated": {&temporal.TerminatedError{}, exitRunFailed, "the run r was terminated"},
		"timed out":  {temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), exitRunFailed, "the run r ran out of the time"},
		"cancelled":  {temporal.NewCanceledError(), exitInterrupted, "the run r was cancelled"},
		"failed":     {temporal.NewApplicationError("no interpreter", "Infrastructure"), exitRunFailed, "the run r failed: no interpreter (Infrastructure)"},
		"deleted":    {serviceerror.NewNotFound("workflow not found for ID: r"), exitRunFailed, "the run r is gone"},
		"other":      {errors.New("cause"), exitRunFailed, "the run r failed: cause"},
	} {
		err := runError(t.Context(), "r", c.err)
		e, ok := errors.AsType[*exitError](err)
		text := explained(err)
		if !ok || e.code != c.code || !strings.Contains(text, c.want) || !strings.Contains(text, "try: ") || !strings.Contains(text, "init_run=r") {
			t.Errorf("%s: %swant status %d, %q and a way to go on", name, text, c.code, c.want)
		}
		for _, raw := range []string{"workflow execution error", "runID", "not found for ID"} {
			if strings.Contains(text, raw) {
				t.Errorf("%s: %s holds %q", name, text, raw)
			}
		}
	}
	if err := runError(t.Context(), "r", nil); err != nil {
		t.Errorf("a run that ended well: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runError(ctx, "r", ctx.Err()); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, want the context's error", err)
	}
}

// answers is a run whose Get gives one error after the other, and then a result.
type answers struct {
	client.WorkflowRun
	errs []error
	asks int
}

func (a *answers) Get(_ context.Context, out any) error {
	a.asks++
	if a.asks <= len(a.errs) {
		return a.errs[a.asks-1]
	}
	out.(*contract.RunOutput).Step = 6 //nolint:forcetypeassert // what await passes
	return nil
}

// A server that does not answer for a while has not ended the run; only the run's own end is one.
func TestAwait_asksAgainWhenTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"deadline":       {serviceerror.NewDeadlineExceeded("context deadline exceeded"), true},
		"bare deadline":  {fmt.Errorf("poll: %w", context.DeadlineExceeded), true},
		"away":           {serviceerror.NewUnavailable("connection refused"), true},
		"busy":           {serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "slow down"), true},
		"call cut":       {serviceerror.NewCanceled("stopping"), true},
		"deleted":        {serviceerror.NewNotFound("workflow not found for ID: r"), false},
		"failed":         {temporal.NewApplicationError("no interpreter", "Infrastructure"), false},
		"run timed out":  {temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), false},
		"run terminated": {&temporal.TerminatedError{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, told := &answers{errs: []error{c.err}}, 0
			out, err := await(t.Context(), run, func(error) { told++ })
			switch {
			case c.again && (err != nil || out.Step != 6 || told != 1):
				t.Errorf("got %+v, %v after %d reports; want to ask again", out, err, told)
			case !c.again && (!errors.Is(err, c.err) || run.asks != 1 || told != 0):
				t.Errorf("got %v after %d questions and %d reports; want the run's own end", err, run.asks, told)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	run := &answers{errs: []error{context.Canceled}}
	if _, err := await(ctx, run, func(error) {}); !errors.Is(err, context.Canceled) || run.asks != 1 {
		t.Errorf("interrupted: got %v after %d questions, want the context's error after one", err, run.asks)
	}
}
