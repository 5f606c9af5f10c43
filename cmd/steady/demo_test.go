package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
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
