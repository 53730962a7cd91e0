package tokens

import "errors"

// Malformed names and numbers.
var (
	// ErrInvalidJobID is returned when a job id is empty, longer than
	// MaxJobID bytes, or holds a byte outside printable ASCII or one of , " \.
	ErrInvalidJobID = errors.New("invalid job id")
	// ErrInvalidGeneration is returned when a generation is not a canonical
	// decimal number from 1 to MaxGeneration.
	ErrInvalidGeneration = errors.New("invalid generation")
)

// Refusals of a write.
var (
	// ErrStaleGeneration is returned when the generation is below the floor.
	ErrStaleGeneration = errors.New("stale generation")
	// ErrUnissuedGeneration is returned when a job is issued here and the
	// generation is above the newest one that was issued.
	ErrUnissuedGeneration = errors.New("unissued generation")
	// ErrUnknownJob is returned when only issued generations are accepted and
	// the job was never claimed here.
	ErrUnknownJob = errors.New("unknown job")
	// ErrLeaseMismatch is returned when a lease id is presented that is not
	// this generation's, or when one is required and missing.
	ErrLeaseMismatch = errors.New("lease mismatch")
	// ErrLeaseExpired is returned when a live lease is required and the lease
	// has run out, though nobody took over.
	ErrLeaseExpired = errors.New("lease expired")
	// ErrKeyReused is returned when another request was sent under the same
	// key.
	ErrKeyReused = errors.New("key reused")
	// ErrAlreadyApplied is returned when the write under this key was applied;
	// the refusal's Write may hold the reply.
	ErrAlreadyApplied = errors.New("already applied")
	// ErrWriteInProgress is returned when a write under this key is in flight.
	ErrWriteInProgress = errors.New("write in progress")
	// ErrOutcomeUnknown is returned when an earlier attempt under this key has
	// an unknown outcome.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrTakeoverPending is returned when older attempts did not settle within
	// the time that a write may wait for them.
	ErrTakeoverPending = errors.New("takeover pending")
	// ErrOverloaded is returned when a job has too many attempts in flight.
	ErrOverloaded = errors.New("overloaded")
)

// Refusals of a lease operation.
var (
	// ErrLeaseHeld is returned by a claim while somebody holds the lease.
	ErrLeaseHeld = errors.New("lease held")
	// ErrLeaseLost is returned when owner, generation and lease id do not
	// match the current lease.
	ErrLeaseLost = errors.New("lease lost")
	// ErrJobCompleted is returned by a claim of a job that was completed and
	// not reopened.
	ErrJobCompleted = errors.New("job completed")
	// ErrGenerationMismatch is returned by a revocation whose expected
	// generation is not the current one.
	ErrGenerationMismatch = errors.New("generation mismatch")
	// ErrWriteNotFound is returned when a resolution names a write that the
	// store does not know.
	ErrWriteNotFound = errors.New("write not found")
	// ErrWriteSettled is returned by a resolution of a write whose outcome is
	// known.
	ErrWriteSettled = errors.New("write is settled")
	// ErrJobNotFound is returned when an operation names a job that the store
	// does not know.
	ErrJobNotFound = errors.New("job not found")
	// ErrGenerationsExhausted is returned by a claim when the next generation
	// would be above MaxGeneration.
	ErrGenerationsExhausted = errors.New("generations exhausted")
)

// Store trouble. An engine returns exactly one of the first three from a failed
// Commit, because the reaction differs.
var (
	// ErrConflict is returned when the record has changed since it was loaded:
	// nothing was written, load and decide again.
	ErrConflict = errors.New("record changed meanwhile")
	// ErrRefused is returned when nothing was written, for a reason other than
	// a conflict.
	ErrRefused = errors.New("store refused the commit")
	// ErrUnknown is returned when the change may or may not have been written.
	ErrUnknown = errors.New("outcome of the commit is unknown")
	// ErrStoreUnavailable is returned by the Authority, around the store's own
	// error, whenever it can not read or make durable what it needs. Nothing
	// was admitted.
	ErrStoreUnavailable = errors.New("store unavailable")
)

// Refusal is the answer to a write or a lease operation that was judged and
// refused. Err is one of the sentinels above, so errors.Is tells which.
type Refusal struct {
	Err error
	// Floor is the job's floor when it was judged.
	Floor Generation
	// Ended says how the refused generation ended; zero when it has not.
	Ended Ended
	// Holder, HolderGeneration and ExpiresIn (milliseconds) describe who holds
	// the lease, for ErrLeaseHeld and ErrGenerationMismatch.
	Holder           string
	HolderGeneration Generation
	ExpiresIn        int64
	// RaisedBy is the W3C traceparent of the request that raised the floor
	// last; empty when it carried none.
	RaisedBy string
	// Result is what the job was completed with, for ErrJobCompleted.
	Result []byte
	// Key and Write are the key that decided and what is known of the write
	// under it, for the refusals of a key; for ErrStaleGeneration Write is set
	// if the key is known.
	Key   string
	Write *WriteRecord
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the sentinel.
func (r *Refusal) Unwrap() error { return r.Err }
