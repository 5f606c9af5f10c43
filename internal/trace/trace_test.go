package trace

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/span"
)

// memory returns a tracer whose spans are kept.
func memory(t *testing.T, worker string) (*Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tr, err := start(t.Context(), Options{Namespace: "default", Worker: worker}, sdktrace.AlwaysSample(), sdktrace.WithSyncer(kept))
	if err != nil {
		t.Fatal(err)
	}
	return tr, kept
}

// Two processes that know nothing of each other put their spans into one trace, below the span of the step.
func TestTracer_aStepIsOneTraceOverProcesses(t *testing.T) {
	t.Parallel()
	step := span.Step{Run: "r", Lineage: "l0", N: 3}
	began := time.Unix(1000, 0)
	judge, a := memory(t, "judge")
	trainer, b := memory(t, "trainer")
	ctx, end := judge.Start(judge.Enter(span.With(t.Context(), judge), step), "JudgeRollouts", span.Attr{Key: "group", Value: 7})
	_, inner := span.Start(ctx, "judge_submission")
	inner(nil, span.Attr{Key: "verdict", Value: "accepted"})
	end(fault.New(fault.Busy, "op", "no"))
	ctx, end = trainer.Start(trainer.Enter(span.With(t.Context(), trainer), step), "UpdatePolicy")
	trainer.Link(ctx, span.Step{Run: "r", Lineage: "l0", N: 2})
	end(nil)
	trainer.Whole(step, began, began.Add(time.Minute))

	spans := append(a.GetSpans(), b.GetSpans()...)
	var names []string
	for _, s := range spans {
		names = append(names, s.Name)
		if s.SpanContext.TraceID() != spans[0].SpanContext.TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
	}
	if want := []string{"judge_submission", "JudgeRollouts", "UpdatePolicy", "step 3"}; !slices.Equal(names, want) {
		t.Fatalf("spans %v, want %v", names, want)
	}
	root := spans[3]
	if root.Parent.IsValid() || !root.StartTime.Equal(began) || root.EndTime.Sub(root.StartTime) != time.Minute {
		t.Errorf("root %+v", root)
	}
	for i, parent := range []tracetest.SpanStub{spans[1], root, root} {
		if spans[i].Parent.SpanID() != parent.SpanContext.SpanID() {
			t.Errorf("%s does not lie below %s", spans[i].Name, parent.Name)
		}
	}
	other, _ := memory(t, "x")
	if links := spans[2].Links; len(links) != 1 || !links[0].SpanContext.Equal(other.of(span.Step{Run: "r", Lineage: "l0", N: 2})) {
		t.Errorf("links %+v, want the step before", links)
	}
	if s := spans[1]; s.Status.Description != "op: no" || !slices.ContainsFunc(s.Attributes, func(a attribute.KeyValue) bool { return a.Key == "error.type" && a.Value.AsString() == "Busy" }) {
		t.Errorf("a failed span says %+v %v", s.Status, s.Attributes)
	}
}

func TestTracer_stepsHaveTracesOfTheirOwn(t *testing.T) {
	t.Parallel()
	tr, _ := memory(t, "w")
	far, _ := memory(t, "w")
	far.namespace = "other"
	seen := map[string]bool{}
	for _, c := range []string{
		tr.of(span.Step{Run: "r", Lineage: "l0", N: 1}).TraceID().String(), tr.of(span.Step{Run: "r", Lineage: "l0", N: 2}).TraceID().String(),
		tr.of(span.Step{Run: "r", Lineage: "l1", N: 1}).TraceID().String(), tr.of(span.Step{Run: "q", Lineage: "l0", N: 1}).TraceID().String(),
		far.of(span.Step{Run: "r", Lineage: "l0", N: 1}).TraceID().String(),
	} {
		if seen[c] {
			t.Errorf("trace %s is of two steps", c)
		}
		seen[c] = true
	}
}

func TestNew_isOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	const at = "http://127.0.0.1:1"
	for _, env := range []map[string]string{
		{},
		{"OTEL_SERVICE_NAME": "x"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_EXPORTER": "none"},
	} {
		tr, err := New(t.Context(), Options{Env: func(k string) string { return env[k] }})
		if tr != nil || err != nil || tr.Close() != nil {
			t.Errorf("%v: got %v, %v; want no tracer", env, tr, err)
		}
	}
	for name, env := range map[string]map[string]string{
		"OTEL_TRACES_EXPORTER":        {"OTEL_TRACES_EXPORTER": "zipkin"},
		"OTEL_EXPORTER_OTLP_PROTOCOL": {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
		"OTEL_TRACES_SAMPLER":         {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
		"OTEL_TRACES_SAMPLER_ARG":     {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "NaN"},
	} {
		env["OTEL_EXPORTER_OTLP_ENDPOINT"] = at
		_, err := New(t.Context(), Options{Env: func(k string) string { return env[k] }})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) || fault.HintOf(err) == "" {
			t.Errorf("%v: got %v, want Invalid with %s and a hint", env, err, name)
		}
	}
}

// A ratio keeps or leaves out a step as a whole, in every process.
func TestNew_aRatioKeepsWholeSteps(t *testing.T) {
	t.Parallel()
	sampler, err := samplerOf("parentbased_traceidratio", "0.5")
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for n := range 64 {
		step := span.Step{Run: "r", Lineage: "l0", N: n}
		var counts []int
		for range 2 {
			out := tracetest.NewInMemoryExporter()
			tr, err := start(t.Context(), Options{}, sampler, sdktrace.WithSyncer(out))
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := tr.Start(tr.Enter(span.With(t.Context(), tr), step), "a")
			_, inner := span.Start(ctx, "b")
			inner(nil)
			end(nil)
			tr.Whole(step, time.Unix(1, 0), time.Unix(2, 0))
			counts = append(counts, len(out.GetSpans()))
		}
		if counts[0] != counts[1] || counts[0] != 0 && counts[0] != 3 {
			t.Errorf("step %d: %v spans are kept in two processes, want all or none in both", n, counts)
		}
		kept += counts[0] / 3
	}
	if kept < 16 || kept > 48 {
		t.Errorf("%d of 64 steps are kept, want about half", kept)
	}
}

// The whole way: the standard variable, HTTP, a receiver. The exporter reads the process's own environment.
func TestNew_sendsToAReceiver(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(data))
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL}
	tr, err := New(t.Context(), Options{Env: func(k string) string { return env[k] }, Worker: "worker-7", Version: "v", Failed: func(err error) { t.Error(err) }})
	if err != nil || tr == nil {
		t.Fatalf("got %v, %v", tr, err)
	}
	_, end := tr.Start(tr.Enter(t.Context(), span.Step{Run: "r", Lineage: "l0", N: 1}), "SealBatch", span.Attr{Key: "run", Value: "r"})
	end(nil)
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) != 1 {
		t.Fatalf("%d requests, want one", len(bodies))
	}
	for _, want := range []string{"/v1/traces application/x-protobuf", "SealBatch", "steady.run", "worker-7", "service.name"} {
		if !strings.Contains(bodies[0], want) {
			t.Errorf("%q is not in the request", want)
		}
	}
}

func TestAttributes_keepTheirTypes(t *testing.T) {
	t.Parallel()
	got := attributes([]span.Attr{{Key: "s", Value: "x"}, {Key: "b", Value: true}, {Key: "i", Value: 1}, {Key: "l", Value: int64(2)}, {Key: "f", Value: 0.5}, {Key: "o", Value: []int{1}}})
	want := []string{"steady.s=x", "steady.b=true", "steady.i=1", "steady.l=2", "steady.f=0.5", "steady.o=[1]"}
	var text []string
	for _, a := range got {
		text = append(text, string(a.Key)+"="+a.Value.String())
	}
	if !slices.Equal(text, want) {
		t.Errorf("got %v, want %v", text, want)
	}
}

func TestStart_withoutATracerDoesNothing(t *testing.T) {
	t.Parallel()
	ctx := span.With(context.Background(), nil)
	got, end := span.Start(ctx, "x")
	end(errors.New("e"))
	if got != ctx {
		t.Error("the context has changed")
	}
}
