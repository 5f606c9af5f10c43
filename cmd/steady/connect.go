package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/steadyrl/steady/internal/fault"
)

// connector connects to a Temporal server that may come up later.
type connector struct {
	dial  func(ctx context.Context, o client.Options) (client.Client, error)
	sleep func(ctx context.Context, d time.Duration) error
	now   func() time.Time
	log   *zap.Logger
}

func newConnector(log *zap.Logger) connector {
	return connector{dial: client.DialContext, sleep: sleep, now: time.Now, log: log}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Pauses between attempts to connect: the first, doubled up to the longest.
const (
	firstPause   = time.Second
	longestPause = 15 * time.Second
)

// connect connects, and tries again for as long as wait while the server cannot be reached. What trying again does not cure (no permission,
// a name space that is not there, a certificate or a key that does not fit) ends it at once, as does the end of ctx. Errors: Lost with the exit status for a server that is
// not reachable, and that of ctx.
func (n connector) connect(ctx context.Context, o client.Options, wait time.Duration) (client.Client, error) {
	address := cmp.Or(o.HostPort, client.DefaultHostPort)
	o.ConnectionOptions.DialOptions = append(slices.Clone(o.ConnectionOptions.DialOptions), grpc.WithChainUnaryInterceptor(plainHeaders))
	end := n.now().Add(wait)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		c, err := n.dial(ctx, o)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if perr := probe(ctx, o); perr != nil {
			err = perr
		}
		left := end.Sub(n.now())
		if !mayComeUp(err) || left <= 0 {
			return nil, unreachable(address, wait, err)
		}
		pause = min(pause, left)
		n.log.Warn("waiting for the Temporal server", zap.String("address", address), zap.Duration("next_try_in", pause),
			zap.Duration("gives_up_in", left.Round(time.Second)), zap.Error(err))
		if err := n.sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// mayComeUp reports whether err is that of a server that is not up, or not ready yet.
func mayComeUp(err error) bool {
	if _, _, certain := diagnose(err); certain {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	_, away := errors.AsType[*serviceerror.Unavailable](err)
	_, slow := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return away || slow
}

func unreachable(address string, waited time.Duration, err error) error {
	text := ""
	if waited > 0 && mayComeUp(err) {
		text = ", waited for " + waited.String()
	}
	what, hint, _ := diagnose(err)
	return &exitError{exitUnreachable, fault.New(fault.Lost, "connect", "Temporal at %s %s%s: %w", address, what, text, err).WithHint("%s", hint)}
}

// plainHeaders makes the headers of a request such that gRPC sends them. The SDK puts workflow ids into one, and gRPC refuses every call
// with a header outside printable ASCII: a run with such an id could not even be told that its name is not allowed. Servers use the header
// to route requests; the id itself is in the request.
func plainHeaders(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if md, ok := metadata.FromOutgoingContext(ctx); ok { // a copy
		changed := false
		for key, values := range md {
			if strings.HasSuffix(key, "-bin") {
				continue
			}
			for i, v := range values {
				if !printable(v) {
					values[i], changed = url.PathEscape(v), true
				}
			}
		}
		if changed {
			ctx = metadata.NewOutgoingContext(ctx, md)
		}
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7E {
			return false
		}
	}
	return true
}
