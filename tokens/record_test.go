package tokens

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestARecordIsTheSameAfterEncoding(t *testing.T) {
	for name, r := range map[string]Record{
		"followed": {Floor: 7, Seen: 7, RaisedAt: 12, RaisedBy: "00-trace"},
		"held":     {Floor: 7, Seen: 7, Issued: 7, Lease: &Lease{Generation: 7, Owner: "São", ID: "s.x", ClaimID: "c", TTL: 1, Until: 2, Granted: 3, Renewed: 4}},
		"ended": {Floor: MaxGeneration + 1, Seen: MaxGeneration, Issued: MaxGeneration, Completed: true, Result: json.RawMessage(`{"a":[1,2]}`),
			Past: []Past{{Generation: MaxGeneration, Owner: "a", ID: "s.x", Ended: Completed}}},
	} {
		b, err := EncodeRecord(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := DecodeRecord(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, r)
		}
	}
}

// Judging by a damaged record could let a stale write through.
func TestARecordThatContradictsItselfIsAnError(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":                            ``,
		"cut short":                          `{"floor":7,"se`,
		"no object":                          `7`,
		"null":                               `null`,
		"no floor":                           `{"seen":7}`,
		"floor zero":                         `{"floor":0,"seen":7}`,
		"negative floor":                     `{"floor":-1}`,
		"fractional floor":                   `{"floor":1.5}`,
		"floor of text":                      `{"floor":"7"}`,
		"floor beyond the last generation":   `{"floor":9007199254740993,"seen":1}`,
		"seen beyond the last generation":    `{"floor":1,"seen":9007199254740992}`,
		"issued above seen":                  `{"floor":7,"seen":7,"issued":8}`,
		"lease of another generation":        `{"floor":7,"seen":7,"issued":7,"lease":{"generation":6}}`,
		"lease of a job that is not issued":  `{"floor":7,"seen":7,"lease":{"generation":7}}`,
		"issued generation above the floor":  `{"floor":3,"seen":7,"issued":7}`,
		"something behind the record's end":  `{"floor":7,"seen":7} {"floor":1}`,
		"another floor behind the first one": `{"floor":7,"seen":7}]`,
	} {
		if r, err := DecodeRecord([]byte(s)); err == nil {
			t.Errorf("%s: %s was read as %+v", name, s, r)
		} else if r.Floor != 0 {
			t.Errorf("%s: an error came with the record %+v", name, r)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, s := range []string{
		`{"floor":7,"seen":7,"issued":7,"lease":{"generation":7,"owner":"a","id":"x","ttl":1,"until":2,"granted":3}}`,
		`{"floor":1,"seen":1,"past":[],"result":null}`, `{"floor":1,"seen":1,"result":{"<":"\u2028"}}`, `{"FLOOR":1}`, `null`, ``, `{"floor":1,"floor":2}`,
		`{"floor":9007199254740992,"seen":9007199254740991,"issued":9007199254740991,"completed":true,"past":[{"generation":1,"ended":"released"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		if r.Floor == 0 || r.Floor > MaxGeneration+1 || r.Issued > r.Seen || r.Seen > MaxGeneration {
			t.Fatalf("%q was read as %+v", b, r)
		}
		first, err := EncodeRecord(r)
		if err != nil {
			t.Fatalf("encode what was decoded from %q: %v", b, err)
		}
		again, err := DecodeRecord(first)
		if err != nil {
			t.Fatalf("decode %q: %v", first, err)
		}
		second, err := EncodeRecord(again)
		if err != nil {
			t.Fatalf("encode again: %v", err)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("%q, then %q", first, second)
		}
	})
}

func TestARecordRemembersTheLastGenerationsThatEnded(t *testing.T) {
	var r Record
	for g := Generation(1); g <= 9; g++ {
		before := r
		r = r.withPast(Past{Generation: g, Ended: Released})
		if n := len(before.Past); n > 0 && before.Past[n-1].Generation != g-1 {
			t.Fatal("adding to a record changed the one that it was made from")
		}
		r = r.withPast(Past{Generation: g, Ended: Revoked}) // decided once
	}
	var got []string
	for _, p := range r.Past {
		got = append(got, string(p.Ended))
	}
	if len(r.Past) != maxPast || r.Past[0].Generation != 6 || r.Past[maxPast-1].Generation != 9 || strings.Join(got, " ") != "released released released released" {
		t.Errorf("past: %+v", r.Past)
	}
	if r.endedAs(9) != Released || r.endedAs(1) != Superseded {
		t.Errorf("generation 9 ended as %q, 1 as %q", r.endedAs(9), r.endedAs(1))
	}
}
