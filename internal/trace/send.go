package trace

import (
	"context"
	"strings"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/steadyrl/steady/internal/fault"
)

// sender hands spans to an exporter. Training does not wait for a collector, and a log does not fill with one that is away: the first
// failure is told, then nothing until spans are taken again; a reason why a part of a batch is left out, once. Spans that were not taken are lost.
type sender struct {
	to       sdktrace.SpanExporter
	endpoint string
	protocol string
	failed   func(error)    // may be nil
	again    func(lost int) // may be nil

	mu      sync.Mutex
	part    string // what was told last of a collector that takes a part
	lost    int    // spans since the collector last took some
	last    error
	told    bool
	closing bool
}

// ExportSpans implements sdktrace.SpanExporter. It keeps errors to itself: the caller would tell each of them.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := s.to.ExportSpans(ctx, spans)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && strings.Contains(err.Error(), "partial success") { // the type is the exporter's own
		if s.failed != nil && err.Error() != s.part {
			s.part = err.Error()
			s.failed(fault.New(fault.Invalid, "", "the collector %s leaves out spans: %w", s.endpoint, err).WithHint("its configuration says what it takes"))
		}
		err = nil
	}
	if err == nil {
		if s.told && s.again != nil {
			s.again(s.lost)
		}
		s.lost, s.last, s.told = 0, nil, false
		return nil
	}
	s.lost += len(spans)
	s.last = fault.New(fault.Busy, "", "the collector %s takes no spans by %s: %w", s.endpoint, s.protocol, err).
		WithHint("work goes on, spans are lost; start the collector, or check the OTEL_EXPORTER_OTLP_ variables: grpc is usually at port 4317, http/protobuf at 4318")
	if !s.told && !s.closing && s.failed != nil {
		s.told = true
		s.failed(s.last)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (s *sender) Shutdown(ctx context.Context) error { return s.to.Shutdown(ctx) }

// close makes failures part of what rest returns.
func (s *sender) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

// rest says what became of the last spans.
func (s *sender) rest() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return nil
	}
	return fault.New(fault.Busy, "", "at least %d spans are lost: %w", s.lost, s.last).WithHint("%s", fault.HintOf(s.last))
}
