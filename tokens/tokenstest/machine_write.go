package tokenstest

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func (m *machine) admit(t *rapid.T) {
	j := m.pick(t)
	f := m.floor(j)
	g := rapid.SampledFrom([]tokens.Generation{f, f, j.issued, f + 1, f + 2, f - 1, j.seen}).Draw(t, "generation")
	if g == 0 || g > tokens.MaxGeneration {
		g = f + 1
	}
	at := &attempt{at: &tokens.Attempt{}}
	at.at.Job, at.at.Generation, at.at.Cutter = j.key, g, at
	at.at.AbortSent = rapid.Bool().Draw(t, "abort sent")
	if r, ok := j.granted[g]; ok && rapid.Bool().Draw(t, "with lease") {
		at.at.LeaseID = r.LeaseID
		if rapid.IntRange(0, 4).Draw(t, "forge") == 0 {
			at.at.LeaseID += "x"
		}
	}
	at.at.LiveLease = rapid.IntRange(0, 4).Draw(t, "live lease") == 0
	next, refusal := m.judge(t, j, at.at)
	if err := m.a.Admit(context.Background(), at.at); m.answer(t, "admit", j, refusal, next, err) {
		j.attempts = append(j.attempts, at)
		if g < j.highest {
			t.Fatalf("%s: generation %d was admitted below floor %d, which was acknowledged", j.key, g, j.highest)
		}
	}
}

// judge is the model of the checks that a write meets.
func (m *machine) judge(t *rapid.T, j *modelJob, at *tokens.Attempt) (next state, refusal error) {
	next = j.state
	l := j.lease
	mine := l.Generation != 0 && l.Generation == at.Generation
	switch {
	case at.Generation < m.floor(j):
		return next, tokens.ErrStaleGeneration
	case j.issued > 0 && at.Generation > j.issued:
		return next, tokens.ErrUnissuedGeneration
	case at.LeaseID != "" && (!mine || l.ID != at.LeaseID):
		return next, tokens.ErrLeaseMismatch
	case at.LiveLease && (!mine || m.now(t, j) >= l.Until):
		return next, tokens.ErrLeaseExpired
	}
	next.floor, next.seen = max(next.floor, at.Generation), max(next.seen, at.Generation)
	for _, older := range j.attempts {
		// One that has not passed its gate when the floor rises is vetoed, and
		// nobody waits for it.
		if older.at.Generation < at.Generation && older.stage != vetoed && older.stage != admitted {
			return next, tokens.ErrTakeoverPending
		}
	}
	return next, nil
}

// live draws an attempt that is not settled.
func (m *machine) live(t *rapid.T) (*modelJob, int) {
	j := m.pick(t)
	if len(j.attempts) == 0 {
		return j, -1
	}
	return j, rapid.IntRange(0, len(j.attempts)-1).Draw(t, "attempt")
}

func (m *machine) gate(t *rapid.T) {
	j, i := m.live(t)
	if i < 0 {
		return
	}
	at := j.attempts[i]
	want := at.stage == admitted || at.stage == sending || at.stage == sentWhole
	if got := at.at.Gate(); got != want {
		t.Fatalf("%s: the gate of generation %d in stage %d under floor %d says %v", j.key, at.at.Generation, at.stage, m.floor(j), got)
	}
	if at.stage == admitted {
		at.stage = sending
		if at.at.Generation < j.sent {
			t.Fatalf("%s: generation %d is sent after %d", j.key, at.at.Generation, j.sent)
		}
		j.sent = at.at.Generation
	}
}

func (m *machine) sent(t *rapid.T) {
	j, i := m.live(t)
	if i < 0 {
		return
	}
	at := j.attempts[i]
	at.at.SentWhole()
	if at.stage == sending {
		at.stage = sentWhole
	}
}

func (m *machine) settle(t *rapid.T) {
	j, i := m.live(t)
	if i < 0 {
		return
	}
	at := j.attempts[i]
	o := rapid.SampledFrom([]tokens.Outcome{tokens.Applied, tokens.Declined, tokens.NotSent, tokens.OutcomeUnknown}).Draw(t, "outcome")
	for range 2 { // the second changes nothing
		if got := m.a.Settle(at.at, o); got != m.floor(j) {
			t.Fatalf("%s: settle answered floor %d, want %d", j.key, got, m.floor(j))
		}
	}
	j.attempts = append(j.attempts[:i:i], j.attempts[i+1:]...)
}

// fault makes the next load or commit fail.
func (m *machine) fault(t *rapid.T) {
	if m.armed != Healthy || m.latched {
		return
	}
	m.armed = rapid.SampledFrom([]Mode{Refuse, WriteAndFail, DropAndUnknown, LoadFails}).Draw(t, "mode")
	m.store.FailNext(m.armed)
}

// crash starts a new process on the open store.
func (m *machine) crash(t *rapid.T) { m.newProcess(t) }

// restart closes the store as well, now and then, because that may be slow.
func (m *machine) restart(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "restart") != 0 {
		return
	}
	if err := m.store.Close(); err != nil {
		t.Fatalf("close store: %v", err)
	}
	m.store = NewFaulty(m.opener.Open(m.t))
	m.newProcess(t)
}

// clock moves the store's time on, to one of the edges of a lease.
func (m *machine) clock(t *rapid.T) {
	j := m.pick(t)
	if m.advance == nil {
		return
	}
	d := rapid.SampledFrom([]int64{1, m.ttl - 1, m.ttl, m.ttl + 1}).Draw(t, "milliseconds")
	if left := j.lease.Until - m.now(t, j); left > 0 && rapid.Bool().Draw(t, "to the edge") {
		d = rapid.SampledFrom([]int64{max(1, left-1), left, left + 1}).Draw(t, "edge")
	}
	m.advance(time.Duration(d) * time.Millisecond)
}
