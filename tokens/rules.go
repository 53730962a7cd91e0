package tokens

// ClaimRequest asks for the lease of a job.
type ClaimRequest struct {
	Job   Job
	Owner string
	// TTL is in milliseconds.
	TTL int64
	// ClaimID names this claim; the same id gets the same lease again while it
	// is current, because a lost reply must not lock its owner out.
	ClaimID string
	Trace   string
}

// LeaseRef names the lease that an operation is about. All of it has to match.
type LeaseRef struct {
	Job        Job
	Owner      string
	Generation Generation
	LeaseID    string
}

// claim grants the lease if nobody holds it. heldUntil is the time until which the
// present lease counts as held, at least its Until (see Authority.heldUntil). id
// is the secret of a new lease. repeated tells that the lease was already this
// claim's.
func claim(r Record, base Generation, c ClaimRequest, now, heldUntil int64, id string) (next Record, repeated bool, ref *Refusal) {
	floor := r.floorFrom(base)
	if r.Completed {
		return r, false, &Refusal{Err: ErrJobCompleted, Floor: floor, Result: r.Result}
	}
	// A lease from before a restore is dead, however much of it is left.
	if l := r.Lease; l != nil && l.Generation >= base && now < heldUntil {
		if c.ClaimID != "" && l.ClaimID == c.ClaimID && l.Owner == c.Owner && now < l.Until {
			return r, true, nil
		}
		return r, false, &Refusal{Err: ErrLeaseHeld, Floor: floor, Holder: l.Owner, HolderGeneration: l.Generation, ExpiresIn: heldUntil - now}
	}
	g := max(r.Seen, base) + 1
	g = max(g, r.Floor)
	if g > MaxGeneration {
		return r, false, &Refusal{Err: ErrGenerationsExhausted, Floor: floor}
	}
	if l := r.Lease; l != nil {
		r = r.withPast(Past{Generation: l.Generation, Owner: l.Owner, ID: l.ID, Ended: Superseded})
	} else if r.Issued == 0 && r.Seen > 0 {
		r = r.withPast(Past{Generation: r.Seen, Ended: r.endedAs(r.Seen)})
	}
	r.Lease = &Lease{Generation: g, Owner: c.Owner, ID: id, ClaimID: c.ClaimID, TTL: c.TTL, Until: now + c.TTL, Granted: now}
	r.Issued, r.Seen = g, g
	return r.raised(g, now, c.Trace), false, nil
}

// holds reports whether ref names the current lease.
func (r Record) holds(base Generation, ref LeaseRef) bool {
	l := r.Lease
	return l != nil && l.Generation == ref.Generation && l.Generation >= base && l.Owner == ref.Owner && sameSecret(l.ID, ref.LeaseID)
}

// lost is the refusal of a lease operation. Its Ended is empty when the reason is
// not known: the job or the generation was never issued, or the lease id is wrong.
func (r Record) lost(base Generation, ref LeaseRef) *Refusal {
	f := &Refusal{Err: ErrLeaseLost, Floor: r.floorFrom(base), RaisedBy: r.RaisedBy}
	if r.Issued > 0 && ref.Generation > 0 && ref.Generation < f.Floor && ref.Generation <= r.Issued {
		f.Ended = r.endedAs(ref.Generation)
	}
	return f
}

// renew extends the lease to ttl milliseconds from now, never back. lapsed tells
// that it had run out. It never grants anew.
func renew(r Record, base Generation, ref LeaseRef, ttl, now int64) (next Record, lapsed bool, _ *Refusal) {
	if !r.holds(base, ref) {
		return r, false, r.lost(base, ref)
	}
	l := *r.Lease
	if ttl == 0 {
		ttl = l.TTL
	}
	lapsed = now >= l.Until
	l.TTL, l.Renewed = ttl, now
	l.Until = max(l.Until, now+ttl)
	r.Lease = &l
	return r, lapsed, nil
}

// end closes the generation: as Released, or as Completed with a result. repeated
// tells that the same call took effect before.
func end(r Record, base Generation, ref LeaseRef, how Ended, result []byte, now int64, trace string) (next Record, repeated bool, _ *Refusal) {
	if !r.holds(base, ref) {
		for _, p := range r.Past {
			if p.Generation == ref.Generation && p.Ended == how && p.Owner == ref.Owner && sameSecret(p.ID, ref.LeaseID) {
				return r, true, nil
			}
		}
		return r, false, r.lost(base, ref)
	}
	r = r.closed(how, now, trace)
	if how == Completed {
		r.Completed, r.Result = true, result
	}
	return r, false, nil
}

// closed ends the current lease and kills its generation at once.
func (r Record) closed(how Ended, now int64, trace string) Record {
	l := r.Lease
	r = r.withPast(Past{Generation: l.Generation, Owner: l.Owner, ID: l.ID, Ended: how})
	r.Lease = nil
	return r.raised(l.Generation+1, now, trace)
}

// revoke kills the current generation, whoever holds it. expected is the
// generation that the operator means; zero means the current one. Repeating a
// revocation changes nothing.
func revoke(r Record, base, expected Generation, now int64, trace string) (Record, *Refusal) {
	current := r.current()
	if expected != 0 && expected != current {
		f := &Refusal{Err: ErrGenerationMismatch, Floor: r.floorFrom(base), HolderGeneration: current}
		if r.Lease != nil {
			f.Holder = r.Lease.Owner
		}
		return r, f
	}
	if r.Lease != nil {
		return r.closed(Revoked, now, trace), nil
	}
	if r.floorFrom(base) > current {
		return r, nil
	}
	r = r.withPast(Past{Generation: current, Ended: Revoked})
	return r.raised(current+1, now, trace), nil
}

// fence raises the floor to at least floor. A lease below it is revoked. On a job
// that follows an outside issuer the floor counts as seen: its issuer uses it.
func fence(r Record, floor Generation, now int64, trace string) Record {
	if floor <= r.Floor {
		return r
	}
	switch {
	case r.Lease != nil && r.Lease.Generation < floor:
		l := r.Lease
		r = r.withPast(Past{Generation: l.Generation, Owner: l.Owner, ID: l.ID, Ended: Revoked})
		r.Lease = nil
	case r.Issued == 0:
		if r.Seen > 0 {
			r = r.withPast(Past{Generation: r.Seen, Ended: Superseded})
		}
		r.Seen = max(r.Seen, floor)
	}
	return r.raised(floor, now, trace)
}

// reopen lets a completed job be claimed again.
func reopen(r Record) Record {
	r.Completed, r.Result = false, nil
	return r
}
