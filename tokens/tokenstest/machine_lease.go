package tokenstest

import (
	"context"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// pick draws one of the jobs.
func (m *machine) pick(t *rapid.T) *modelJob {
	return m.jobs[rapid.IntRange(0, len(m.jobs)-1).Draw(t, "job")]
}

func (m *machine) claim(t *rapid.T) {
	j := m.pick(t)
	c := tokens.ClaimRequest{
		Job: j.key, TTL: m.ttl,
		Owner:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
		ClaimID: rapid.SampledFrom([]string{"", "c1", "c2"}).Draw(t, "claim id"),
	}
	now := m.now(t, j)
	next := j.state
	var refusal error
	repeated := false
	switch l := j.lease; {
	case j.completed:
		refusal = tokens.ErrJobCompleted
	case l.Generation != 0 && l.Generation >= m.base && now < l.Until:
		repeated = c.ClaimID != "" && c.ClaimID == l.ClaimID && c.Owner == l.Owner
		if !repeated {
			refusal = tokens.ErrLeaseHeld
		}
	default:
		g := max(j.seen+1, m.base+1, j.state.floor)
		next.lease = tokens.Lease{Generation: g, Owner: c.Owner, ClaimID: c.ClaimID}
		next.issued, next.seen, next.floor = g, g, g
	}
	first := j.seen == 0
	old := j.state
	grant, err := m.a.Claim(context.Background(), c, 0, 0)
	if !m.answer(t, "claim", j, refusal, next, err) {
		return
	}
	if grant.Repeated != repeated || grant.Lease.Generation != next.lease.Generation || grant.Lease.Owner != c.Owner {
		t.Fatalf("%s: claim answered %+v, want generation %d, repeated %v", j.key, grant, next.lease.Generation, repeated)
	}
	if repeated {
		if grant.Lease != old.lease {
			t.Fatalf("%s: a repeated claim answered another lease", j.key)
		}
		j.lease = old.lease
		return
	}
	if first != (grant.Predecessor == nil) {
		t.Fatalf("%s: claim after state %+v says that its predecessor is %+v", j.key, old, grant.Predecessor)
	}
	if grant.Lease.Until != grant.Lease.Granted+m.ttl || grant.Lease.Granted < now {
		t.Fatalf("%s: a lease of %d ms runs from %d to %d, asked for at %d", j.key, m.ttl, grant.Lease.Granted, grant.Lease.Until, now)
	}
	m.grant(t, j, grant.Lease)
	j.lease = grant.Lease
	if old.lease.Generation != 0 {
		j.ended[old.lease.Generation] = tokens.Superseded
	}
}

// ref draws the lease that an operation is about: the current one, an old one or a
// forged one.
func (m *machine) ref(t *rapid.T, j *modelJob) tokens.LeaseRef {
	ref := tokens.LeaseRef{Job: j.key, Owner: "a", Generation: max(1, j.issued), LeaseID: m.store.Info().ID + ".forged"}
	var known []tokens.LeaseRef
	for g := max(j.issued, 5) - 4; g <= j.issued; g++ {
		if r, ok := j.granted[g]; ok {
			known = append(known, r)
		}
	}
	if len(known) > 0 {
		ref = known[len(known)-1]
	}
	switch rapid.IntRange(0, 9).Draw(t, "which lease") {
	case 0:
		ref.LeaseID += "x"
	case 1:
		ref.Owner += "x"
	case 2:
		ref.Generation++
	case 3, 4:
		if len(known) > 0 {
			ref = rapid.SampledFrom(known).Draw(t, "known lease")
		}
	}
	return ref
}

func (j *modelJob) holds(base tokens.Generation, ref tokens.LeaseRef) bool {
	l := j.lease
	return l.Generation != 0 && l.Generation >= base && l.Generation == ref.Generation && l.Owner == ref.Owner && l.ID == ref.LeaseID
}

func (m *machine) renew(t *rapid.T) {
	j := m.pick(t)
	ref := m.ref(t, j)
	now := m.now(t, j)
	var refusal error
	if !j.holds(m.base, ref) {
		refusal = tokens.ErrLeaseLost
	}
	old := j.lease
	got, err := m.a.Renew(context.Background(), ref, m.ttl)
	if !m.answer(t, "renew", j, refusal, j.state, err) {
		return
	}
	if lapsed := now >= old.Until; got.Lapsed != lapsed {
		t.Fatalf("%s: renewed at %d a lease until %d: lapsed %v, want %v", j.key, now, old.Until, got.Lapsed, lapsed)
	}
	if got.Lease.Until < max(old.Until, now+m.ttl) || got.Lease.Generation != old.Generation || got.Lease.ID != old.ID {
		t.Fatalf("%s: renewed at %d: %+v from %+v", j.key, now, got.Lease, old)
	}
	j.lease = got.Lease
}

func (m *machine) end(t *rapid.T, how tokens.Ended) {
	j := m.pick(t)
	ref := m.ref(t, j)
	next := j.state
	var refusal error
	repeated := false
	if j.holds(m.base, ref) {
		next.lease, next.floor = tokens.Lease{}, max(next.floor, j.lease.Generation+1)
		next.completed = how == tokens.Completed
	} else {
		refusal = tokens.ErrLeaseLost
		old, known := j.granted[ref.Generation]
		if known && old == ref && (j.ended[ref.Generation] == how || j.ended[ref.Generation] == "") {
			repeated = true
		}
	}
	var ending tokens.Ending
	var err error
	if how == tokens.Completed {
		ending, err = m.a.Complete(context.Background(), ref, []byte(`{"ok":true}`), 0, "")
	} else {
		ending, err = m.a.Release(context.Background(), ref, 0, "")
	}
	if repeated && err == nil && ending.Repeated {
		return // an older one may be forgotten, and then it is lost
	}
	if m.answer(t, "end as "+string(how), j, refusal, next, err) {
		j.ended[ref.Generation] = how
		if ending.Repeated || ending.Floor != m.floor(j) {
			t.Fatalf("%s: ended generation %d: %+v, want floor %d", j.key, ref.Generation, ending, m.floor(j))
		}
	}
}

func (m *machine) revoke(t *rapid.T) {
	j := m.pick(t)
	current := j.issued
	if current == 0 {
		current = j.seen
	}
	expected := rapid.SampledFrom([]tokens.Generation{0, current, current + 1}).Draw(t, "expected")
	next := j.state
	var refusal error
	switch {
	case j.state.floor == 0:
		refusal = tokens.ErrJobNotFound
	case expected != 0 && expected != current:
		refusal = tokens.ErrGenerationMismatch
	case j.lease.Generation != 0:
		next.lease, next.floor = tokens.Lease{}, max(next.floor, j.lease.Generation+1)
	case m.floor(j) <= current:
		next.floor = current + 1
	}
	_, err := m.a.Revoke(context.Background(), j.key, expected, "")
	old := j.lease
	if m.answer(t, "revoke", j, refusal, next, err) && old.Generation != 0 {
		j.ended[old.Generation] = tokens.Revoked
	}
}

func (m *machine) fence(t *rapid.T) {
	j := m.pick(t)
	f := rapid.SampledFrom([]tokens.Generation{1, m.floor(j), m.floor(j) + 1, m.floor(j) + 3}).Draw(t, "floor")
	f = max(1, f)
	next := j.state
	if f > next.floor {
		next.floor = f
		switch {
		case next.lease.Generation != 0 && next.lease.Generation < f:
			next.lease = tokens.Lease{}
		case next.issued == 0:
			next.seen = max(next.seen, f)
		}
	}
	_, err := m.a.Fence(context.Background(), j.key, f, "")
	old := j.lease
	if m.answer(t, "fence", j, nil, next, err) && old.Generation != 0 && j.lease.Generation == 0 {
		j.ended[old.Generation] = tokens.Revoked
	}
}

func (m *machine) reopen(t *rapid.T) {
	j := m.pick(t)
	next := j.state
	next.completed = false
	var refusal error
	if j.state.floor == 0 {
		refusal = tokens.ErrJobNotFound
	}
	_, err := m.a.Reopen(context.Background(), j.key)
	m.answer(t, "reopen", j, refusal, next, err)
}
