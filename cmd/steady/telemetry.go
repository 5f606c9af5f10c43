package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/metrics"
	"github.com/steadyrl/steady/internal/obs"
	"github.com/steadyrl/steady/internal/trace"
	"github.com/steadyrl/steady/workers"
)

// telemetryFlags say how a worker process tells what it does.
type telemetryFlags struct {
	Metrics  string `help:"Serve Prometheus metrics at http://ADDR/metrics, with /healthz and /readyz; for example 127.0.0.1:9464." placeholder:"ADDR" env:"STEADY_METRICS"`
	LogLevel string `help:"Level of the log: debug, info, warn, error." default:"info" enum:"debug,info,warn,error" env:"STEADY_LOG_LEVEL"`
}

// check looks at the address before anything starts.
func (f telemetryFlags) check() error {
	if f.Metrics == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(f.Metrics); err != nil {
		return fault.New(fault.Invalid, "", "--metrics %q is no address: %w", f.Metrics, err).
			WithHint("give host:port, for example 127.0.0.1:9464, or :9464 for every interface")
	}
	return nil
}

// telemetry is what a process tells of itself besides its log.
type telemetry struct {
	log    *zap.Logger
	set    *metrics.Set
	server *metrics.Server
	tracer *trace.Tracer
	ready  atomic.Pointer[workers.Set]
}

// start opens the endpoint, so that an address that is taken is an error before anything else starts, and the tracer. The
// logger counts its lines. Close must be called at the end, also after an error.
func (f telemetryFlags) start(ctx context.Context, namespace, worker string, log *zap.Logger) (*telemetry, error) {
	t := &telemetry{log: log.With(zap.String("worker", worker))}
	if f.Metrics != "" {
		t.set = metrics.New(version())
		t.log = obs.Counting(t.log, t.set.LogLine)
		var err error
		if t.server, err = metrics.Serve(f.Metrics, t.set, t.isReady); err != nil {
			return t, err
		}
		t.log.Info("metrics are served", zap.String("address", t.server.Addr()))
	}
	tracer, err := trace.New(ctx, trace.Options{
		Env: os.Getenv, Namespace: namespace, Worker: worker, Version: version(),
		Failed: func(err error) { t.log.Warn("spans cannot be sent", obs.Err(err)) },
		Again:  func(lost int) { t.log.Info("spans are sent again", zap.Int("lost", lost)) },
	})
	if err != nil {
		return t, err
	}
	if t.tracer = tracer; tracer != nil {
		t.log.Info("spans are sent")
	}
	return t, nil
}

// client adds the SDK's side to the options of a client.
func (t *telemetry) client(o *client.Options) {
	o.Logger = obs.SDKLogger(t.log)
	if t.set != nil {
		o.MetricsHandler = obs.SDKMetrics(t.set.Registry())
	}
}

// workers adds what workers tell to.
func (t *telemetry) workers(o *workers.Options) {
	o.Log, o.Metrics = t.log, t.set
	if t.tracer != nil {
		o.Tracer = t.tracer
	}
}

func (t *telemetry) isReady(ctx context.Context) error {
	set := t.ready.Load()
	if set == nil {
		return errors.New("the workers have not started, or are stopping")
	}
	return set.Ready(ctx)
}

// close ends the endpoint and sends the spans that are left.
func (t *telemetry) close() {
	if t == nil {
		return
	}
	t.ready.Store(nil)
	if err := t.tracer.Close(); err != nil {
		t.log.Warn("the last spans could not be sent", obs.Err(err))
	}
	if t.server != nil {
		_ = t.server.Close() // requests in progress are cut
	}
}

// isTerminal says whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// consoleFormat chooses how lines for standard error look: JSON unless a person reads them.
func consoleFormat(format string, w io.Writer) obs.Format {
	if format == "text" || format == "auto" && isTerminal(w) {
		return obs.Text
	}
	return obs.JSON
}
