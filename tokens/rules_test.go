package tokens

import (
	"errors"
	"reflect"
	"testing"
)

const secondEpoch = EpochSize // the base of a store that was restored once

// held is a job that a holds under generation 7 from 1000 to 2000.
func held() Record {
	return Record{Floor: 7, Seen: 7, Issued: 7, Lease: &Lease{Generation: 7, Owner: "a", ID: "s.7", ClaimID: "c7", TTL: 1000, Until: 2000, Granted: 1000}}
}

// refA names the lease of held.
func refA() LeaseRef { return LeaseRef{Owner: "a", Generation: 7, LeaseID: "s.7"} }

// followed is a job of an outside issuer that has come to generation 7.
func followed() Record { return Record{Floor: 7, Seen: 7} }

func without(r Record, floor Generation, how Ended) Record {
	l := r.Lease
	r.Past, r.Lease, r.Floor = []Past{{Generation: l.Generation, Owner: l.Owner, ID: l.ID, Ended: how}}, nil, floor
	return r
}

// sentinel is the sentinel of a refusal, nil for none.
func sentinel(ref *Refusal) error {
	if ref == nil {
		return nil
	}
	return ref.Err
}

func TestClaim(t *testing.T) {
	completed := without(held(), 8, Completed)
	completed.Completed, completed.Result = true, []byte(`"r"`)
	exhausted := Record{Floor: MaxGeneration + 1, Seen: MaxGeneration, Issued: MaxGeneration}
	last := Record{Floor: MaxGeneration, Seen: MaxGeneration - 1, Issued: MaxGeneration - 1}
	lastFloor := Record{Floor: MaxGeneration + 1, Seen: 7}
	ask := func(owner, id string) ClaimRequest {
		return ClaimRequest{Owner: owner, ClaimID: id, TTL: 500, Trace: "trace"}
	}
	for _, c := range []struct {
		name      string
		rec       Record
		base      Generation
		ask       ClaimRequest
		now       int64
		heldUntil int64
		want      Generation // granted; zero if refused or repeated
		repeated  bool
		err       error
	}{
		{name: "the first claim of a job gets generation 1", ask: ask("a", ""), want: 1},
		{name: "the first claim of an epoch begins above everything before", base: secondEpoch, ask: ask("a", ""), want: EpochSize + 1},
		{name: "a claim above an outside issuer's generations", rec: followed(), ask: ask("a", ""), want: 8},
		{name: "a held lease is held", rec: held(), ask: ask("b", ""), now: 1500, heldUntil: 2000, err: ErrLeaseHeld},
		{name: "also by its own owner", rec: held(), ask: ask("a", ""), now: 1500, heldUntil: 2000, err: ErrLeaseHeld},
		{name: "also with another claim id", rec: held(), ask: ask("a", "c8"), now: 1500, heldUntil: 2000, err: ErrLeaseHeld},
		{name: "another owner with the same claim id is another claim", rec: held(), ask: ask("b", "c7"), now: 1500, heldUntil: 2000, err: ErrLeaseHeld},
		{name: "the same claim gets the same lease", rec: held(), ask: ask("a", "c7"), now: 1500, heldUntil: 2000, repeated: true},
		{name: "one millisecond before the end it is held", rec: held(), ask: ask("b", ""), now: 1999, heldUntil: 2000, err: ErrLeaseHeld},
		{name: "and repeated", rec: held(), ask: ask("a", "c7"), now: 1999, heldUntil: 2000, repeated: true},
		{name: "at its end it has run out", rec: held(), ask: ask("b", ""), now: 2000, heldUntil: 2000, want: 8},
		{name: "also for the same claim", rec: held(), ask: ask("a", "c7"), now: 2000, heldUntil: 2000, want: 8},
		{name: "one millisecond later too", rec: held(), ask: ask("b", ""), now: 2001, heldUntil: 2000, want: 8},
		{name: "in the grace after a restart it keeps others out", rec: held(), ask: ask("b", ""), now: 2999, heldUntil: 3000, err: ErrLeaseHeld},
		{name: "and no longer", rec: held(), ask: ask("b", ""), now: 3000, heldUntil: 3000, want: 8},
		{name: "a released job is free", rec: without(held(), 8, Released), ask: ask("b", ""), now: 1500, want: 8},
		{name: "a fenced job goes on above its floor", rec: without(held(), 20, Revoked), ask: ask("b", ""), now: 1500, want: 20},
		{name: "a completed job is over", rec: completed, ask: ask("b", ""), now: 9000, err: ErrJobCompleted},
		{name: "a lease from before a restore holds nobody out", rec: held(), base: secondEpoch, ask: ask("b", ""), now: 1500, heldUntil: 2000, want: EpochSize + 1},
		{name: "nor is it repeated", rec: held(), base: secondEpoch, ask: ask("a", "c7"), now: 1500, heldUntil: 2000, want: EpochSize + 1},
		{name: "the last generation", rec: last, ask: ask("a", ""), want: MaxGeneration},
		{name: "none after the last", rec: exhausted, ask: ask("a", ""), err: ErrGenerationsExhausted},
		{name: "none above the last floor", rec: lastFloor, ask: ask("a", ""), err: ErrGenerationsExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mustEncode(t, c.rec)
			next, repeated, ref := claim(c.rec, c.base, c.ask, c.now, c.heldUntil, "s.new")
			if sentinel(ref) != c.err || repeated != c.repeated {
				t.Fatalf("repeated %v, refusal %v; want %v, %v", repeated, ref, c.repeated, c.err)
			}
			if got := mustEncode(t, c.rec); got != before {
				t.Fatalf("the rule changed the record that it was given: %s", got)
			}
			if c.want == 0 {
				if !reflect.DeepEqual(next, c.rec) {
					t.Fatalf("nothing was granted and the record changed to %+v", next)
				}
				return
			}
			want := &Lease{Generation: c.want, Owner: c.ask.Owner, ID: "s.new", ClaimID: c.ask.ClaimID, TTL: 500, Until: c.now + 500, Granted: c.now}
			if !reflect.DeepEqual(next.Lease, want) || next.Issued != c.want || next.Seen != c.want || next.Floor != max(c.want, c.rec.Floor) {
				t.Fatalf("granted %+v in %+v, want %+v", next.Lease, next, want)
			}
			if next.Floor > c.rec.Floor && (next.RaisedAt != c.now || next.RaisedBy != "trace") {
				t.Errorf("the floor rose at %d by %q", next.RaisedAt, next.RaisedBy)
			}
			if c.rec.Lease != nil {
				if p := next.Past[len(next.Past)-1]; p.Generation != 7 || p.Ended != Superseded || p.Owner != "a" {
					t.Errorf("the predecessor is remembered as %+v", p)
				}
			}
		})
	}
}

func mustEncode(t *testing.T, r Record) string {
	t.Helper()
	b, err := EncodeRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAClaimThatIsHeldSaysByWhomAndHowLong(t *testing.T) {
	_, _, ref := claim(held(), 0, ClaimRequest{Owner: "b", TTL: 1}, 1400, 2000, "s.8")
	if ref == nil || ref.Holder != "a" || ref.HolderGeneration != 7 || ref.ExpiresIn != 600 || ref.Floor != 7 {
		t.Errorf("refusal %+v", ref)
	}
	completed := without(held(), 8, Completed)
	completed.Completed, completed.Result = true, []byte(`{"n":1}`)
	_, _, ref = claim(completed, 0, ClaimRequest{Owner: "b", TTL: 1}, 1400, 0, "s.8")
	if ref == nil || string(ref.Result) != `{"n":1}` || ref.Floor != 8 {
		t.Errorf("refusal %+v", ref)
	}
}

// TestRenew holds the edges of C10: a lease that ran out and that nobody took may be
// renewed, and the answer at the very millisecond is always the same.
func TestRenew(t *testing.T) {
	change := func(f func(*LeaseRef)) LeaseRef { r := refA(); f(&r); return r }
	for _, c := range []struct {
		name   string
		rec    Record
		base   Generation
		ref    LeaseRef
		ttl    int64
		now    int64
		until  int64 // zero: lost
		lapsed bool
		ended  Ended
	}{
		{name: "the holder goes on", rec: held(), ref: refA(), ttl: 1000, now: 1500, until: 2500},
		{name: "with the ttl that it has", rec: held(), ref: refA(), now: 1900, until: 2900},
		{name: "with a shorter one it never goes back", rec: held(), ref: refA(), ttl: 10, now: 1500, until: 2000},
		{name: "one millisecond before the end", rec: held(), ref: refA(), ttl: 1000, now: 1999, until: 2999},
		{name: "at the end it had lapsed", rec: held(), ref: refA(), ttl: 1000, now: 2000, until: 3000, lapsed: true},
		{name: "one millisecond later too", rec: held(), ref: refA(), ttl: 1000, now: 2001, until: 3001, lapsed: true},
		{name: "long after too", rec: held(), ref: refA(), ttl: 1000, now: 1 << 40, until: 1<<40 + 1000, lapsed: true},
		{name: "another owner", rec: held(), ref: change(func(r *LeaseRef) { r.Owner = "b" }), now: 1500},
		{name: "another lease id", rec: held(), ref: change(func(r *LeaseRef) { r.LeaseID = "s.8" }), now: 1500},
		{name: "no lease id", rec: held(), ref: change(func(r *LeaseRef) { r.LeaseID = "" }), now: 1500},
		{name: "a newer generation", rec: held(), ref: change(func(r *LeaseRef) { r.Generation = 8 }), now: 1500},
		{name: "an older generation", rec: held(), ref: change(func(r *LeaseRef) { r.Generation = 6 }), now: 1500, ended: Superseded},
		{name: "a released lease", rec: without(held(), 8, Released), ref: refA(), now: 1500, ended: Released},
		{name: "a completed lease", rec: without(held(), 8, Completed), ref: refA(), now: 1500, ended: Completed},
		{name: "a revoked lease", rec: without(held(), 8, Revoked), ref: refA(), now: 1500, ended: Revoked},
		{name: "a job that does not exist", ref: refA(), now: 1500},
		{name: "a job of an outside issuer", rec: followed(), ref: refA(), now: 1500},
		{name: "a lease from before a restore", rec: held(), base: secondEpoch, ref: refA(), now: 1500, ended: Superseded},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mustEncode(t, c.rec)
			next, lapsed, ref := renew(c.rec, c.base, c.ref, c.ttl, c.now)
			if mustEncode(t, c.rec) != before {
				t.Fatal("the rule changed the record that it was given")
			}
			if c.until == 0 {
				if sentinel(ref) != ErrLeaseLost || ref.Ended != c.ended || !reflect.DeepEqual(next, c.rec) {
					t.Fatalf("refusal %+v, record %+v; want lost as %q and no change", ref, next, c.ended)
				}
				return
			}
			if ref != nil || lapsed != c.lapsed || next.Lease.Until != c.until || next.Lease.Renewed != c.now {
				t.Fatalf("refusal %v, lapsed %v, lease %+v; want until %d, lapsed %v", ref, lapsed, next.Lease, c.until, c.lapsed)
			}
			if next.Floor != c.rec.Floor || next.Issued != c.rec.Issued || next.Lease.Generation != 7 || next.Lease.ID != "s.7" {
				t.Fatalf("a renewal granted anew: %+v", next)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	taken, _, _ := claim(held(), 0, ClaimRequest{Owner: "b", TTL: 1000}, 2000, 2000, "s.8")
	for _, c := range []struct {
		name     string
		rec      Record
		base     Generation
		ref      LeaseRef
		how      Ended
		repeated bool
		err      error
		ended    Ended
	}{
		{name: "release", rec: held(), ref: refA(), how: Released},
		{name: "complete", rec: held(), ref: refA(), how: Completed},
		{name: "release again", rec: without(held(), 8, Released), ref: refA(), how: Released, repeated: true},
		{name: "complete again", rec: without(held(), 8, Completed), ref: refA(), how: Completed, repeated: true},
		{name: "complete what was released", rec: without(held(), 8, Released), ref: refA(), how: Completed, err: ErrLeaseLost, ended: Released},
		{name: "release what was completed", rec: without(held(), 8, Completed), ref: refA(), how: Released, err: ErrLeaseLost, ended: Completed},
		{name: "release what was revoked", rec: without(held(), 8, Revoked), ref: refA(), how: Released, err: ErrLeaseLost, ended: Revoked},
		{name: "release again with another id", rec: without(held(), 8, Released), ref: LeaseRef{Owner: "a", Generation: 7, LeaseID: "x"}, how: Released, err: ErrLeaseLost, ended: Released},
		{name: "release again as another owner", rec: without(held(), 8, Released), ref: LeaseRef{Owner: "b", Generation: 7, LeaseID: "s.7"}, how: Released, err: ErrLeaseLost, ended: Released},
		{name: "the loser completes after a takeover", rec: taken, ref: refA(), how: Completed, err: ErrLeaseLost, ended: Superseded},
		{name: "a forged lease", rec: held(), ref: LeaseRef{Owner: "a", Generation: 7, LeaseID: "s.8"}, how: Released, err: ErrLeaseLost},
		{name: "no secret at all", rec: followed(), ref: LeaseRef{Generation: 7}, how: Released, err: ErrLeaseLost},
		{name: "a lease from before a restore", rec: held(), base: secondEpoch, ref: refA(), how: Released, err: ErrLeaseLost, ended: Superseded},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mustEncode(t, c.rec)
			next, repeated, ref := end(c.rec, c.base, c.ref, c.how, []byte(`"r"`), 1500, "trace")
			if mustEncode(t, c.rec) != before {
				t.Fatal("the rule changed the record that it was given")
			}
			if sentinel(ref) != c.err || repeated != c.repeated {
				t.Fatalf("repeated %v, refusal %v; want %v, %v", repeated, ref, c.repeated, c.err)
			}
			if c.err != nil && ref.Ended != c.ended {
				t.Errorf("it is said to have ended as %q, want %q", ref.Ended, c.ended)
			}
			if c.err != nil || c.repeated {
				if !reflect.DeepEqual(next, c.rec) {
					t.Fatalf("the record changed to %+v", next)
				}
				return
			}
			if next.Lease != nil || next.Floor != 8 || next.Issued != 7 || next.RaisedAt != 1500 || next.RaisedBy != "trace" || next.endedAs(7) != c.how {
				t.Errorf("ended: %+v", next)
			}
			if done := c.how == Completed; next.Completed != done || (string(next.Result) == `"r"`) != done {
				t.Errorf("completed %v with %s", next.Completed, next.Result)
			}
		})
	}
}

func TestErrorsOfTheRulesAreSentinels(t *testing.T) {
	_, _, ref := renew(held(), 0, LeaseRef{}, 0, 0)
	if !errors.Is(ref, ErrLeaseLost) || errors.Is(ref, ErrLeaseHeld) || ref.Error() != "lease lost" {
		t.Errorf("%v", ref)
	}
}
