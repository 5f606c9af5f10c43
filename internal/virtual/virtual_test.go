package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/steadyrl/steady/internal/virtual"
)

// stage plays activities by a function, and remembers when attempts began and what ended.
type stage struct {
	s     *virtual.Server
	play  func(*virtual.Attempt)
	began []string
	ended []string
}

func (s *stage) Begin(a *virtual.Attempt) {
	s.began = append(s.began, fmt.Sprintf("%s#%d at %s", a.Type, a.Number, s.s.Now()))
	s.play(a)
}

func (s *stage) Closed(e virtual.Execution) {
	s.ended = append(s.ended, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", e.ID, e.Outcome, e.Result, e.Message)))
}

// perform runs the workflow main to its end, without delays of the server.
func perform(t *testing.T, hop time.Duration, play func(*virtual.Server, *virtual.Attempt), main any, others ...any) (*stage, error) {
	t.Helper()
	st := &stage{}
	st.s = virtual.New(virtual.Options{Start: time.Unix(0, 0), Hop: hop, World: st})
	st.play = func(a *virtual.Attempt) { play(st.s, a) }
	c, err := client.NewLazyClient(client.Options{
		HostPort: "passthrough:///virtual", Namespace: virtual.Namespace, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{st.s.DialOption()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := worker.New(c, "q", worker.Options{LocalActivityWorkerOnly: true, WorkflowPanicPolicy: worker.FailWorkflow})
	w.RegisterWorkflowWithOptions(main, workflow.RegisterOptions{Name: "main"})
	for i, o := range others {
		w.RegisterWorkflowWithOptions(o, workflow.RegisterOptions{Name: fmt.Sprintf("other%d", i)})
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	st.s.Start("main", "m", "q", []byte("0"))
	err = st.s.Run(t.Context())
	return st, err
}

// act runs an activity that an attempt every second, doubled up to 4 s, may end.
func act(ctx workflow.Context, o workflow.ActivityOptions) (string, error) {
	o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 4 * time.Second, NonRetryableErrorTypes: []string{"Never"}}
	var out string
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), "A").Get(ctx, &out)
	took := workflow.Now(ctx).Sub(time.Unix(0, 0))
	if err != nil {
		if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
			return fmt.Sprintf("%s after %s", app.Type(), took), nil
		}
		if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
			return fmt.Sprintf("%s after %s", timeout.TimeoutType(), took), nil
		}
		return "", err
	}
	return fmt.Sprintf("%s after %s", out, took), nil
}

func TestServer_retriesAndTimesOutActivities(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		options workflow.ActivityOptions
		play    func(*virtual.Server, *virtual.Attempt)
		want    string
		began   int
	}{
		{"done at once", workflow.ActivityOptions{StartToCloseTimeout: time.Hour}, func(_ *virtual.Server, a *virtual.Attempt) {
			a.Take()
			a.Complete([]byte(`"ok"`))
		}, "ok after 0s", 1},
		{"after three failures: 1 + 2 + 4 s", workflow.ActivityOptions{StartToCloseTimeout: time.Hour}, func(_ *virtual.Server, a *virtual.Attempt) {
			a.Take()
			if a.Number < 4 {
				a.Fail("Some", "broken", false)
				return
			}
			a.Complete([]byte(`"ok"`))
		}, "ok after 7s", 4},
		{"final by its flag", workflow.ActivityOptions{StartToCloseTimeout: time.Hour}, func(_ *virtual.Server, a *virtual.Attempt) {
			a.Take()
			a.Fail("Some", "broken", a.Number == 2)
		}, "Some after 1s", 2},
		{"final by its type", workflow.ActivityOptions{StartToCloseTimeout: time.Hour}, func(_ *virtual.Server, a *virtual.Attempt) {
			a.Take()
			a.Fail("Never", "broken", false)
		}, "Never after 0s", 1},
		{"a worker that died is noticed by its heartbeat", workflow.ActivityOptions{StartToCloseTimeout: time.Hour, HeartbeatTimeout: 30 * time.Second}, func(s *virtual.Server, a *virtual.Attempt) {
			a.Take()
			if a.Number == 1 {
				s.After(5*time.Second, a.Lost)
				return
			}
			a.Complete([]byte(`"ok"`))
		}, "ok after 36s", 2},
		{"no one takes it", workflow.ActivityOptions{StartToCloseTimeout: time.Hour, ScheduleToStartTimeout: time.Minute}, func(*virtual.Server, *virtual.Attempt) {}, "ScheduleToStart after 1m0s", 1},
		{"taken late, it is not given up", workflow.ActivityOptions{StartToCloseTimeout: time.Hour, ScheduleToStartTimeout: time.Minute}, func(s *virtual.Server, a *virtual.Attempt) {
			s.After(59*time.Second, a.Take)
			s.After(90*time.Second, func() { a.Complete([]byte(`"ok"`)) })
		}, "ok after 1m30s", 1},
		{"too slow once", workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second}, func(s *virtual.Server, a *virtual.Attempt) {
			a.Take()
			s.After(time.Duration(15/a.Number)*time.Second, func() { a.Complete([]byte(`"ok"`)) }) // the first one comes too late
		}, "ok after 18s", 2},
		{"all attempts together", workflow.ActivityOptions{StartToCloseTimeout: time.Hour, ScheduleToCloseTimeout: 5 * time.Second}, func(_ *virtual.Server, a *virtual.Attempt) {
			a.Take()
			a.Fail("Some", "broken", false)
		}, "Some after 3s", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st, err := perform(t, 0, tt.play, func(ctx workflow.Context, _ int) (string, error) { return act(ctx, tt.options) })
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{fmt.Sprintf("m completed %q", tt.want)}; !cmp.Equal(st.ended, want) {
				t.Errorf("ended %v, want %v", st.ended, want)
			}
			if len(st.began) != tt.began {
				t.Errorf("attempts %v, want %d", st.began, tt.began)
			}
		})
	}
}

// A child outlives a parent that continues as new, and its signal reaches the run that follows; a cancel reaches a child
// and its activity; a signal to no one fails.
func TestServer_carriesChildrenSignalsAndCancels(t *testing.T) {
	t.Parallel()
	child := func(ctx workflow.Context, mode string) (string, error) {
		if mode == "wait" {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour, HeartbeatTimeout: 30 * time.Second, WaitForCancellation: true})
			err := workflow.ExecuteActivity(ctx, "A").Get(ctx, nil)
			return "", err
		}
		if err := workflow.Sleep(ctx, 10*time.Second); err != nil {
			return "", err
		}
		return "told", workflow.SignalExternalWorkflow(ctx, "m", "", "news", mode).Get(ctx, nil)
	}
	parent := func(ctx workflow.Context, round int) (string, error) {
		if round == 0 {
			for _, id := range []string{"c1", "c2"} {
				mode := map[string]string{"c1": "hello", "c2": "wait"}[id]
				o := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, ParentClosePolicy: 2}) // abandon
				if err := workflow.ExecuteChildWorkflow(o, "other0", mode).GetChildWorkflowExecution().Get(ctx, nil); err != nil {
					return "", err
				}
			}
			return "", workflow.NewContinueAsNewError(ctx, "main", 1)
		}
		var news string
		workflow.GetSignalChannel(ctx, "news").Receive(ctx, &news)
		at := workflow.Now(ctx).Sub(time.Unix(0, 0))
		if err := workflow.RequestCancelExternalWorkflow(ctx, "c2", "").Get(ctx, nil); err != nil {
			return "", err
		}
		if err := workflow.SignalExternalWorkflow(ctx, "nobody", "", "x", nil).Get(ctx, nil); err == nil {
			return "", fmt.Errorf("a signal to no one succeeded")
		}
		if err := workflow.RequestCancelExternalWorkflow(ctx, "nobody", "").Get(ctx, nil); err == nil {
			return "", fmt.Errorf("a cancel of no one succeeded")
		}
		return fmt.Sprintf("%s at %s", news, at), nil
	}
	st, err := perform(t, 0, func(_ *virtual.Server, a *virtual.Attempt) { a.Take() }, parent, child)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"m continued", `c1 completed "told"`, `m completed "hello at 10s"`, "c2 canceled"}
	if diff := cmp.Diff(want, st.ended); diff != "" {
		t.Error(diff)
	}
	if now := st.s.Now(); now != 20*time.Second { // a third of the heartbeat later
		t.Errorf("the activity of c2 ended at %s", now)
	}
}

// Every message takes a hop: here the first task, the activity's, its result's.
func TestServer_aMessageTakesAHop(t *testing.T) {
	t.Parallel()
	st, err := perform(t, time.Second, func(_ *virtual.Server, a *virtual.Attempt) {
		a.Take()
		a.Complete([]byte(`"ok"`))
	}, func(ctx workflow.Context, _ int) (string, error) {
		return act(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour})
	})
	if err != nil || !cmp.Equal(st.ended, []string{`m completed "ok after 3s"`}) {
		t.Errorf("%v, %v", st.ended, err)
	}
	if tasks, events := st.s.Counts(); tasks != 2 || events != 11 {
		t.Errorf("%d tasks, %d events", tasks, events)
	}
}

func TestServer_saysWhatIsWrong(t *testing.T) {
	t.Parallel()
	nothing := func(*virtual.Server, *virtual.Attempt) {}
	tests := []struct {
		name, says string
		main       any
	}{
		{"a workflow that waits for ever", "wait for what never comes: main m after", func(ctx workflow.Context, _ int) error {
			workflow.GetSignalChannel(ctx, "never").Receive(ctx, nil)
			return nil
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := perform(t, 0, nothing, tt.main); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v", err)
			}
		})
	}
	st, err := perform(t, 0, nothing, func(workflow.Context, int) error { panic("oh") })
	if err != nil || len(st.ended) != 1 || !strings.Contains(st.ended[0], "m failed") || !strings.Contains(st.ended[0], "oh") {
		t.Errorf("a panic: %v, %v", st.ended, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := virtual.New(virtual.Options{World: &stage{}})
	s.Start("main", "m", "q", []byte("0"))
	if err := s.Run(ctx); err == nil {
		t.Error("a server went on after its context")
	}
}
