// Package tracing makes OpenTelemetry spans of messages: short ones, for what a
// gateway does with a message at one time, which the trace context in the
// message's metadata puts together, also over the log and between gateways.
//
// A nil [Tracer] and a nil [Span] are those of a gateway that does not trace:
// their methods do nothing, and allocate nothing. The package knows frames by
// their bytes, and nobody who uses it.
package tracing
