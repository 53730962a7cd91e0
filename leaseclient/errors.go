package leaseclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// Why a job was not claimed.
var (
	// ErrHeld is returned by Claim and Run when somebody else holds the lease; the error is a *HeldError.
	ErrHeld = errors.New("lease is held")
	// ErrCompleted is returned by Claim and Run when the job is completed; the error is then a *CompletedError. It is
	// also what a lease's context ends with once Complete succeeded.
	ErrCompleted = errors.New("job is completed")
	// ErrUnavailable is returned when the lease API gave no usable answer in time. Whether the call took effect is not
	// known.
	ErrUnavailable = errors.New("lease api is not available")
	// ErrClosed is returned by Claim and Run after Close.
	ErrClosed = errors.New("client is closed")
)

// Why a lease is over. All but ErrReleased and ErrCompleted of one's own come as a *LostError, which is also ErrLost.
var (
	// ErrLost is every way in which a lease ends that its holder did not ask for.
	ErrLost = errors.New("lease is lost")
	// ErrExpired: the deadline passed without a renewal. Nobody else need have the job yet; this holder has to stop all
	// the same.
	ErrExpired = errors.New("lease ran out without contact")
	// ErrSuperseded: a newer generation has the job.
	ErrSuperseded = errors.New("a newer generation has the job")
	// ErrRevoked: an operator ended the generation.
	ErrRevoked = errors.New("generation was revoked")
	// ErrReleased: the lease was released, by its holder (then it is the bare sentinel) or by somebody with its lease id.
	ErrReleased = errors.New("lease was released")
)

// Why a write was not sent.
var (
	// ErrTooLate is returned by a Transport when less than Config.MinLeft is left of the lease. Nothing was sent. After
	// the next renewal the same write may pass.
	ErrTooLate = errors.New("too little time is left of the lease")
	// ErrRedirected is returned by a Transport when an http.Client follows a redirect with a write: the target may be
	// another server, where nothing is fenced. Set CheckRedirect to http.ErrUseLastResponse to see the redirect itself.
	ErrRedirected = errors.New("a fenced write does not follow redirects")
)

// HeldError says who holds a lease that was claimed. It is ErrHeld.
type HeldError struct {
	JobID string
	// Owner is empty when nobody holds the lease and other claims are in front.
	Owner      string
	Generation tokens.Generation
	// ExpiresIn is what was left of the lease when the server answered; its holder may renew it.
	ExpiresIn time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("job %q: other claims are in front", e.JobID)
	}
	return fmt.Sprintf("job %q is held by %q with generation %d for another %v", e.JobID, e.Owner, e.Generation, e.ExpiresIn)
}

// Unwrap returns ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// CompletedError says that a job can not be claimed until an operator reopens it. It is ErrCompleted.
type CompletedError struct {
	JobID string
	// Result is what it was completed with; empty if with nothing.
	Result json.RawMessage
}

// Error implements error.
func (e *CompletedError) Error() string { return fmt.Sprintf("job %q is completed", e.JobID) }

// Unwrap returns ErrCompleted.
func (e *CompletedError) Unwrap() error { return ErrCompleted }

// LostError says why a lease was lost. It is ErrLost, its Reason, and its Last if there is one.
type LostError struct {
	JobID      string
	Generation tokens.Generation
	// Reason is ErrExpired, ErrSuperseded, ErrRevoked, ErrReleased or ErrCompleted; nil if the server knows no such
	// lease and can not tell why.
	Reason error
	// Last is how the last renewal failed, if the lease expired; nil if none was tried, as after a suspension.
	Last error
}

// Error implements error.
func (e *LostError) Error() string {
	s := fmt.Sprintf("job %q, generation %d: lease is lost", e.JobID, e.Generation)
	if e.Reason != nil {
		s += ": " + e.Reason.Error()
	}
	if e.Last != nil {
		s += "; last renewal: " + e.Last.Error()
	}
	return s
}

// Unwrap returns ErrLost, the reason and the last failure.
func (e *LostError) Unwrap() []error {
	out := []error{ErrLost}
	for _, err := range []error{e.Reason, e.Last} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// lossReason maps how a generation ended, as the server says it, to its sentinel.
func lossReason(ended string) error {
	switch tokens.Ended(ended) {
	case tokens.Superseded:
		return ErrSuperseded
	case tokens.Revoked:
		return ErrRevoked
	case tokens.Released:
		return ErrReleased
	case tokens.Completed:
		return ErrCompleted
	}
	return nil
}

// RefusedError is a refusal by the lease API that repeating does not help: a wrong credential, a job outside the
// principal's prefixes, a ttl outside the server's bounds.
type RefusedError struct {
	// Code and Status are the API's; Code is empty if something else answered.
	Code   string
	Status int
	// Detail says for people what was refused, and the way out.
	Detail string
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("status %d: %s", e.Status, e.Detail)
	}
	return fmt.Sprintf("%s (%s)", e.Detail, e.Code)
}

// refusal is an answer of the API that is not the one wanted. It stays inside this package.
type refusal struct{ wire.Problem }

// Error implements error.
func (e *refusal) Error() string { return e.public().Error() }

func (e *refusal) public() *RefusedError {
	return &RefusedError{Code: e.Code, Status: e.Status, Detail: e.Detail}
}

// definite reports whether this is the API's own word that nothing was done and that repeating does not help. After
// everything else the call may have taken effect, or may yet succeed.
func (e *refusal) definite() bool {
	switch e.Code {
	case wire.CodeLeaseHeld.Name:
		return true
	case "": // something else answered, perhaps a balancer
		return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout &&
			e.Status != http.StatusTooEarly && e.Status != http.StatusTooManyRequests
	}
	return e.Retry != wire.RetryWait && e.Retry != wire.RetrySameKey
}

// code returns the refusal that err is and its code, nil and "" if it is none.
func code(err error) (*refusal, string) {
	var r *refusal
	if errors.As(err, &r) {
		return r, r.Code
	}
	return nil, ""
}

// unsentError is an attempt of which no byte reached the server.
type unsentError struct{ error }

// Unwrap returns what kept it from being sent.
func (e unsentError) Unwrap() error { return e.error }
