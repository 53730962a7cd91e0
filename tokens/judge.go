package tokens

import "crypto/subtle"

// Write is what the rules need to know of a write.
type Write struct {
	Job        Job
	Generation Generation
	// LeaseID is the Fence-Lease that the write presented; empty if none.
	LeaseID string
	// RequireLease refuses a write without a lease id; LiveLease one whose
	// lease has run out; IssuedOnly one of a job that was never claimed here.
	RequireLease bool
	LiveLease    bool
	IssuedOnly   bool
	// Trace is the W3C traceparent of the write, kept if it raises the floor.
	Trace string
	Keying
}

// verdict of a write that was not refused.
type verdict uint8

const (
	// verdictGo: nothing durable changes.
	verdictGo verdict = iota
	// verdictRaise: the floor has to rise to the write's generation first.
	verdictRaise
)

// judge decides whether a write may be admitted, by checks 2 of the protocol in
// their order: floor, issued or not, lease id, live lease. It allocates only to
// refuse.
func judge(r *Record, base Generation, w *Write, now int64) (verdict, *Refusal) {
	floor := r.floorFrom(base)
	switch {
	case w.Generation < floor:
		return 0, &Refusal{Err: ErrStaleGeneration, Floor: floor, Ended: r.endedAs(w.Generation), RaisedBy: r.RaisedBy}
	case r.Issued > 0 && w.Generation > r.Issued:
		return 0, &Refusal{Err: ErrUnissuedGeneration, Floor: floor}
	case r.Issued == 0 && w.IssuedOnly:
		return 0, &Refusal{Err: ErrUnknownJob, Floor: floor}
	}
	if w.LeaseID != "" || w.RequireLease {
		if r.Lease == nil || r.Lease.Generation != w.Generation || !sameSecret(r.Lease.ID, w.LeaseID) {
			return 0, &Refusal{Err: ErrLeaseMismatch, Floor: floor}
		}
	}
	if w.LiveLease && (r.Lease == nil || r.Lease.Generation != w.Generation || now >= r.Lease.Until) {
		return 0, &Refusal{Err: ErrLeaseExpired, Floor: floor}
	}
	// On a job that follows an outside issuer a write at the floor itself may be the
	// first of its generation, after a revocation. It has to be remembered as seen,
	// or a claim would issue the same generation again.
	if w.Generation > r.Floor || r.Issued == 0 && w.Generation > r.Seen {
		return verdictRaise, nil
	}
	return verdictGo, nil
}

// follow raises the floor to the generation of a write that judge wants raised.
// Only a job that was never claimed here, or one from before a restore, gets here.
func follow(r Record, w *Write, now int64) Record {
	if r.Seen > 0 && w.Generation > r.Seen {
		r = r.withPast(Past{Generation: r.Seen, Ended: r.endedAs(r.Seen)})
	}
	r = r.raised(w.Generation, now, w.Trace)
	r.Seen = max(r.Seen, w.Generation)
	return r
}

// sameSecret compares in constant time, so that a lease id can not be guessed byte
// by byte.
func sameSecret(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
