// Package trace sends spans to a collector by OpenTelemetry's protocol, if the environment asks for it.
//
// A trace is a step of a lineage of a run. Its id, and the id of the span of the step itself, are functions of namespace, run,
// lineage and step, so that every process finds the trace of a step by itself: nothing is handed through workflows, a replayed
// workflow makes no span, and a worker that was restarted goes on in the same trace. Spans begin in activities only.
//
// The variables are those of OpenTelemetry: OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT switches tracing on,
// OTEL_SDK_DISABLED=true and OTEL_TRACES_EXPORTER=none switch it off, OTEL_EXPORTER_OTLP_PROTOCOL chooses http/protobuf or
// grpc, and OTEL_TRACES_SAMPLER with OTEL_TRACES_SAMPLER_ARG what is kept. The exporter and the SDK read the others themselves; those of the
// exporter are checked first, because it leaves out what it cannot read. A collector that is away costs spans and one warning.
package trace
