// Package telemetry sets up what an operator can see of fenceproxy: Prometheus metrics, OpenTelemetry traces and
// structured logs. The other rooms call it; it calls none of them and decides nothing.
//
// # Metrics
//
// [Metrics] owns a registry of its own. Labels hold only values from the configuration or from fixed lists in this
// package: never a job, a generation, an owner, an idempotency key, a path or a method that a caller chose. So the
// number of series is known at start, whatever the callers send. Every counter and histogram that a write touches is
// looked up once, at start, and costs a few nanoseconds and no allocation afterwards.
//
// # Traces
//
// A [Tracer] is off unless the environment asks for it. Off means that a [Span] is nil, its methods do nothing, and the
// caller's own traceparent travels on to the upstream untouched. On means one server span per write, with children
// made by [Span.Child]. Metrics are not sent through OpenTelemetry: one pipeline, one truth.
//
// # Logs
//
// [NewLogger] is log/slog with UTC times and a last line of defence that blanks attributes named like secrets.
// Idempotency keys appear only as [HashKey].
package telemetry
