package tokens

import (
	"fmt"
	"testing"
)

// FuzzRulesNeverLowerTheFloor plays random operations, two bytes each, on one record.
func FuzzRulesNeverLowerTheFloor(f *testing.F) {
	f.Add([]byte{0, 0}, uint8(0))
	f.Add([]byte{0, 0, 1, 9, 2, 0, 0, 1, 3, 0, 4, 0, 0, 0}, uint8(0))
	f.Add([]byte{6, 7, 4, 0, 6, 1, 0, 0, 5, 3, 7, 0}, uint8(1))
	f.Add([]byte{6, 1, 4, 0, 6, 0, 0, 0}, uint8(0))
	f.Fuzz(func(t *testing.T, ops []byte, epoch uint8) {
		p := &play{t: t, base: Generation(epoch) * EpochSize, admitted: make(map[Generation]bool), granted: make(map[Generation]bool)}
		for i := 0; i+1 < len(ops); i += 2 {
			before := p.r
			p.step(ops[i], ops[i+1])
			p.check(before)
		}
	})
}

type play struct {
	t    *testing.T
	r    Record
	base Generation
	now  int64
	refs []LeaseRef
	// admitted are the generations of outside writes, granted those of claims.
	admitted, granted map[Generation]bool
}

func (p *play) step(op, arg byte) {
	var next Record
	switch op % 8 {
	case 0:
		p.claim(fmt.Sprint("c", arg%4))
		return
	case 1:
		next, _, _ = renew(p.r, p.base, p.ref(arg), int64(arg), p.now)
	case 2:
		next, _, _ = end(p.r, p.base, p.ref(arg), Released, nil, p.now, "")
	case 3:
		next, _, _ = end(p.r, p.base, p.ref(arg), Completed, []byte(`1`), p.now, "")
	case 4:
		next, _ = revoke(p.r, p.base, Generation(arg%2)*p.r.current(), p.now, "")
	case 5:
		next = fence(p.r, p.r.Floor+Generation(arg%8), p.now, "")
	case 6:
		p.write(p.r.floorFrom(p.base) + Generation(arg%8) - 2)
		return
	case 7:
		next = reopen(p.r)
		p.now += int64(arg)
	}
	p.r = next
}

func (p *play) claim(id string) {
	until := int64(0)
	if p.r.Lease != nil {
		until = p.r.Lease.Until
	}
	next, repeated, ref := claim(p.r, p.base, ClaimRequest{Owner: "o", ClaimID: id, TTL: 50}, p.now, until, fmt.Sprint("s.", len(p.refs)))
	if ref != nil || repeated {
		return
	}
	g := next.Issued
	switch {
	case g <= p.r.Issued:
		p.t.Fatalf("a fresh claim got generation %d after %d", g, p.r.Issued)
	case next.Lease == nil || next.Lease.Generation != g:
		p.t.Fatalf("generation %d was issued with the lease %+v", g, next.Lease)
	case p.granted[g] || p.admitted[g]:
		p.t.Fatalf("generation %d was used twice", g)
	case g <= p.base && p.base > 0:
		p.t.Fatalf("generation %d is not above the base %d", g, p.base)
	case next.Floor < g:
		p.t.Fatalf("a claim of %d left the floor at %d", g, next.Floor)
	}
	p.granted[g] = true
	p.refs = append(p.refs, LeaseRef{Owner: "o", Generation: g, LeaseID: next.Lease.ID})
	p.r = next
}

func (p *play) write(g Generation) {
	if g == 0 || g > MaxGeneration {
		return
	}
	w := &Write{Generation: g}
	v, ref := judge(&p.r, p.base, w, p.now)
	if ref != nil {
		return
	}
	if g < p.r.Floor || g < p.base {
		p.t.Fatalf("generation %d was admitted below the floor %d", g, p.r.floorFrom(p.base))
	}
	if v == verdictRaise {
		p.r = follow(p.r, w, p.now)
	}
	if p.r.Floor != g {
		p.t.Fatalf("generation %d was admitted and the floor is %d", g, p.r.Floor)
	}
	if p.r.Issued == 0 {
		p.admitted[g] = true
	}
	if v, ref := judge(&p.r, p.base, w, p.now); v != verdictGo || ref != nil {
		p.t.Fatalf("judged again after it was followed: %d, %v", v, ref)
	}
}

func (p *play) ref(arg byte) LeaseRef {
	if len(p.refs) == 0 || arg == 255 {
		return LeaseRef{Owner: "o", Generation: 1, LeaseID: "forged"}
	}
	return p.refs[len(p.refs)-1-int(arg)%len(p.refs)]
}

func (p *play) check(before Record) {
	switch {
	case p.r.Floor < before.Floor:
		p.t.Fatalf("the floor fell from %d to %d", before.Floor, p.r.Floor)
	case p.r.Seen < before.Seen:
		p.t.Fatalf("seen fell from %d to %d", before.Seen, p.r.Seen)
	case p.r.Issued < before.Issued:
		p.t.Fatalf("issued fell from %d to %d", before.Issued, p.r.Issued)
	case p.r.Lease != nil && p.r.Lease.Generation != p.r.Issued:
		p.t.Fatalf("the lease is of generation %d, issued was %d", p.r.Lease.Generation, p.r.Issued)
	case p.r.Lease != nil && p.r.Completed:
		p.t.Fatal("a completed job has a holder")
	case len(p.r.Past) > maxPast:
		p.t.Fatalf("%d ended generations are remembered", len(p.r.Past))
	}
	if p.r.Floor == 0 {
		return
	}
	if _, err := DecodeRecord([]byte(mustEncode(p.t, p.r))); err != nil {
		p.t.Fatalf("the rules made a record that can not be read: %v", err)
	}
	for i := 1; i < len(p.r.Past); i++ {
		if p.r.Past[i].Generation <= p.r.Past[i-1].Generation {
			p.t.Fatalf("ended generations out of order: %+v", p.r.Past)
		}
	}
}
