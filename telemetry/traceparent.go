package telemetry

import (
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

const (
	traceIDLength     = 32 // hex digits
	traceParentLength = 55 // version, trace id, parent id, flags: 2+1+32+1+16+1+2
)

// ParseTraceParent returns the trace id in a W3C traceparent header, and whether the header is well formed. Version 00 is
// taken strictly; of a higher version the part that version 00 defines is read, and version ff is refused (W3C Trace
// Context, section 3.2.2 and "Versioning of traceparent"). It does not allocate: the id is a part of s.
func ParseTraceParent(s string) (traceID string, ok bool) {
	if len(s) < traceParentLength || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return "", false
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if !isHex(version) || !isHex(id) || !isHex(parent) || !isHex(flags) {
		return "", false
	}
	if version == "ff" || isZero(id) || isZero(parent) {
		return "", false
	}
	if len(s) > traceParentLength && (version == "00" || s[traceParentLength] != '-') {
		return "", false
	}
	return id, true
}

// knownFlags are the flag bits that W3C Trace Context gives a meaning; the others are not sent on.
const knownFlags = trace.FlagsSampled | trace.FlagsRandom

// spanContext reads a whole traceparent.
func spanContext(traceparent string) (trace.SpanContext, bool) {
	if _, ok := ParseTraceParent(traceparent); !ok {
		return trace.SpanContext{}, false
	}
	// The digits have been checked, so none of these can fail.
	var c trace.SpanContextConfig
	c.TraceID, _ = trace.TraceIDFromHex(traceparent[3:35])
	c.SpanID, _ = trace.SpanIDFromHex(traceparent[36:52])
	flags, _ := strconv.ParseUint(traceparent[53:55], 16, 8)
	c.TraceFlags = trace.TraceFlags(flags) & knownFlags
	c.Remote = true
	return trace.NewSpanContext(c), true
}

// isHex accepts lower-case digits only, as W3C Trace Context does.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isZero(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}
