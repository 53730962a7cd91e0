package tokenstest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func loadCases() []conformance {
	return []conformance{
		{"LoadOfAnAbsentJobIsVersionZero", loadAbsent},
		{"LoadReturnsTheNewestCommit", loadNewest},
		{"LoadReturnsEveryField", loadEveryField},
		{"LoadReturnsALargeResult", loadLarge},
		{"LoadedRecordsStayWhatTheyWere", loadValue},
	}
}

func loadAbsent(t *testing.T, o Opener) {
	s := open(t, o)
	s.commit(job("other"), 0, sample(1))
	snap := s.load(job("absent"))
	if snap.Version != 0 || !reflect.DeepEqual(snap.Record, tokens.Record{}) {
		t.Errorf("load of an absent job: version %d, record %s", snap.Version, show(snap.Record))
	}
	if snap.Now.IsZero() {
		t.Error("load of an absent job carries no time")
	}
}

func loadNewest(t *testing.T, o Opener) {
	s := open(t, o)
	var v tokens.Version
	for g := tokens.Generation(1); g <= 20; g++ {
		v = s.commit(job("j"), v, sample(g))
		s.wantRecord(job("j"), v, sample(g))
	}
}

func loadEveryField(t *testing.T, o Opener) {
	s := open(t, o)
	full := fullRecord()
	requireFull(t, full)
	v := s.commit(job("j"), 0, full)
	s.wantRecord(job("j"), v, full)
	// Fields that are gone from the record are gone from the store.
	bare := tokens.Record{Floor: full.Floor, Seen: full.Seen}
	v = s.commit(job("j"), v, bare)
	s.wantRecord(job("j"), v, bare)
	s.close()
	s = open(t, o)
	v = s.commit(job("k"), 0, full)
	s.wantRecord(job("k"), v, full)
	if got := s.load(job("j")).Record; !reflect.DeepEqual(got, bare) {
		t.Errorf("reopened: %s, want %s", show(got), show(bare))
	}
}

func fullRecord() tokens.Record {
	return tokens.Record{
		Floor: tokens.MaxGeneration + 1, Seen: tokens.MaxGeneration, Issued: tokens.MaxGeneration - 1,
		Lease: &tokens.Lease{
			Generation: tokens.MaxGeneration - 1, Owner: `São "A" \ <&>  日本`, ID: "store.secret", ClaimID: "claim/1",
			TTL: 1, Until: 1<<62 + 1, Granted: -1, Renewed: 1<<53 + 1,
		},
		Past: []tokens.Past{
			{Generation: 1, Owner: "a", ID: "x", Ended: tokens.Superseded},
			{Generation: 2, Owner: "b", ID: "y", Ended: tokens.Released},
			{Generation: 3, Owner: "c", ID: "z", Ended: tokens.Revoked},
		},
		Completed: true, Result: json.RawMessage(`{"n":1.50,"big":12345678901234567890,"s":"é"}`),
		Tally: [2]tokens.Tally{
			{Generation: 1<<53 - 2, Applied: 1<<53 + 5, Declined: 7, Unknown: 3},
			{Generation: 5, Applied: 1, Declined: 2, Unknown: 4},
		},
		RaisedAt: 1<<53 + 3, RaisedBy: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// requireFull keeps fullRecord honest: a field that is added to the record later has
// to be added there.
func requireFull(t *testing.T, r tokens.Record) {
	t.Helper()
	for _, v := range []reflect.Value{reflect.ValueOf(r), reflect.ValueOf(*r.Lease), reflect.ValueOf(r.Past[0]), reflect.ValueOf(r.Tally[0]), reflect.ValueOf(r.Tally[1])} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("the suite's full record leaves %s.%s empty", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
}

// The protocol allows results of 16 KiB.
func loadLarge(t *testing.T, o Opener) {
	s := open(t, o)
	r := sample(1)
	r.Completed, r.Result = true, json.RawMessage(`"`+strings.Repeat("x", 16<<10-2)+`"`)
	v := s.commit(job("j"), 0, r)
	s.wantRecord(job("j"), v, r)
	s.close()
	s = open(t, o)
	if got := s.load(job("j")).Record; !reflect.DeepEqual(got, r) {
		t.Errorf("reopened: a result of %d bytes came back with %d", len(r.Result), len(got.Result))
	}
}

func loadValue(t *testing.T, o Opener) {
	s := open(t, o)
	r := sample(1)
	r.Past = []tokens.Past{{Generation: 1, Ended: tokens.Released}}
	v := s.commit(job("j"), 0, r)
	r.Lease.Owner, r.Past[0].Ended = "changed after the commit", "changed"
	first := s.load(job("j"))
	if first.Record.Lease.Owner != "owner-1" || first.Record.Past[0].Ended != tokens.Released {
		t.Error("changing a record after its commit changed what is stored")
	}
	first.Record.Lease.Owner = "changed after the load"
	second := s.load(job("j"))
	if second.Record.Lease.Owner != "owner-1" {
		t.Error("changing a loaded record changed what is stored")
	}
	s.commit(job("j"), v, sample(2))
	if second.Record.Lease.Owner != "owner-1" || second.Version != v {
		t.Error("a later commit changed a loaded snapshot")
	}
}
