package wire

import (
	"errors"
	"net/http"
	"slices"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// What a caller may do after a refusal.
const (
	// RetryNever: the same request is refused again. The detail says what has
	// to change first, if anything can.
	RetryNever = "never"
	// RetryWait: nothing was done; the same request may succeed after
	// Retry-After.
	RetryWait = "wait"
	// RetrySameKey: repeat only under the same name, that is with the same
	// Idempotency-Key or claim_id. Where the outcome is not-sent a request
	// without one may be repeated too; where it is unknown it must not be,
	// because it may have been done.
	RetrySameKey = "same-key"
	// RetryNewKey: this key can not be used (or one is missing); the request
	// may succeed under a key of its own.
	RetryNewKey = "new-key"
)

// Code is one way in which fenceproxy refuses. Codes are values of the table below and
// are comparable.
type Code struct {
	// Name is the code on the wire, in headers, metrics and logs.
	Name string
	// Status is the HTTP status that goes with it.
	Status int
	// Retry is one of the Retry constants.
	Retry string
	// Title is the same for every problem of the code (RFC 9457, section 3.1.3).
	Title string
	// Sentinel is the error of package tokens that the code stands for; nil if
	// the code is found elsewhere.
	Sentinel error
}

// Refusals of a write.
var (
	CodeFenceRequired       = Code{"fence-required", http.StatusPreconditionRequired, RetryNever, "A job and a generation are required", nil}
	CodeFenceInvalid        = Code{"fence-invalid", http.StatusBadRequest, RetryNever, "The fence headers are malformed", nil}
	CodeRequestInvalid      = Code{"request-invalid", http.StatusBadRequest, RetryNever, "The request is ambiguous", nil}
	CodeStaleGeneration     = Code{"stale-generation", http.StatusPreconditionFailed, RetryNever, "The generation is no longer admitted", tokens.ErrStaleGeneration}
	CodeUnissuedGeneration  = Code{"unissued-generation", http.StatusPreconditionFailed, RetryNever, "The generation was never issued", tokens.ErrUnissuedGeneration}
	CodeUnknownJob          = Code{"unknown-job", http.StatusPreconditionFailed, RetryNever, "The job was never claimed here", tokens.ErrUnknownJob}
	CodeLeaseMismatch       = Code{"lease-mismatch", http.StatusPreconditionFailed, RetryNever, "The lease id is not this generation's", tokens.ErrLeaseMismatch}
	CodeLeaseExpired        = Code{"lease-expired", http.StatusPreconditionFailed, RetryNever, "The lease has run out", tokens.ErrLeaseExpired}
	CodeKeyRequired         = Code{"key-required", http.StatusBadRequest, RetryNewKey, "An idempotency key is required", nil}
	CodeKeyReused           = Code{"key-reused", http.StatusUnprocessableEntity, RetryNewKey, "The key belongs to another request", tokens.ErrKeyReused}
	CodeWriteInProgress     = Code{"write-in-progress", http.StatusConflict, RetryWait, "A write with this key is in flight", tokens.ErrWriteInProgress}
	CodeAlreadyApplied      = Code{"already-applied", http.StatusConflict, RetryNever, "A write with this key was applied", tokens.ErrAlreadyApplied}
	CodeOutcomeUnknown      = Code{"outcome-unknown", http.StatusConflict, RetryNever, "The outcome of an earlier attempt is unknown", tokens.ErrOutcomeUnknown}
	CodeTakeoverPending     = Code{"takeover-pending", http.StatusServiceUnavailable, RetryWait, "Older attempts are not settled yet", tokens.ErrTakeoverPending}
	CodeStoreUnavailable    = Code{"store-unavailable", http.StatusServiceUnavailable, RetryWait, "The store is not available", tokens.ErrStoreUnavailable}
	CodeOverloaded          = Code{"overloaded", http.StatusServiceUnavailable, RetryWait, "Too much is in flight, or the proxy is shutting down", tokens.ErrOverloaded}
	CodeBodyTooLarge        = Code{"body-too-large", http.StatusRequestEntityTooLarge, RetryNever, "The body is larger than the route allows", nil}
	CodeNoRoute             = Code{"no-route", http.StatusNotFound, RetryNever, "No route matches", nil}
	CodeUpstreamUnreachable = Code{"upstream-unreachable", http.StatusBadGateway, RetrySameKey, "The upstream could not be reached", nil}
	CodeUpstreamFailed      = Code{"upstream-failed", http.StatusBadGateway, RetrySameKey, "The upstream broke off before it answered", nil}
	CodeUpstreamTimeout     = Code{"upstream-timeout", http.StatusGatewayTimeout, RetrySameKey, "The upstream did not answer in time", nil}
)

// Refusals of the lease API.
var (
	CodeLeaseHeld            = Code{"lease-held", http.StatusConflict, RetryWait, "Somebody holds the lease", tokens.ErrLeaseHeld}
	CodeLeaseLost            = Code{"lease-lost", http.StatusConflict, RetryNever, "The lease is not the current one", tokens.ErrLeaseLost}
	CodeJobCompleted         = Code{"job-completed", http.StatusConflict, RetryNever, "The job is completed", tokens.ErrJobCompleted}
	CodeGenerationMismatch   = Code{"generation-mismatch", http.StatusConflict, RetryNever, "The generation is not the current one", tokens.ErrGenerationMismatch}
	CodeGenerationsExhausted = Code{"generations-exhausted", http.StatusConflict, RetryNever, "The job has no generation left", tokens.ErrGenerationsExhausted}
	CodeWriteNotFound        = Code{"write-not-found", http.StatusNotFound, RetryNever, "The write is not known", tokens.ErrWriteNotFound}
	CodeWriteSettled         = Code{"write-settled", http.StatusConflict, RetryNever, "The outcome of the write is known", tokens.ErrWriteSettled}
	CodeJobNotFound          = Code{"job-not-found", http.StatusNotFound, RetryNever, "The job is not known", tokens.ErrJobNotFound}
	CodeInvalidRequest       = Code{"invalid-request", http.StatusBadRequest, RetryNever, "The request is not valid", nil}
	CodeRequestTooLarge      = Code{"request-too-large", http.StatusRequestEntityTooLarge, RetryNever, "The request body is too large", nil}
	CodeUnsupportedMedia     = Code{"unsupported-media-type", http.StatusUnsupportedMediaType, RetryNever, "The request body is not JSON", nil}
	CodeNotFound             = Code{"not-found", http.StatusNotFound, RetryNever, "There is nothing at this path", nil}
	CodeMethodNotAllowed     = Code{"method-not-allowed", http.StatusMethodNotAllowed, RetryNever, "The path does not take this method", nil}
	CodeUnauthenticated      = Code{"unauthenticated", http.StatusUnauthorized, RetryNever, "A valid credential is required", nil}
	CodeForbidden            = Code{"forbidden", http.StatusForbidden, RetryNever, "The credential does not allow this", nil}
	CodeInternal             = Code{"internal", http.StatusInternalServerError, RetrySameKey, "The proxy failed", nil}
)

// table is never written to.
var table = [...]Code{
	CodeFenceRequired, CodeFenceInvalid, CodeRequestInvalid, CodeStaleGeneration, CodeUnissuedGeneration,
	CodeUnknownJob, CodeLeaseMismatch, CodeLeaseExpired, CodeKeyRequired, CodeKeyReused, CodeWriteInProgress,
	CodeAlreadyApplied, CodeOutcomeUnknown, CodeTakeoverPending, CodeStoreUnavailable, CodeOverloaded,
	CodeBodyTooLarge, CodeNoRoute, CodeUpstreamUnreachable, CodeUpstreamFailed, CodeUpstreamTimeout,

	CodeLeaseHeld, CodeLeaseLost, CodeJobCompleted, CodeGenerationMismatch, CodeGenerationsExhausted,
	CodeWriteNotFound, CodeWriteSettled, CodeJobNotFound, CodeInvalidRequest, CodeRequestTooLarge, CodeUnsupportedMedia, CodeNotFound,
	CodeMethodNotAllowed, CodeUnauthenticated, CodeForbidden, CodeInternal,
}

// Codes returns the whole table, in a fixed order. The caller owns the slice.
func Codes() []Code { return slices.Clone(table[:]) }

// ForError returns the code that an error of package tokens stands for, found by
// errors.Is. False, with CodeInternal, means that the error is none of them.
func ForError(err error) (Code, bool) {
	for i := range table {
		if s := table[i].Sentinel; s != nil && errors.Is(err, s) {
			return table[i], true
		}
	}
	return CodeInternal, false
}
