package wire

// Request headers of a fenced write. The names are the defaults; the configuration can
// change them.
const (
	// HeaderJobID names the job.
	HeaderJobID = "Fence-Job-Id"
	// HeaderGeneration is the writer's generation in a request, and the job's
	// floor after the decision in a response.
	HeaderGeneration = "Fence-Generation"
	// HeaderLease carries the secret lease id of the claim. It is never logged.
	HeaderLease = "Fence-Lease"
	// HeaderKey names the intent of the write within its job.
	HeaderKey = "Idempotency-Key"
)

// Response headers on every answer of a fenced route.
const (
	// HeaderDecision is forwarded, replayed or refused.
	HeaderDecision = "Fence-Decision"
	// HeaderReason is the code of a refusal.
	HeaderReason = "Fence-Reason"
	// HeaderOutcome is applied, declined, not-sent or unknown.
	HeaderOutcome = "Fence-Outcome"
	// HeaderReplayed is "true" on a replay.
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderWouldRefuse is the code with which an observing route would have
	// refused.
	HeaderWouldRefuse = "Fence-Would-Refuse"
)

// Values of HeaderDecision.
const (
	DecisionForwarded = "forwarded"
	DecisionReplayed  = "replayed"
	DecisionRefused   = "refused"
)

// Media types of the answers that fenceproxy makes itself.
const (
	TypeJSON = "application/json"
	// TypeProblem is the media type of a refusal (RFC 9457, section 3).
	TypeProblem = "application/problem+json"
)
