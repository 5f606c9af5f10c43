package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// clock is a time that passes only in pauses.
type clock struct {
	now    time.Time
	pauses []time.Duration
	then   func(n int) error // called after a pause, with the number of pauses so far
}

func (c *clock) sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	c.pauses = append(c.pauses, d)
	if c.then != nil {
		if err := c.then(len(c.pauses)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *clock) connector(log *zap.Logger, dial func(context.Context, client.Options) (client.Client, error)) connector {
	return connector{dial: dial, sleep: c.sleep, now: func() time.Time { return c.now }, log: log}
}

func TestConnect_waitsForAServerThatIsNotUp(t *testing.T) {
	t.Parallel()
	down := serviceerror.NewUnavailable("connection refused")
	for name, c := range map[string]struct {
		errs   []error // of the attempts; the last holds for ever, nil is a connection
		wait   time.Duration
		pauses []time.Duration
		says   string // with exit status 3; empty: it connects
		hint   string // empty for that of a server that is down
	}{
		"up at once":     {errs: []error{nil}, wait: time.Minute},
		"up later":       {errs: []error{down, down, down, down, down, down, nil}, wait: 5 * time.Minute, pauses: inSeconds(1, 2, 4, 8, 15, 15)},
		"slow at first":  {errs: []error{serviceerror.NewDeadlineExceeded("slow"), context.DeadlineExceeded, nil}, wait: time.Minute, pauses: inSeconds(1, 2)},
		"never up":       {errs: []error{down}, wait: 20 * time.Second, pauses: inSeconds(1, 2, 4, 8, 5), says: "does not answer, waited for 20s"},
		"no wait":        {errs: []error{down, nil}, says: "does not answer: "},
		"not allowed":    {errs: []error{serviceerror.NewPermissionDenied("no", ""), nil}, wait: time.Minute, says: "does not accept who we are: no", hint: "check TEMPORAL_API_KEY"},
		"no name space":  {errs: []error{down, serviceerror.NewNamespaceNotFound("x"), nil}, wait: time.Minute, pauses: inSeconds(1), says: "x"},
		"a wrong option": {errs: []error{errors.New("bad option"), nil}, wait: time.Minute, says: "bad option"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, lines := observer.New(zap.InfoLevel)
			var k clock
			dials := 0
			n := k.connector(zap.New(core), func(context.Context, client.Options) (client.Client, error) {
				err := c.errs[min(dials, len(c.errs)-1)]
				dials++
				if err != nil {
					return nil, err
				}
				return client.NewLazyClient(client.Options{})
			})
			got, err := n.connect(t.Context(), client.Options{HostPort: "host:1"}, c.wait)
			if (got != nil) != (c.says == "") {
				t.Fatalf("client %v, error %v", got, err)
			}
			if !slices.Equal(k.pauses, c.pauses) || dials != len(c.pauses)+1 {
				t.Errorf("%d attempts, pauses %v, want %v", dials, k.pauses, c.pauses)
			}
			if lines.Len() != len(c.pauses) {
				t.Errorf("%d lines in the log for %d pauses", lines.Len(), len(c.pauses))
			}
			for _, l := range lines.All() {
				if m := l.ContextMap(); l.Message != "waiting for the Temporal server" || m["address"] != "host:1" || m["gives_up_in"] == nil || m["error"] == nil {
					t.Errorf("line %q %v", l.Message, m)
				}
			}
			if c.says == "" {
				return
			}
			var out bytes.Buffer
			if code := explain(t.Context(), err, &out); code != exitUnreachable || !strings.Contains(out.String(), c.says) || !strings.Contains(out.String(), "try: "+cmp.Or(c.hint, "start `steady dev`")) {
				t.Errorf("status %d, %s; want 3 and %q", code, out.String(), c.says)
			}
		})
	}
}

func inSeconds(n ...int) (d []time.Duration) {
	for _, s := range n {
		d = append(d, time.Duration(s)*time.Second)
	}
	return d
}

// An interrupt ends the wait, in a pause and in an attempt.
func TestConnect_isInterrupted(t *testing.T) {
	t.Parallel()
	for _, inDial := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		k := clock{then: func(n int) error {
			if n == 2 && !inDial {
				cancel()
			}
			return nil
		}}
		dials := 0
		n := k.connector(zap.NewNop(), func(context.Context, client.Options) (client.Client, error) {
			if dials++; dials == 3 && inDial {
				cancel()
			}
			return nil, serviceerror.NewUnavailable("refused")
		})
		_, err := n.connect(ctx, client.Options{}, time.Hour)
		var out bytes.Buffer
		if code := explain(ctx, err, &out); code != exitInterrupted || len(k.pauses) != 2 {
			t.Errorf("status %d after %d pauses: %v", code, len(k.pauses), err)
		}
		cancel()
	}
}

// A real pause ends with its context, and not before its time without.
func TestSleep_endsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
}

// frontend answers the first question of a client, and notes what it is asked about.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	mu      sync.Mutex
	ids     []string
	headers []metadata.MD
}

func (f *frontend) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (f *frontend) RequestCancelWorkflowExecution(ctx context.Context, q *workflowservice.RequestCancelWorkflowExecutionRequest) (*workflowservice.RequestCancelWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, q.GetWorkflowExecution().GetWorkflowId())
	md, _ := metadata.FromIncomingContext(ctx)
	f.headers = append(f.headers, md)
	return &workflowservice.RequestCancelWorkflowExecutionResponse{}, nil
}

// The server comes up while the client waits; after that calls about any workflow id reach it, ids outside ASCII too.
func TestConnect_aServerThatComesUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f := &frontend{}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, f)
	defer server.Stop()
	k := clock{then: func(n int) error {
		if n != 2 {
			return nil
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("listen again: %w", err)
		}
		go func() { _ = server.Serve(l) }()
		return nil
	}}
	c, err := k.connector(zap.NewNop(), client.DialContext).connect(t.Context(), client.Options{HostPort: address}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(k.pauses) < 2 {
		t.Errorf("connected after %d pauses, before the server was up", len(k.pauses))
	}
	ids := []string{"plain", "läuf", "ラン", "a b\tc", "x/ü/\u2028", "🎲"}
	for _, id := range ids {
		if err := c.CancelWorkflow(t.Context(), id, ""); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if !slices.Equal(f.ids, ids) {
		t.Errorf("the server was asked about %q, want %q", f.ids, ids)
	}
	for i, md := range f.headers {
		if got := md.Get("temporal-resource-id"); ids[i] == "plain" && (len(got) != 1 || !strings.HasSuffix(got[0], "plain")) {
			t.Errorf("the header of a plain id is %q", got)
		}
	}
}
