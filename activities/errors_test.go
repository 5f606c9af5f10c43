package activities

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/artifact"
	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/fault"
)

var key = contract.RunKey{Run: "r", Lineage: "l0"}

type request struct{ contract.RunKey }

func newNotes(t *testing.T) *Notes {
	t.Helper()
	s, err := artifact.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Notes{Store: s, Host: "h"}
}

// attempt runs a body as the first attempt of an activity.
func attempt(t *testing.T, body func(context.Context, request, *Beat) (int, error)) (int, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(guard(newNotes(t), body), activity.RegisterOptions{Name: "Body"})
	val, err := env.ExecuteActivity("Body", request{key})
	if err != nil {
		return 0, err
	}
	var n int
	return n, val.Get(&n)
}

// While the store as a whole is away, what an activity says of single files is not believed; a cancellation is.
func TestGuard_noFaultIsFinalWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, kind := range fault.Kinds() {
		notes := newNotes(t)
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		root := notes.Store.(*artifact.Files).Root() //nolint:forcetypeassert // of newNotes
		body := func(context.Context, request, *Beat) (int, error) {
			return 0, errors.Join(os.Rename(root, root+".away"), fault.New(kind, "op.Op", "no such file"))
		}
		env.RegisterActivityWithOptions(guard(notes, body), activity.RegisterOptions{Name: "Body"})
		_, err := env.ExecuteActivity("Body", request{key})
		e, ok := errors.AsType[*temporal.ApplicationError](err)
		if !ok || e.NonRetryable() || !strings.Contains(e.Message(), "no such file") || kind == fault.NotFound && e.Type() != string(fault.Busy) {
			t.Errorf("%s: %v, want a failure that is tried again and says what was seen", kind, err)
		}
	}
	if err := doubt(nil, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancellation became %v", err)
	}
}

func TestGuard_everyKindOfFault(t *testing.T) {
	t.Parallel()
	retried := map[fault.Kind]bool{fault.Busy: true, fault.Lost: true, fault.Infrastructure: true, fault.Internal: true}
	for _, kind := range fault.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			_, err := attempt(t, func(context.Context, request, *Beat) (int, error) {
				return 0, fmt.Errorf("outer: %w", fault.New(kind, "op.Op", "because %w", errors.New("deep")).WithHint("do that"))
			})
			e, ok := errors.AsType[*temporal.ApplicationError](err)
			if !ok {
				t.Fatalf("got %T %v, want an application error", err, err)
			}
			if e.Type() != string(kind) || e.NonRetryable() == retried[kind] {
				t.Errorf("got type %q, final %v; want %q, %v", e.Type(), e.NonRetryable(), kind, !retried[kind])
			}
			if got, want := e.Message(), "outer: op.Op: because deep — try: do that"; got != want {
				t.Errorf("got message %q, want %q", got, want)
			}
			var d Details
			if err := e.Details(&d); err != nil || d != (Details{Op: "op.Op", Hint: "do that"}) {
				t.Errorf("got details %+v, %v; want op and hint", d, err)
			}
			if got, want := e.NextRetryDelay() > 0, kind == fault.Busy; got != want {
				t.Errorf("got next retry delay %v, want one only for Busy", e.NextRetryDelay())
			}
			if got, want := e.Category() == temporal.ApplicationErrorCategoryBenign, kind == fault.Stale; got != want {
				t.Errorf("got benign %v, want %v", got, want)
			}
		})
	}
}

func TestGuard_otherEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		body func(context.Context, request, *Beat) (int, error)
		kind fault.Kind
		text string
	}{
		{"plain error", func(context.Context, request, *Beat) (int, error) { return 0, errors.New("odd") }, fault.Internal, "odd"},
		{"panic", func(context.Context, request, *Beat) (int, error) { panic("ouch") }, fault.Internal, "panic: ouch"},
		{"deadline of something else", func(context.Context, request, *Beat) (int, error) { return 0, context.DeadlineExceeded }, fault.Internal, "deadline"},
		{"an application error stays", func(context.Context, request, *Beat) (int, error) {
			return 0, temporal.NewNonRetryableApplicationError("as it is", "Mine", nil)
		}, "Mine", "as it is"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := attempt(t, tt.body)
			e, ok := errors.AsType[*temporal.ApplicationError](err)
			if !ok || e.Type() != string(tt.kind) || !strings.Contains(e.Message(), tt.text) {
				t.Errorf("got %T %v, want type %s with %q", err, err, tt.kind, tt.text)
			}
		})
	}
	t.Run("result and heartbeats", func(t *testing.T) {
		t.Parallel()
		got, err := attempt(t, func(_ context.Context, q request, b *Beat) (int, error) {
			for i := range 3 {
				b.Say("%s %d", q.Run, i)
			}
			return 7, nil
		})
		if got != 7 || err != nil {
			t.Errorf("got %d, %v; want 7", got, err)
		}
	})
}

func TestToTemporal_cancellationPasses(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for name, tt := range map[string]struct {
		ctx context.Context
		err error
	}{
		"nothing":          {t.Context(), nil},
		"cancelled":        {cancelled, context.Canceled},
		"wrapped":          {cancelled, fault.New(fault.Internal, "op", "read: %w", context.Canceled)},
		"past the timeout": {expired, fmt.Errorf("read: %w", context.DeadlineExceeded)},
	} {
		if got := toTemporal(tt.ctx, tt.err); !errors.Is(got, tt.err) || got != tt.err { //nolint:errorlint // the same value
			t.Errorf("%s: got %v, want %v unchanged", name, got, tt.err)
		}
	}
}

// TestGuard_lastAttempt: what may be a bug is final at the fifth attempt, and every attempt after the first is noted.
func TestGuard_lastAttempt(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fault.Kind]int{fault.Internal: lastAttempt, fault.Infrastructure: lastAttempt, fault.Busy: 8, fault.Lost: 8, fault.Invalid: 1, fault.Stale: 1} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestWorkflowEnvironment()
			notes := newNotes(t)
			runs := 0
			env.RegisterActivityWithOptions(guard(notes, func(context.Context, request, *Beat) (int, error) {
				runs++
				return 0, fault.New(kind, "op", "again")
			}), activity.RegisterOptions{Name: "Body"})
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
					StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 8},
				})
				return workflow.ExecuteActivity(ctx, "Body", request{key}).Get(ctx, nil)
			})
			e, ok := errors.AsType[*temporal.ApplicationError](env.GetWorkflowError())
			if !ok || e.Type() != string(kind) || runs != want {
				t.Errorf("got %d attempts and %v, want %d and type %s", runs, env.GetWorkflowError(), want, kind)
			}
			names, err := notes.Store.List(t.Context(), key.Layout().Events())
			if err != nil || len(names) != want-1 {
				t.Errorf("got %d notes, %v; want one for each of %d further attempts", len(names), err, want-1)
			}
		})
	}
}

func TestBusyDelay_growsToTenSeconds(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for attempt := int32(1); attempt < 40; attempt++ {
		d := busyDelay(attempt)
		if d < last || d <= 0 || d > 10*time.Second {
			t.Errorf("attempt %d: got %v after %v, want it growing to 10 s", attempt, d, last)
		}
		last = d
	}
	if last != 10*time.Second {
		t.Errorf("got %v in the end, want 10 s", last)
	}
}

// What runs when the device is lost ends as Lost, whatever it makes of it: on another worker it may go on. What had finished stays finished.
func TestGuard_workOfALostDeviceIsLost(t *testing.T) {
	t.Parallel()
	gone := fault.New(fault.Lost, "gpu", "GPU-1: Xid 79")
	for name, tt := range map[string]struct {
		result func(ctx context.Context) error
		want   fault.Kind
	}{
		"waits":         {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, fault.Lost},
		"sees nonsense": {func(ctx context.Context) error { <-ctx.Done(); return fault.New(fault.Numeric, "step", "not finite") }, fault.Lost},
		"had finished":  {func(ctx context.Context) error { <-ctx.Done(); return nil }, ""},
	} {
		device, lose := context.WithCancelCause(t.Context())
		notes := newNotes(t)
		notes.Device = device
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(guard(notes, func(ctx context.Context, _ request, _ *Beat) (int, error) {
			lose(gone)
			return 0, tt.result(ctx)
		}), activity.RegisterOptions{Name: "Body"})
		_, err := env.ExecuteActivity("Body", request{key})
		if e, ok := errors.AsType[*temporal.ApplicationError](err); ok != (tt.want != "") || ok && (e.Type() != string(tt.want) || e.NonRetryable() || !strings.Contains(e.Message(), "Xid 79")) {
			t.Errorf("%s: got %v, want %q that is tried again", name, err, tt.want)
		}
	}
}
