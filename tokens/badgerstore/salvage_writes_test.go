package badgerstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// withWrites returns the image of a store with a write of every kind, that died.
func withWrites(t *testing.T) string {
	t.Helper()
	dir, image := t.TempDir(), t.TempDir()
	s := mustOpenWith(t, Options{Dir: dir}, neverBeats())
	mustPut(t, s, job("j"),
		tokens.WriteChange{Key: "applied", Record: settledAs(tokens.WriteApplied, 1<<60, 1000)},
		tokens.WriteChange{Key: "replaced", Record: settledAs(tokens.WriteApplied, 5, 1000)},
		tokens.WriteChange{Key: "purged", Record: settledAs(tokens.WriteApplied, 5, 1000)},
		tokens.WriteChange{Key: "declined", Record: settledAs(tokens.WriteDeclined, 7, 0)},
		tokens.WriteChange{Key: "in flight", Record: inFlight("a")},
		tokens.WriteChange{Key: "unknown", Record: settledAs(tokens.WriteUnknown, 0, 10)})
	mustPut(t, s, job("j"),
		tokens.WriteChange{Key: "replaced", Record: settledAs(tokens.WriteApplied, 6, 0)},
		tokens.WriteChange{Key: "purged", Purge: true})
	copyDir(t, dir, image)
	closeStore(t, s)
	return image
}

func salvaged(t *testing.T, dir string) (SalvageReport, *Store) {
	t.Helper()
	report, err := Salvage(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return report, mustOpenWith(t, Options{Dir: dir}, neverBeats())
}

func wantState(t *testing.T, s *Store, key string, state tokens.WriteState, reply bool) {
	t.Helper()
	w := writeOf(t, s, job("j"), key)
	if w.State != state || (w.Reply != nil) != reply || w.HasReply != reply {
		t.Errorf("write %q is %q, reply %v (%v), want %q, reply %v", key, w.State, w.Reply != nil, w.HasReply, state, reply)
	}
}

func TestASalvageOfAnIntactStoreKeepsEveryWriteAsItWas(t *testing.T) {
	for name, end := range map[string]func(dir string){
		"in the log": func(string) {},
		"in tables":  func(dir string) { closeStore(t, mustOpenWith(t, Options{Dir: dir}, neverBeats())) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := withWrites(t)
			end(dir)
			for range 2 {
				report, s := salvaged(t, dir)
				if report.Writes != 5 || report.Blocked != 0 || report.Jobs != 1 || report.Dropped != 0 {
					t.Errorf("report %+v", report)
				}
				wantState(t, s, "applied", tokens.WriteApplied, true)
				wantState(t, s, "replaced", tokens.WriteApplied, false)
				wantState(t, s, "purged", "", false)
				wantState(t, s, "declined", tokens.WriteDeclined, false)
				wantState(t, s, "in flight", tokens.WriteInFlight, false)
				wantState(t, s, "unknown", tokens.WriteUnknown, true)
				if n := keysUnder(t, s); n[prefixWrite] != 5 || n[prefixReply] != 2 || n[prefixOpen] != 2 || n[prefixExpiry] != 3 {
					t.Errorf("%d writes, %d replies, %d open, %d expire", n[prefixWrite], n[prefixReply], n[prefixOpen], n[prefixExpiry])
				}
				closeStore(t, s)
			}
		})
	}
}

// What was lost may have been an attempt under a key that seems to be free.
func TestASalvageAfterALossBlocksKeysThatSeemFree(t *testing.T) {
	dir := withWrites(t)
	if err := os.Remove(filepath.Join(storeDir(dir), "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	report, s := salvaged(t, dir)
	if report.Writes != 5 || report.Blocked != 1 {
		t.Errorf("report %+v", report)
	}
	wantState(t, s, "applied", tokens.WriteApplied, true)
	wantState(t, s, "declined", tokens.WriteUnknown, false)
	wantState(t, s, "in flight", tokens.WriteInFlight, false)
	open, err := s.ListWrites(t.Context(), tokens.WritesQuery{Open: true, Limit: 10})
	if err != nil || len(open) != 3 {
		t.Errorf("%d writes are open (%v)", len(open), err)
	}
	if w := writeOf(t, s, job("j"), "declined"); w.Expires != 0 {
		t.Errorf("a write with an unknown outcome expires: %+v", w)
	}
}

func TestASalvageBlocksAKeyWhoseRecordMakesNoSense(t *testing.T) {
	w := wreck{newest: map[string]version{
		string(under(prefixWrite, placeOf(job("j"), "short"))):  {1, []byte("?")},
		string(under(prefixWrite, placeOf(job("j"), "state"))):  {1, mark{there: true}.encode([]byte(`{"state":"?"}`))},
		string(under(prefixWrite, placeOf(job("j"), "alone"))):  {2, mark{there: true, reply: true}.encode([]byte(`{"state":"applied","has_reply":true}`))},
		string(under(prefixReply, placeOf(job("j"), "alone"))):  {1, []byte("\x00\x00\x00\x02{}of an older version")},
		string(under(prefixReply, placeOf(job("j"), "orphan"))): {1, []byte("\x00\x00\x00\x02{}")},
		"w?": {1, []byte("?")},
	}}
	var report SalvageReport
	groups, err := w.rebuildWrites(&report)
	if err != nil || report.Writes != 3 || report.Blocked != 2 || report.Dropped != 1 || len(groups) != 3 {
		t.Fatalf("report %+v, %d groups (%v)", report, len(groups), err)
	}
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, neverBeats())
	last, err := writeAll(s.db, s.sequence, groups)
	if err != nil {
		t.Fatal(err)
	}
	s.sequence = last
	s.acknowledged.Store(last)
	wantState(t, s, "short", tokens.WriteUnknown, false)
	wantState(t, s, "state", tokens.WriteUnknown, false)
	wantState(t, s, "alone", tokens.WriteApplied, false)
}
