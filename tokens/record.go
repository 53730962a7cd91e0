package tokens

import (
	"encoding/json"
	"fmt"
)

// maxPast is how many ended generations a record remembers, so that a repeated
// release is recognised and a stale write learns how its generation ended.
const maxPast = 4

// Record is what a store keeps of a job. It is a value: the rules return a changed
// copy and never write through a pointer or slice of the old one, so a record that
// was handed out stays what it was. Records are never deleted.
//
// All times are milliseconds of the store's clock since the Unix epoch.
type Record struct {
	// Floor is the lowest generation still admitted. It never falls.
	Floor Generation `json:"floor,omitempty"`
	// Seen is the highest generation that was issued here or admitted.
	Seen Generation `json:"seen,omitempty"`
	// Issued is the newest generation issued by a claim; zero if the job was
	// never claimed here, and then the job follows an outside issuer.
	Issued Generation `json:"issued,omitempty"`
	// Lease is the current holder's, also after it ran out, until it ends or
	// somebody else claims.
	Lease *Lease `json:"lease,omitempty"`
	// Past holds the last generations that ended, newest last.
	Past []Past `json:"past,omitempty"`
	// Completed jobs can not be claimed until they are reopened. Result is
	// what the job was completed with.
	Completed bool            `json:"completed,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	// Tally counts the keyed writes of the last two generations that made any.
	Tally [2]Tally `json:"tally,omitzero"`
	// RaisedAt and RaisedBy say when the floor rose last and in which trace.
	RaisedAt int64  `json:"raised_at,omitempty"`
	RaisedBy string `json:"raised_by,omitempty"`
}

// Lease is temporary ownership of a job by one generation.
type Lease struct {
	Generation Generation `json:"generation"`
	Owner      string     `json:"owner"`
	// ID is the secret that proves the claim; ClaimID is the caller's name for
	// the claim, so that a lost reply can be asked for again.
	ID      string `json:"id"`
	ClaimID string `json:"claim_id,omitempty"`
	// TTL is in milliseconds. The lease has run out once Until is reached.
	TTL     int64 `json:"ttl"`
	Until   int64 `json:"until"`
	Granted int64 `json:"granted"`
	Renewed int64 `json:"renewed,omitempty"`
}

// Past is a generation that ended.
type Past struct {
	Generation Generation `json:"generation"`
	Owner      string     `json:"owner,omitempty"`
	ID         string     `json:"id,omitempty"`
	Ended      Ended      `json:"ended"`
}

// DecodeRecord is the inverse of EncodeRecord. A record that breaks an invariant
// is an error: it was damaged, and judging by it could let a stale write through.
func DecodeRecord(b []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("decode record: %w", err)
	}
	if r.Floor == 0 || r.Seen > MaxGeneration || r.Issued > r.Seen || r.Issued > r.Floor || r.Floor > MaxGeneration+1 ||
		(r.Lease != nil && r.Lease.Generation != r.Issued) {
		return Record{}, fmt.Errorf("decode record: floor %d, seen %d and issued %d contradict each other", r.Floor, r.Seen, r.Issued)
	}
	return r, nil
}

// floorFrom is the floor that counts: every floor from before a restore counts as
// at least the first generation of the store's epoch.
func (r Record) floorFrom(base Generation) Generation { return max(r.Floor, base) }

// current is the newest generation that was in use.
func (r Record) current() Generation {
	if r.Issued > 0 {
		return r.Issued
	}
	return r.Seen
}

// endedAs says how generation g, which is below the floor, ended.
func (r Record) endedAs(g Generation) Ended {
	for _, p := range r.Past {
		if p.Generation == g {
			return p.Ended
		}
	}
	return Superseded
}

// withPast returns the record with one more ended generation. How a generation
// ended is decided once: a second entry for the newest one is dropped.
func (r Record) withPast(p Past) Record {
	keep := r.Past
	if n := len(keep); n > 0 && keep[n-1].Generation == p.Generation {
		return r
	}
	if len(keep) >= maxPast {
		keep = keep[len(keep)-maxPast+1:]
	}
	past := make([]Past, 0, len(keep)+1)
	r.Past = append(append(past, keep...), p)
	return r
}

// tallied returns the record with one more settled keyed write of generation g.
func (r Record) tallied(g Generation, o Outcome) Record {
	switch {
	case r.Tally[0].Generation == g:
		r.Tally[0].add(o)
	case r.Tally[1].Generation == g:
		r.Tally[1].add(o)
	case g > r.Tally[0].Generation:
		r.Tally[1] = r.Tally[0]
		r.Tally[0] = Tally{Generation: g}
		r.Tally[0].add(o)
	}
	return r
}

// tallyOf returns the count of generation g.
func (r Record) tallyOf(g Generation) Tally {
	for _, t := range r.Tally {
		if t.Generation == g {
			return t
		}
	}
	return Tally{Generation: g}
}

// withoutSecrets returns the record as others may see it.
func (r Record) withoutSecrets() Record {
	if r.Lease != nil {
		l := *r.Lease
		l.ID, l.ClaimID = "", ""
		r.Lease = &l
	}
	past := make([]Past, len(r.Past))
	for i, p := range r.Past {
		p.ID = ""
		past[i] = p
	}
	r.Past = past
	return r
}

// raised returns the record with its floor at least g.
func (r Record) raised(g Generation, now int64, trace string) Record {
	if g > r.Floor {
		r.Floor, r.RaisedAt, r.RaisedBy = g, now, trace
	}
	return r
}
