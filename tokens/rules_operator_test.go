package tokens

import (
	"reflect"
	"testing"
)

func TestRevoke(t *testing.T) {
	released := without(held(), 8, Released)
	for _, c := range []struct {
		name     string
		rec      Record
		base     Generation
		expected Generation
		floor    Generation
		same     bool
		err      error
	}{
		{name: "whoever holds it", rec: held(), floor: 8},
		{name: "the generation that is meant", rec: held(), expected: 7, floor: 8},
		{name: "another generation is meant", rec: held(), expected: 6, floor: 7, same: true, err: ErrGenerationMismatch},
		{name: "a later generation is meant", rec: held(), expected: 8, floor: 7, same: true, err: ErrGenerationMismatch},
		{name: "one that was released already", rec: released, floor: 8, same: true},
		{name: "one that was revoked already", rec: without(held(), 8, Revoked), expected: 7, floor: 8, same: true},
		{name: "an outside issuer's", rec: followed(), floor: 8},
		{name: "an outside issuer's that is meant", rec: followed(), expected: 7, floor: 8},
		{name: "an outside issuer's that was revoked already", rec: Record{Floor: 8, Seen: 7}, expected: 7, floor: 8, same: true},
		{name: "the last generation", rec: Record{Floor: MaxGeneration, Seen: MaxGeneration}, floor: MaxGeneration + 1},
		{name: "an outside issuer's from before a restore", rec: followed(), base: secondEpoch, floor: 7, same: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mustEncode(t, c.rec)
			next, ref := revoke(c.rec, c.base, c.expected, 1500, "trace")
			if mustEncode(t, c.rec) != before {
				t.Fatal("the rule changed the record that it was given")
			}
			if sentinel(ref) != c.err || next.Floor != c.floor {
				t.Fatalf("refusal %v, floor %d; want %v, %d", ref, next.Floor, c.err, c.floor)
			}
			if same := reflect.DeepEqual(next, c.rec); same != c.same {
				t.Fatalf("unchanged %v, want %v: %+v", same, c.same, next)
			}
			if !c.same && (next.Lease != nil || next.endedAs(c.floor-1) != Revoked) {
				t.Errorf("revoked: %+v", next)
			}
			if c.err != nil && (ref.HolderGeneration != 7 || ref.Holder != "a") {
				t.Errorf("the refusal does not say who holds it: %+v", ref)
			}
			again, ref := revoke(next, c.base, 0, 1600, "other")
			if ref != nil || !reflect.DeepEqual(again, next) && !c.same {
				t.Errorf("repeating it: %v, %+v", ref, again)
			}
		})
	}
}

func TestFence(t *testing.T) {
	for _, c := range []struct {
		name  string
		rec   Record
		to    Generation
		floor Generation
		seen  Generation
		lease bool
	}{
		{name: "a job that is not known", to: 5, floor: 5, seen: 5},
		{name: "an outside issuer's job", rec: followed(), to: 9, floor: 9, seen: 9},
		{name: "below the floor", rec: followed(), to: 6, floor: 7, seen: 7},
		{name: "to the floor", rec: followed(), to: 7, floor: 7, seen: 7},
		{name: "above a lease", rec: held(), to: 8, floor: 8, seen: 7},
		{name: "far above a lease", rec: held(), to: 100, floor: 100, seen: 7},
		{name: "below a lease", rec: held(), to: 6, floor: 7, seen: 7, lease: true},
		{name: "to a lease", rec: held(), to: 7, floor: 7, seen: 7, lease: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mustEncode(t, c.rec)
			next := fence(c.rec, c.to, 1500, "trace")
			if mustEncode(t, c.rec) != before {
				t.Fatal("the rule changed the record that it was given")
			}
			if next.Floor != c.floor || next.Seen != c.seen || (next.Lease != nil) != c.lease {
				t.Fatalf("fenced to %d: %+v", c.to, next)
			}
			if c.rec.Lease != nil && !c.lease && next.endedAs(7) != Revoked {
				t.Errorf("the lease below the floor ended as %q", next.endedAs(7))
			}
			if raised := c.floor > c.rec.Floor; raised != (next.RaisedBy == "trace") {
				t.Errorf("raised by %q", next.RaisedBy)
			}
			if again := fence(next, c.to, 1600, "other"); !reflect.DeepEqual(again, next) {
				t.Errorf("repeating it changed the record: %+v", again)
			}
		})
	}
}

func TestReopen(t *testing.T) {
	r := without(held(), 8, Completed)
	r.Completed, r.Result = true, []byte(`1`)
	next := reopen(r)
	if next.Completed || next.Result != nil || next.Floor != 8 || next.endedAs(7) != Completed {
		t.Errorf("reopened: %+v", next)
	}
	if !r.Completed {
		t.Error("the rule changed the record that it was given")
	}
	granted, _, ref := claim(next, 0, ClaimRequest{Owner: "b", TTL: 1}, 3000, 0, "s.8")
	if ref != nil || granted.Issued != 8 {
		t.Errorf("claim after reopening: %v, %+v", ref, granted)
	}
	if again := reopen(next); !reflect.DeepEqual(again, next) {
		t.Errorf("repeating it changed the record: %+v", again)
	}
}

func TestJudge(t *testing.T) {
	old := held()
	old.Seen, old.Issued, old.Floor = 7, 7, 7
	for _, c := range []struct {
		name  string
		rec   Record
		base  Generation
		w     Write
		now   int64
		raise bool
		err   error
		ended Ended
	}{
		{name: "the floor itself", rec: held(), w: Write{Generation: 7}},
		{name: "one below", rec: held(), w: Write{Generation: 6}, err: ErrStaleGeneration, ended: Superseded},
		{name: "one above what was issued", rec: held(), w: Write{Generation: 8}, err: ErrUnissuedGeneration},
		{name: "the last generation there is", rec: held(), w: Write{Generation: MaxGeneration}, err: ErrUnissuedGeneration},
		{name: "a released generation", rec: without(held(), 8, Released), w: Write{Generation: 7}, err: ErrStaleGeneration, ended: Released},
		{name: "a completed generation", rec: without(held(), 8, Completed), w: Write{Generation: 7}, err: ErrStaleGeneration, ended: Completed},
		{name: "a revoked generation", rec: without(held(), 8, Revoked), w: Write{Generation: 7}, err: ErrStaleGeneration, ended: Revoked},
		{name: "the floor of a released job is not issued yet", rec: without(held(), 8, Released), w: Write{Generation: 8}, err: ErrUnissuedGeneration},
		{name: "the lease that ran out is not looked at", rec: held(), w: Write{Generation: 7, LeaseID: "s.7"}, now: 1 << 40},
		{name: "the right lease", rec: held(), w: Write{Generation: 7, LeaseID: "s.7", RequireLease: true}},
		{name: "a wrong lease", rec: held(), w: Write{Generation: 7, LeaseID: "s.8"}, err: ErrLeaseMismatch},
		{name: "a lease that is required and missing", rec: held(), w: Write{Generation: 7, RequireLease: true}, err: ErrLeaseMismatch},
		{name: "the generation is judged before the lease", rec: held(), w: Write{Generation: 6, LeaseID: "s.8"}, err: ErrStaleGeneration, ended: Superseded},
		{name: "a live lease", rec: held(), w: Write{Generation: 7, LiveLease: true}, now: 1999},
		{name: "a live lease at its end", rec: held(), w: Write{Generation: 7, LiveLease: true}, now: 2000, err: ErrLeaseExpired},
		{name: "a live lease after its end", rec: held(), w: Write{Generation: 7, LiveLease: true}, now: 2001, err: ErrLeaseExpired},
		{name: "a lease id at an outside issuer's job", rec: followed(), w: Write{Generation: 7, LeaseID: "s.7"}, err: ErrLeaseMismatch},
		{name: "a live lease at an outside issuer's job", rec: followed(), w: Write{Generation: 7, LiveLease: true}, err: ErrLeaseExpired},
		{name: "the first write of a job", w: Write{Generation: 5}, raise: true},
		{name: "a newer one of an outside issuer", rec: followed(), w: Write{Generation: 8}, raise: true},
		{name: "the same one", rec: followed(), w: Write{Generation: 7}},
		{name: "an older one", rec: followed(), w: Write{Generation: 6}, err: ErrStaleGeneration, ended: Superseded},
		{name: "the first one after a revocation has to be remembered", rec: Record{Floor: 8, Seen: 7}, w: Write{Generation: 8}, raise: true},
		{name: "only issued generations, and none was", rec: followed(), w: Write{Generation: 7, IssuedOnly: true}, err: ErrUnknownJob},
		{name: "only issued generations, and it was", rec: held(), w: Write{Generation: 7, IssuedOnly: true}},
		{name: "only issued generations of no job", w: Write{Generation: 1, IssuedOnly: true}, err: ErrUnknownJob},
		{name: "a generation from before a restore", rec: held(), base: secondEpoch, w: Write{Generation: 7}, err: ErrStaleGeneration, ended: Superseded},
		{name: "the last one from before a restore", rec: followed(), base: secondEpoch, w: Write{Generation: secondEpoch - 1}, err: ErrStaleGeneration, ended: Superseded},
		{name: "a job that nobody knows after a restore", base: secondEpoch, w: Write{Generation: 1}, err: ErrStaleGeneration, ended: Superseded},
		{name: "an outside issuer's first after a restore", rec: followed(), base: secondEpoch, w: Write{Generation: secondEpoch}, raise: true},
		{name: "an issued job's after a restore", rec: held(), base: secondEpoch, w: Write{Generation: secondEpoch + 1}, err: ErrUnissuedGeneration},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, ref := judge(&c.rec, c.base, &c.w, c.now)
			if sentinel(ref) != c.err || (v == verdictRaise) != c.raise {
				t.Fatalf("verdict %d, refusal %v; want raise %v, %v", v, ref, c.raise, c.err)
			}
			if ref == nil {
				return
			}
			if ref.Floor != c.rec.floorFrom(c.base) || ref.Ended != c.ended {
				t.Errorf("refusal %+v, want floor %d, ended %q", ref, c.rec.floorFrom(c.base), c.ended)
			}
		})
	}
}

func TestFollow(t *testing.T) {
	next := follow(Record{}, &Write{Generation: 5, Trace: "t5"}, 100)
	if !reflect.DeepEqual(next, Record{Floor: 5, Seen: 5, RaisedAt: 100, RaisedBy: "t5"}) {
		t.Errorf("the first write: %+v", next)
	}
	next = follow(next, &Write{Generation: 9, Trace: "t9"}, 200)
	want := Record{Floor: 9, Seen: 9, RaisedAt: 200, RaisedBy: "t9", Past: []Past{{Generation: 5, Ended: Superseded}}}
	if !reflect.DeepEqual(next, want) {
		t.Errorf("a newer write: %+v", next)
	}
	revoked, _ := revoke(next, 0, 9, 300, "op")
	next = follow(revoked, &Write{Generation: 10, Trace: "t10"}, 400)
	if next.Floor != 10 || next.Seen != 10 || next.endedAs(9) != Revoked {
		t.Errorf("the first write after a revocation: %+v", next)
	}
}

// TestNoGenerationIsUsedTwiceOnAJobThatChangesItsIssuer is the story of a job whose
// outside issuer was revoked, went on with the next number, and then gave way to claims.
func TestNoGenerationIsUsedTwiceOnAJobThatChangesItsIssuer(t *testing.T) {
	r := follow(Record{}, &Write{Generation: 7}, 1)
	r, _ = revoke(r, 0, 0, 2, "")
	w := &Write{Generation: 8}
	v, ref := judge(&r, 0, w, 3)
	if ref != nil {
		t.Fatal(ref)
	}
	if v == verdictRaise {
		r = follow(r, w, 3)
	}
	next, _, ref := claim(r, 0, ClaimRequest{Owner: "a", TTL: 1}, 4, 0, "s.x")
	if ref != nil || next.Issued <= 8 {
		t.Errorf("generation 8 was admitted, and the claim got %d (%v)", next.Issued, ref)
	}
	// And an operator can revoke generation 8, which lives.
	r, ref = revoke(r, 0, 8, 5, "")
	if ref != nil || r.Floor != 9 {
		t.Errorf("revoke of the generation that is in use: floor %d, %v", r.Floor, ref)
	}
}
