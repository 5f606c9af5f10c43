package trace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/span"
)

// Options configure tracing.
type Options struct {
	// Env reads the environment, as os.Getenv does.
	Env func(string) string
	// Namespace of the Temporal server, Worker and Version of the process: they become part of what spans say of their origin.
	Namespace, Worker, Version string
	// Failed hears once of a collector that takes no spans, and Again of one that takes them again, with the number of spans that were lost.
	// Both may be nil.
	Failed func(error)
	Again  func(lost int)
}

// Tracer makes spans; it implements span.Tracer.
type Tracer struct {
	provider  *sdktrace.TracerProvider
	tracer    oteltrace.Tracer
	namespace string
	sender    *sender // nil: spans go elsewhere
}

// New returns a tracer, or nil if the environment does not ask for one. Close must be called at the end.
//
// Errors: Invalid (a variable has a value that is not known here, or names a file that cannot be used).
func New(ctx context.Context, o Options) (*Tracer, error) {
	const op = "trace.New"
	if endpoint, _ := variable(o.Env, "ENDPOINT"); endpoint == "" || strings.EqualFold(o.Env("OTEL_SDK_DISABLED"), "true") {
		return nil, nil //nolint:nilnil // no tracer is an answer
	}
	switch exporter := o.Env("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return nil, nil //nolint:nilnil // as above
	default:
		return nil, fault.New(fault.Invalid, op, "OTEL_TRACES_EXPORTER is %q", exporter).WithHint("set it to otlp or none")
	}
	sampler, err := samplerOf(o.Env("OTEL_TRACES_SAMPLER"), o.Env("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return nil, err
	}
	set, err := readSettings(o.Env)
	if err != nil {
		return nil, err
	}
	var exporter sdktrace.SpanExporter
	if set.protocol == "grpc" {
		exporter, err = otlptracegrpc.New(ctx, set.options()...)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, op, "OTEL_EXPORTER_OTLP_ENDPOINT %s: %w", set.endpoint, err).WithHint("give the address of a collector, for example http://localhost:4318")
	}
	if o.Failed != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Failed))
	}
	send := &sender{to: exporter, endpoint: set.endpoint, protocol: set.protocol, failed: o.Failed, again: o.Again}
	t, err := start(ctx, o, sampler, sdktrace.WithBatcher(send))
	if err != nil {
		return nil, err
	}
	t.sender = send
	return t, nil
}

// start returns a tracer that hands spans to a processor.
func start(ctx context.Context, o Options, sampler sdktrace.Sampler, to sdktrace.TracerProviderOption) (*Tracer, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "steady"), attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Worker), attribute.String("temporal.namespace", o.Namespace)),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, so that they count
	)
	if err != nil {
		return nil, fault.New(fault.Invalid, "trace.New", "%w", err).WithHint("check OTEL_RESOURCE_ATTRIBUTES")
	}
	p := sdktrace.NewTracerProvider(to, sdktrace.WithResource(about), sdktrace.WithSampler(sampler), sdktrace.WithIDGenerator(ids{}))
	return &Tracer{provider: p, tracer: p.Tracer("github.com/steadyrl/steady"), namespace: o.Namespace}, nil
}

// samplerOf reads the standard names. Trace ids are the same in every process, so a ratio of them keeps or leaves out a step as a
// whole without asking a parent: the parentbased_ forms are the same as the others.
func samplerOf(name, arg string) (sdktrace.Sampler, error) {
	switch strings.TrimPrefix(name, "parentbased_") {
	case "", "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return nil, fault.New(fault.Invalid, "trace.New", "OTEL_TRACES_SAMPLER_ARG is %q", arg).WithHint("give a share between 0 and 1")
			}
		}
		return sdktrace.TraceIDRatioBased(ratio), nil
	}
	return nil, fault.New(fault.Invalid, "trace.New", "OTEL_TRACES_SAMPLER is %q", name).
		WithHint("set it to always_on, always_off or traceidratio; parentbased_ before these changes nothing")
}

// Close sends what is left, within five seconds. It may be called on a nil tracer. Errors: Busy (spans were lost since the collector last
// took some).
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	t.sender.close()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fault.New(fault.Busy, "", "spans were lost: %w", err)
	}
	return t.sender.rest()
}

// Start implements span.Tracer.
func (t *Tracer) Start(ctx context.Context, name string, attrs ...span.Attr) (context.Context, span.End) {
	ctx, s := t.tracer.Start(ctx, name, oteltrace.WithAttributes(attributes(attrs)...))
	return ctx, func(err error, attrs ...span.Attr) {
		s.SetAttributes(attributes(attrs)...)
		if err != nil {
			s.SetStatus(codes.Error, err.Error())
			s.SetAttributes(attribute.String("error.type", string(fault.KindOf(err))))
		}
		s.End()
	}
}

// Enter implements span.Tracer.
func (t *Tracer) Enter(ctx context.Context, s span.Step) context.Context {
	return oteltrace.ContextWithRemoteSpanContext(ctx, t.of(s))
}

// Whole implements span.Tracer.
func (t *Tracer) Whole(s span.Step, began, ended time.Time, attrs ...span.Attr) {
	ctx := context.WithValue(context.Background(), fixed{}, t.of(s))
	_, root := t.tracer.Start(ctx, fmt.Sprintf("step %d", s.N), oteltrace.WithNewRoot(), oteltrace.WithTimestamp(began), oteltrace.WithAttributes(attributes(attrs)...))
	root.End(oteltrace.WithTimestamp(ended))
}

// Link implements span.Tracer.
func (t *Tracer) Link(ctx context.Context, s span.Step) {
	oteltrace.SpanFromContext(ctx).AddLink(oteltrace.Link{SpanContext: t.of(s)})
}

// of returns the span context of a step: ids that are a function of its name.
func (t *Tracer) of(s span.Step) oteltrace.SpanContext {
	sum := sha256.Sum256(fmt.Appendf(nil, "steady step\x00%s\x00%s\x00%s\x00%d", t.namespace, s.Run, s.Lineage, s.N))
	return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID(sum[:16]), SpanID: oteltrace.SpanID(sum[16:24]), TraceFlags: oteltrace.FlagsSampled, Remote: true,
	})
}

func attributes(attrs []span.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		key := "steady." + a.Key
		switch v := a.Value.(type) {
		case string:
			out = append(out, attribute.String(key, v))
		case bool:
			out = append(out, attribute.Bool(key, v))
		case int:
			out = append(out, attribute.Int(key, v))
		case int64:
			out = append(out, attribute.Int64(key, v))
		case float64:
			out = append(out, attribute.Float64(key, v))
		default:
			out = append(out, attribute.String(key, fmt.Sprint(v)))
		}
	}
	return out
}

// fixed is the context key of the ids of the next root span.
type fixed struct{}

// ids gives the root of a step its fixed ids and other spans random ones.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	if c, ok := ctx.Value(fixed{}).(oteltrace.SpanContext); ok {
		return c.TraceID(), c.SpanID()
	}
	var id oteltrace.TraceID
	binary.BigEndian.PutUint64(id[:8], random())
	binary.BigEndian.PutUint64(id[8:], random())
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, oteltrace.TraceID) oteltrace.SpanID {
	var id oteltrace.SpanID
	binary.BigEndian.PutUint64(id[:], random())
	return id
}

// random returns a number that is not 0: an id of zeros is none.
func random() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return n
		}
	}
}
