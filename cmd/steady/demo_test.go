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

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/record"
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
			out, err := await[contract.RunOutput](t.Context(), run, func(error) { told++ })
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
	if _, err := await[contract.RunOutput](ctx, run, func(error) {}); !errors.Is(err, context.Canceled) || run.asks != 1 {
		t.Errorf("interrupted: got %v after %d questions, want the context's error after one", err, run.asks)
	}
}

// Attempts at the same thing differ in the names of temporary files; a person wants to read of it once.
func TestTroubleKey_sameTroubleOnce(t *testing.T) {
	t.Parallel()
	write := func(file string) string {
		return troubleKey("SaveCheckpoint", "write checkpoints/"+file+"/adam_m.safetensors: no space left on device")
	}
	if a, b := write(".tmp-4151330894"), write(".tmp-2266272161"); a != b {
		t.Errorf("two attempts have the keys %q and %q, want one", a, b)
	}
	if a, b := write(".tmp-1"), troubleKey("SaveCheckpoint", "the engine is busy"); a == b {
		t.Errorf("two troubles have the key %q", a)
	}
	if a, b := troubleKey("A", "full"), troubleKey("B", "full"); a == b {
		t.Errorf("two activities have the key %q", a)
	}
}

// A run that ended well is not taken for right if what it left says otherwise.
func TestVerified_refusesWhatDoesNotAgree(t *testing.T) {
	t.Parallel()
	l := record.Layout{Run: "r", Lineage: "l0"}
	group := func(n int) record.Ledger {
		return record.Ledger{Step: n + 1, Submitted: []record.Submitted{{N: n, Problem: n, Tag: n + 1}}, Trained: []int{n}, NextGroup: n + 1}
	}
	for name, c := range map[string]struct {
		damage func(put func(string, any), remove func(string))
		want   string
	}{
		"nothing": {func(func(string, any), func(string)) {}, ""},
		"other events": {func(put func(string, any), _ func(string)) {
			put(l.Event("e"), record.Event{Kind: "replayed", Step: 2})
		}, ""},
		"a record is gone": {func(_ func(string, any), remove func(string)) { remove(l.Ledger(2)) }, "violations"},
		"a damaged record": {func(put func(string, any), _ func(string)) { put(l.Ledger(2), "x") }, "damaged"},
		"a group twice":    {func(put func(string, any), _ func(string)) { r := group(0); r.Step = 2; put(l.Ledger(2), r) }, "violations"},
		"a damaged event":  {func(put func(string, any), _ func(string)) { put(l.Event("e"), "x") }, "damaged"},
		"other bits (step)": {func(put func(string, any), _ func(string)) {
			put(l.Event("e"), record.Event{Kind: record.ReplayMismatch, Step: 2, Message: "digests"})
		}, "step 2: digests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := artifact.NewFiles(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			put := func(name string, v any) {
				if _, err := artifact.ReplaceJSON(t.Context(), store, name, v); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 3 {
				put(l.Ledger(n+1), group(n))
			}
			put(l.LedgerEnd(), record.Ledger{Step: 4, NextGroup: 3})
			c.damage(put, func(name string) {
				if err := store.Remove(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			})
			err = verified(t.Context(), store, l)
			if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
