package tokens

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Grant is the answer to a claim.
type Grant struct {
	Lease Lease
	// ExpiresIn is what is left of the lease in milliseconds when the claim
	// returned, by the store's time.
	ExpiresIn int64
	// Repeated tells that the lease was already granted to this claim.
	Repeated bool
	// Predecessor is nil on a job's first claim.
	Predecessor *Predecessor
}

// Predecessor is what is known of the generation before a claim.
type Predecessor struct {
	Generation Generation
	Owner      string
	Ended      Ended
	// InFlight counts the older attempts that are not settled.
	InFlight int
	// Writes counts the settled ones: those with a key, and those without that
	// this process has seen.
	Writes Tally
	// Unresolved are the keyed writes of the job that are in flight or unknown,
	// whichever generation made them, at most maxUnresolved.
	Unresolved []ListedWrite
}

// maxUnresolved bounds the report of a claim.
const maxUnresolved = 100

// claimant is a claim that waits for its turn.
type claimant struct{ turn chan struct{} }

// wakeClaimant tells the first in line to look. The shard is locked.
func (j *job) wakeClaimant() {
	if len(j.claimants) > 0 {
		select {
		case j.claimants[0].turn <- struct{}{}:
		default:
		}
	}
}

// Claim grants the lease of a job that has no holder or whose lease has run out, and
// raises the floor durably before it returns. While somebody holds the lease it waits
// up to wait, first come first served. settle bounds how long it then waits for older
// attempts, so that its report is final. The error is a *Refusal (ErrLeaseHeld,
// ErrJobCompleted, ErrGenerationsExhausted), wraps ErrStoreUnavailable, or is the cause
// of ctx.
func (a *Authority) Claim(ctx context.Context, c ClaimRequest, wait, settle time.Duration) (Grant, error) {
	defer a.forget(c.Job) // if it came to nothing
	var me *claimant
	if wait > 0 {
		me = a.enqueue(c.Job)
	}
	grant, err := a.claimInLine(ctx, c, me, wait)
	if me != nil {
		a.dequeue(c.Job, me) // before the report: the next in line must not wait for it
	}
	if err == nil && grant.Predecessor != nil {
		err = a.report(ctx, c.Job, grant.Predecessor, settle)
	}
	return grant, err
}

// claimInLine claims until it is granted, at most wait long.
func (a *Authority) claimInLine(ctx context.Context, c ClaimRequest, me *claimant, wait time.Duration) (Grant, error) {
	deadline := time.Now().Add(wait)
	for {
		grant, ref, err := a.tryClaim(ctx, c, me)
		if err != nil {
			return Grant{}, err
		}
		if ref == nil {
			return grant, nil
		}
		left := time.Until(deadline)
		if !errors.Is(ref, ErrLeaseHeld) || left <= 0 {
			return Grant{}, ref
		}
		if first := ref.ExpiresIn; first > 0 {
			left = min(left, time.Duration(first)*time.Millisecond)
		}
		if err := await(ctx, me.turn, left); err != nil {
			return Grant{}, err
		}
	}
}

func (a *Authority) enqueue(key Job) *claimant {
	me := &claimant{turn: make(chan struct{}, 1)}
	s := a.shardOf(key)
	s.mu.Lock()
	j := s.job(key, max(1, a.opt.MaxCached/shardCount))
	j.claimants = append(j.claimants, me)
	s.mu.Unlock()
	return me
}

func (a *Authority) dequeue(key Job, me *claimant) {
	s := a.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[key]
	for i, c := range j.claimants {
		if c == me {
			j.claimants = append(j.claimants[:i:i], j.claimants[i+1:]...)
			break
		}
	}
	j.wakeClaimant()
}

// behind reports whether somebody waits for the job's lease in front of me.
func (a *Authority) behind(key Job, me *claimant) bool {
	s := a.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[key]
	return j != nil && len(j.claimants) > 0 && j.claimants[0] != me
}

// tryClaim claims once.
func (a *Authority) tryClaim(ctx context.Context, c ClaimRequest, me *claimant) (Grant, *Refusal, error) {
	id, err := a.newLeaseID()
	if err != nil {
		return Grant{}, nil, err
	}
	var (
		g   Grant
		ref *Refusal
		at  clock
	)
	err = a.do(ctx, c.Job, func(d *draft) {
		at = readClock(d.Snapshot)
		next, repeated, r := claim(d.Record, a.base, c, at.millis, a.heldUntil(d.Record.Lease), id)
		if r == nil && !repeated && a.behind(c.Job, me) {
			r = &Refusal{Err: ErrLeaseHeld, Floor: d.Record.floorFrom(a.base), HolderGeneration: d.Record.current()}
		}
		if ref = r; r != nil {
			return
		}
		g = Grant{Lease: *next.Lease, Repeated: repeated, Predecessor: predecessor(next)}
		if !repeated {
			d.set(next)
		}
	})
	if err != nil {
		return Grant{}, nil, err // apply may still be running: ref is not ours
	}
	if ref != nil {
		return Grant{}, ref, nil
	}
	g.ExpiresIn = at.left(g.Lease.Until)
	return g, nil, nil
}

// heldUntil is the time until which a lease keeps others out. One that was alive when
// the previous process was last known to run, and that its holder could not renew
// since, keeps them out a grace longer: a restart must not cost a holder its lease.
func (a *Authority) heldUntil(l *Lease) int64 {
	if l == nil {
		return 0
	}
	opened := a.info.Opened.UnixMilli()
	if a.info.Opened.IsZero() || max(l.Granted, l.Renewed) >= opened || l.Until <= a.info.LastKnown.UnixMilli() {
		return l.Until
	}
	return max(l.Until, opened+a.opt.RestartGrace.Milliseconds())
}

func predecessor(r Record) *Predecessor {
	for i := len(r.Past) - 1; i >= 0; i-- {
		if p := r.Past[i]; p.Generation < r.Lease.Generation {
			return &Predecessor{Generation: p.Generation, Owner: p.Owner, Ended: p.Ended}
		}
	}
	return nil
}

// report waits up to wait for older attempts and fills in what they came to.
func (a *Authority) report(ctx context.Context, key Job, p *Predecessor, wait time.Duration) error {
	p.InFlight = a.awaitOlder(ctx, key, wait)
	open, err := a.Writes(ctx, WritesQuery{Job: key, Open: true, Limit: maxUnresolved}, "")
	if err != nil {
		return err
	}
	p.Unresolved = open
	snap, err := a.store.Load(ctx, key)
	if err != nil {
		return fmt.Errorf("%w: load record: %w", ErrStoreUnavailable, err)
	}
	p.Writes = snap.Record.tallyOf(p.Generation)
	for _, w := range open {
		if w.Record.Generation == p.Generation && w.Record.State == WriteUnknown {
			p.Writes.Unknown++
		}
	}
	s := a.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[key]; j != nil {
		for _, t := range j.tally {
			if t.Generation == p.Generation {
				p.Writes.Applied += t.Applied
				p.Writes.Declined += t.Declined
				p.Writes.Unknown += t.Unknown
			}
		}
	}
	return nil
}

// awaitOlder waits until no attempt below the job's floor is in flight, at most wait,
// and returns how many are.
func (a *Authority) awaitOlder(ctx context.Context, key Job, wait time.Duration) int {
	deadline := time.Now().Add(wait)
	s := a.shardOf(key)
	for {
		s.mu.Lock()
		j := s.jobs[key]
		if j == nil || j.older == 0 {
			s.mu.Unlock()
			return 0
		}
		n, changed := j.older, j.signal()
		s.mu.Unlock()
		left := time.Until(deadline)
		if left <= 0 || await(ctx, changed, left) != nil {
			return n
		}
	}
}

// Renewal is the answer to a renew.
type Renewal struct {
	Lease     Lease
	ExpiresIn int64
	// Lapsed tells that the lease had run out, and nobody had taken it.
	Lapsed bool
}

// Renew extends a lease that ref still names, to ttl milliseconds from now; zero means
// the ttl that it has. It never grants anew. The error is a *Refusal (ErrLeaseLost),
// wraps ErrStoreUnavailable, or is the cause of ctx.
func (a *Authority) Renew(ctx context.Context, ref LeaseRef, ttl int64) (Renewal, error) {
	var (
		out  Renewal
		lost *Refusal
		at   clock
	)
	err := a.ask(ctx, ref.Job, func(d *draft) {
		at = readClock(d.Snapshot)
		var next Record
		if next, out.Lapsed, lost = renew(d.Record, a.base, ref, ttl, at.millis); lost == nil {
			out.Lease = *next.Lease
			d.set(next)
		}
	})
	if err != nil {
		return Renewal{}, err
	}
	if lost != nil {
		return Renewal{}, lost
	}
	out.ExpiresIn = at.left(out.Lease.Until)
	return out, nil
}

// Ending is the answer to a release or a completion.
type Ending struct {
	Floor Generation
	// Repeated tells that the same call took effect before.
	Repeated bool
	// InFlight counts the attempts of the closed generation that are not
	// settled.
	InFlight int
}

// Release closes the generation at once, then waits up to wait for its attempts in
// flight. Repeating one that took effect is no error. The error is as for Renew.
func (a *Authority) Release(ctx context.Context, ref LeaseRef, wait time.Duration, trace string) (Ending, error) {
	return a.end(ctx, ref, Released, nil, wait, trace)
}

// Complete is a Release after which the job can not be claimed until it is reopened;
// a claim is answered with result, any JSON.
func (a *Authority) Complete(ctx context.Context, ref LeaseRef, result []byte, wait time.Duration, trace string) (Ending, error) {
	return a.end(ctx, ref, Completed, result, wait, trace)
}

func (a *Authority) end(ctx context.Context, ref LeaseRef, how Ended, result []byte, wait time.Duration, trace string) (Ending, error) {
	var (
		out  Ending
		lost *Refusal
	)
	err := a.ask(ctx, ref.Job, func(d *draft) {
		var next Record
		next, out.Repeated, lost = end(d.Record, a.base, ref, how, result, d.Now.UnixMilli(), trace)
		out.Floor = next.floorFrom(a.base)
		if lost == nil && !out.Repeated {
			d.set(next)
		}
	})
	if err != nil {
		return Ending{}, err
	}
	if lost != nil {
		return Ending{}, lost
	}
	out.InFlight = a.awaitOlder(ctx, ref.Job, wait)
	return out, nil
}

// clock carries the store's time from a snapshot over the commit that followed.
type clock struct {
	millis int64
	read   time.Time
}

func readClock(s Snapshot) clock { return clock{millis: s.Now.UnixMilli(), read: time.Now()} }

// left is how long it is until the given store time, never negative.
func (c clock) left(until int64) int64 {
	return max(0, until-c.millis-time.Since(c.read).Milliseconds())
}
