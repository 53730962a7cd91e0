package wire

import (
	"encoding/json"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Paths of the control listener.
const (
	PathClaim       = "/v1/lease/claim"
	PathRenew       = "/v1/lease/renew"
	PathComplete    = "/v1/lease/complete"
	PathRelease     = "/v1/lease/release"
	PathRenewLeases = "/v1/leases/renew"
	PathJobs        = "/v1/jobs"
	PathJob         = "/v1/job"
	PathRevoke      = "/v1/job/revoke"
	PathFence       = "/v1/job/fence"
	PathReopen      = "/v1/job/reopen"
	PathWrites      = "/v1/writes"
	PathResolve     = "/v1/write/resolve"
	PathHealth      = "/healthz"
	PathReady       = "/readyz"
	PathMetrics     = "/metrics"
)

// Limits of the lease API.
const (
	// MaxName is the longest owner and the longest claim id, in bytes.
	MaxName = 256
	// MaxReason is the longest reason of an operator, in bytes.
	MaxReason = 1 << 10
	// MaxResult is the largest result of a job, in bytes of JSON.
	MaxResult = 16 << 10
	// MaxBody and MaxBatchBody bound a request body, in bytes; the second is
	// for PathRenewLeases.
	MaxBody      = 64 << 10
	MaxBatchBody = 1 << 20
	// DefaultPage and MaxPage are how many jobs a list holds.
	DefaultPage = 100
	MaxPage     = 1000
)

// The tag wire:"required" demands that a field is there and not null; wire:"nonzero"
// that it is not empty or 0 if it is there. Both are checked by Decode. Durations are
// in milliseconds.

// ClaimRequest is the body of PathClaim.
type ClaimRequest struct {
	JobID string `json:"job_id" wire:"required"`
	Owner string `json:"owner" wire:"required"`
	TTL   int64  `json:"ttl_ms" wire:"required"`
	// ClaimID names this claim. Whoever knows it with the owner gets the lease
	// id again, so it is shown to nobody else.
	ClaimID string `json:"claim_id,omitempty" wire:"nonzero"`
	// Wait is how long to wait for the lease to fall free, Settle how long to
	// wait then for older attempts.
	Wait   int64 `json:"wait_ms,omitempty"`
	Settle int64 `json:"settle_ms,omitempty"`
}

// ClaimResponse is the answer to a claim: 201 if it was granted now, 200 if it had been
// granted to the same claim id before.
type ClaimResponse struct {
	JobID      string            `json:"job_id"`
	Owner      string            `json:"owner"`
	Generation tokens.Generation `json:"generation"`
	LeaseID    string            `json:"lease_id"`
	TTL        int64             `json:"ttl_ms"`
	ExpiresIn  int64             `json:"expires_in_ms"`
	LeaseUntil string            `json:"lease_until"`
	// Predecessor is null on a first claim.
	Predecessor *Predecessor `json:"predecessor"`
}

// Predecessor is what is known of the generation before a claim.
type Predecessor struct {
	Generation tokens.Generation `json:"generation"`
	Owner      string            `json:"owner"`
	Ended      tokens.Ended      `json:"ended"`
	// InFlight counts its attempts that are not settled.
	InFlight int    `json:"in_flight"`
	Writes   Writes `json:"writes"`
	// Unresolved is never null.
	Unresolved []Write `json:"unresolved"`
}

// Writes counts settled writes by outcome.
type Writes struct {
	Applied  int64 `json:"applied"`
	Declined int64 `json:"declined"`
	Unknown  int64 `json:"unknown"`
}

// Write is a keyed write as it is shown.
type Write struct {
	// JobID is left out where the job is known.
	JobID      string            `json:"job_id,omitempty"`
	Key        string            `json:"key"`
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	Route      string            `json:"route"`
	Generation tokens.Generation `json:"generation"`
	State      tokens.WriteState `json:"state"`
	Started    string            `json:"started"`
	// Settled, Status and Location are left out while they are not known.
	Settled  string `json:"settled,omitempty"`
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"`
	// ReplyKept tells that the reply can be repeated, Resolved that an operator
	// said what became of the write.
	ReplyKept bool `json:"reply_kept,omitempty"`
	Resolved  bool `json:"resolved,omitempty"`
}

// WriteFrom shows a keyed write.
func WriteFrom(l tokens.ListedWrite) Write {
	r := l.Record
	w := Write{
		JobID: l.Job.ID, Key: l.Key, Method: r.Method, Path: r.Path, Route: r.Route, Generation: r.Generation, State: r.State,
		Started: FormatTime(r.Started), Status: r.Status, Location: r.Location, ReplyKept: r.HasReply, Resolved: r.Resolved,
	}
	if r.Settled != 0 {
		w.Settled = FormatTime(r.Settled)
	}
	return w
}

// WritesResponse is the answer to PathWrites.
type WritesResponse struct {
	// Writes is never null.
	Writes []Write `json:"writes"`
}

// ResolveRequest is the body of PathResolve.
type ResolveRequest struct {
	JobID   string         `json:"job_id" wire:"required"`
	Key     string         `json:"key" wire:"required"`
	Outcome tokens.Verdict `json:"outcome" wire:"required"`
	Reason  string         `json:"reason,omitempty"`
}

// RenewRequest is the body of PathRenew, and one entry of PathRenewLeases.
type RenewRequest struct {
	JobID      string            `json:"job_id" wire:"required"`
	Owner      string            `json:"owner" wire:"required"`
	Generation tokens.Generation `json:"generation" wire:"required"`
	LeaseID    string            `json:"lease_id" wire:"required"`
	// TTL is the lease's present one if it is nil.
	TTL *int64 `json:"ttl_ms,omitempty"`
}

// RenewResponse is the answer to a renew.
type RenewResponse struct {
	ExpiresIn  int64  `json:"expires_in_ms"`
	LeaseUntil string `json:"lease_until"`
	// Lapsed tells that the lease had run out, and nobody had taken it.
	Lapsed bool `json:"lapsed"`
}

// RenewLeasesRequest is the body of PathRenewLeases.
type RenewLeasesRequest struct {
	Leases []RenewRequest `json:"leases" wire:"required"`
}

// RenewLeasesResponse answers each entry, in the order of the request.
type RenewLeasesResponse struct {
	Leases []RenewAnswer `json:"leases"`
}

// RenewAnswer is the answer to one entry: the renewal if Status is 200, else the
// problem.
type RenewAnswer struct {
	JobID      string            `json:"job_id"`
	Generation tokens.Generation `json:"generation"`
	Status     int               `json:"status"`
	*RenewResponse
	Problem *Problem `json:"problem,omitempty"`
}

// CompleteRequest is the body of PathComplete.
type CompleteRequest struct {
	JobID      string            `json:"job_id" wire:"required"`
	Owner      string            `json:"owner" wire:"required"`
	Generation tokens.Generation `json:"generation" wire:"required"`
	LeaseID    string            `json:"lease_id" wire:"required"`
	// Result is any JSON.
	Result json.RawMessage `json:"result,omitempty"`
	// Wait is how long to wait for attempts in flight.
	Wait int64 `json:"wait_ms,omitempty"`
	// TTL is accepted so that the body of a renew fits; it has no effect.
	TTL *int64 `json:"ttl_ms,omitempty"`
}

// ReleaseRequest is the body of PathRelease.
type ReleaseRequest struct {
	JobID      string            `json:"job_id" wire:"required"`
	Owner      string            `json:"owner" wire:"required"`
	Generation tokens.Generation `json:"generation" wire:"required"`
	LeaseID    string            `json:"lease_id" wire:"required"`
	// Wait is how long to wait for attempts in flight.
	Wait int64 `json:"wait_ms,omitempty"`
	// TTL is accepted so that the body of a renew fits; it has no effect.
	TTL *int64 `json:"ttl_ms,omitempty"`
}

// EndResponse is the answer to a completion or a release.
type EndResponse struct {
	JobID      string            `json:"job_id"`
	Generation tokens.Generation `json:"generation"`
	Floor      tokens.Generation `json:"floor"`
	// InFlight counts the attempts of the closed generation that are not
	// settled.
	InFlight int `json:"in_flight"`
	// Repeated tells that the same call took effect before.
	Repeated bool `json:"repeated"`
}

// RevokeRequest is the body of PathRevoke.
type RevokeRequest struct {
	JobID string `json:"job_id" wire:"required"`
	// Expected is the generation that the operator means; zero, which is not
	// sent, means whichever is current.
	Expected tokens.Generation `json:"expected_generation,omitempty" wire:"nonzero"`
	Reason   string            `json:"reason,omitempty"`
}

// FenceRequest is the body of PathFence.
type FenceRequest struct {
	JobID  string            `json:"job_id" wire:"required"`
	Floor  tokens.Generation `json:"floor" wire:"required"`
	Reason string            `json:"reason,omitempty"`
}

// ReopenRequest is the body of PathReopen.
type ReopenRequest struct {
	JobID  string `json:"job_id" wire:"required"`
	Reason string `json:"reason,omitempty"`
}

// JobView is a job as operators see it. It holds neither the lease id nor the claim id.
type JobView struct {
	JobID     string       `json:"job_id"`
	Namespace string       `json:"namespace,omitempty"`
	State     tokens.State `json:"state"`
	// Generation is the newest one that was in use, 0 if none was.
	Generation tokens.Generation `json:"generation"`
	Floor      tokens.Generation `json:"floor"`
	// InFlight counts the job's attempts that are not settled.
	InFlight int `json:"in_flight"`
	// Lease is null unless somebody holds the lease or let it lapse.
	Lease *LeaseView `json:"lease"`
	// Past holds the last generations that ended, newest last; never null.
	Past   []PastView      `json:"past"`
	Result json.RawMessage `json:"result,omitempty"`
	// RaisedAt is when the floor rose last, RaisedBy the W3C traceparent of the
	// request that raised it.
	RaisedAt string `json:"raised_at,omitempty"`
	RaisedBy string `json:"raised_by,omitempty"`
}

// LeaseView is a lease without its secrets.
type LeaseView struct {
	Owner string `json:"owner"`
	TTL   int64  `json:"ttl_ms"`
	// ExpiresIn is negative once the lease ran out.
	ExpiresIn  int64  `json:"expires_in_ms"`
	LeaseUntil string `json:"lease_until"`
	Granted    string `json:"granted"`
	Renewed    string `json:"renewed,omitempty"`
}

// PastView is a generation that ended.
type PastView struct {
	Generation tokens.Generation `json:"generation"`
	Owner      string            `json:"owner,omitempty"`
	Ended      tokens.Ended      `json:"ended"`
}

// JobsResponse is the answer to PathJobs.
type JobsResponse struct {
	// Jobs is never null.
	Jobs []JobView `json:"jobs"`
	// Cursor asks for the next page; empty on the last one.
	Cursor string `json:"cursor,omitempty"`
}

// HealthResponse is the answer to PathHealth and PathReady.
type HealthResponse struct {
	Status string `json:"status"`
}

// FormatTime returns a store time, in milliseconds since the Unix epoch, as RFC 3339 in
// UTC with milliseconds.
func FormatTime(millis int64) string {
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z")
}
