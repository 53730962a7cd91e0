package wire

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Status codes of gRPC, as grpc.io/docs/guides/status-codes numbers them.
const (
	GRPCOK                 = 0
	GRPCCanceled           = 1
	GRPCUnknown            = 2
	GRPCInvalidArgument    = 3
	GRPCDeadlineExceeded   = 4
	GRPCNotFound           = 5
	GRPCAlreadyExists      = 6
	GRPCPermissionDenied   = 7
	GRPCResourceExhausted  = 8
	GRPCFailedPrecondition = 9
	GRPCAborted            = 10
	GRPCOutOfRange         = 11
	GRPCUnimplemented      = 12
	GRPCInternal           = 13
	GRPCUnavailable        = 14
	GRPCDataLoss           = 15
	GRPCUnauthenticated    = 16
)

// Headers of a gRPC reply, and the media type of gRPC.
const (
	HeaderGRPCStatus  = "Grpc-Status"
	HeaderGRPCMessage = "Grpc-Message"
	// HeaderGRPCPushback tells clients with a retry policy when they may try again,
	// in milliseconds, -1 that they must not (gRFC A6).
	HeaderGRPCPushback = "Grpc-Retry-Pushback-Ms"
	TypeGRPC           = "application/grpc"
)

// GRPC returns the status with which a gRPC call is refused. Clients take UNAVAILABLE as
// leave to repeat, so it stands only where nothing was done.
func (c Code) GRPC() int {
	switch c {
	case CodeKeyRequired:
		return GRPCFailedPrecondition
	case CodeUpstreamFailed:
		return GRPCUnknown
	case CodeNoRoute, CodeMethodNotAllowed:
		return GRPCUnimplemented
	case CodeInternal:
		return GRPCInternal
	}
	switch c.Status {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return GRPCFailedPrecondition
	case http.StatusConflict:
		return GRPCAborted
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return GRPCInvalidArgument
	case http.StatusUnauthorized:
		return GRPCUnauthenticated
	case http.StatusForbidden:
		return GRPCPermissionDenied
	case http.StatusNotFound:
		return GRPCNotFound
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return GRPCUnavailable
	case http.StatusGatewayTimeout:
		return GRPCDeadlineExceeded
	}
	return GRPCUnknown
}

// GRPCTrailer returns the problem as the trailers of a gRPC call.
func (p Problem) GRPCTrailer() http.Header {
	code := Code{Name: p.Code, Status: p.Status}
	for _, c := range table {
		if c.Name == p.Code {
			code = c
		}
	}
	h := http.Header{
		HeaderGRPCStatus:  {strconv.Itoa(code.GRPC())},
		HeaderGRPCMessage: {grpcMessage(p.Detail)},
	}
	switch {
	case p.Retry == RetryWait:
		h[HeaderGRPCPushback] = []string{strconv.FormatInt(p.RetryAfter.Milliseconds(), 10)}
	case p.Retry != RetrySameKey, p.Outcome == tokens.OutcomeUnknown.String():
		h[HeaderGRPCPushback] = []string{"-1"}
	}
	return h
}

// WriteGRPC answers a gRPC call with the problem: HTTP status 200, and the trailers in
// the head, since nothing else follows. It keeps the headers that are already set on w.
func (p Problem) WriteGRPC(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range p.GRPCTrailer() {
		h[name] = values
	}
	h["Content-Type"] = []string{TypeGRPC}
	h["Content-Length"] = nil // none, in no form
	w.WriteHeader(http.StatusOK)
}

// grpcMessage encodes a text as grpc-message wants it: printable ASCII, all else and the
// percent sign escaped byte by byte.
func grpcMessage(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
