package badgerstore

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestPlacesOfWritesSortAsJobAndKeyDo(t *testing.T) {
	type name struct {
		job tokens.Job
		key string
	}
	var names []name
	for _, ns := range []string{"", "\x00", "a", "a\x00", "a\x00\x01", "ab"} {
		for _, id := range []string{"", "a", "a\x00", "a\x00b", "aa"} {
			for _, key := range []string{" once 1 r", "a", "a\x00", "a\x00\x01b", strings.Repeat("k", 255)} {
				names = append(names, name{tokens.Job{Namespace: ns, ID: id}, key})
			}
		}
	}
	for _, a := range names {
		place := placeOf(a.job, a.key)
		if job, key, err := nameAt(place); err != nil || job != a.job || key != a.key {
			t.Errorf("the place of %+v reads %q %q (%v)", a, job, key, err)
		}
		if !bytes.HasPrefix(place, jobPlace(a.job)) {
			t.Errorf("the place of %+v does not begin as its job's do", a)
		}
	}
	if !slices.IsSortedFunc(names, func(a, b name) int { return bytes.Compare(placeOf(a.job, a.key), placeOf(b.job, b.key)) }) {
		t.Error("the places are out of order")
	}
	if _, _, err := nameAt([]byte("a\x00\x01b")); err == nil {
		t.Error("half a place reads as a whole one")
	}
	times := []int64{math.MinInt64, -256, -1, 0, 1, 255, 256, 1 << 40, math.MaxInt64}
	if !slices.IsSortedFunc(times, func(a, b int64) int { return bytes.Compare(expiryKey(a, nil), expiryKey(b, nil)) }) {
		t.Error("times are out of order")
	}
}

func TestAMarkReadsBackAsItWas(t *testing.T) {
	for _, m := range []mark{
		{there: true}, {there: true, open: true}, {there: true, reply: true, expires: 1 << 60}, {there: true, open: true, reply: true, expires: -1},
	} {
		got, record, err := decodeMark(m.encode([]byte("record")))
		if err != nil || got != m || string(record) != "record" {
			t.Errorf("%+v reads %+v with record %q (%v)", m, got, record, err)
		}
	}
	if _, _, err := decodeMark(make([]byte, markSize-1)); err == nil {
		t.Error("half a mark reads as a whole one")
	}
}

func inFlight(attempt string) tokens.WriteRecord {
	return tokens.WriteRecord{
		State: tokens.WriteInFlight, Attempt: attempt, Generation: 1, Fingerprint: tokens.Fingerprint{Head: "h"},
		Method: "POST", Path: "/charge", Route: "payments", Started: 1000,
	}
}

// settledAs is a settled write with a reply of so many bytes.
func settledAs(state tokens.WriteState, expires int64, reply int) tokens.WriteRecord {
	w := inFlight("a")
	w.State, w.Settled, w.Expires, w.Status = state, 1001, expires, 201
	if reply > 0 {
		w.Reply, w.HasReply = &tokens.Reply{Header: http.Header{"A": {"b"}}, Body: bytes.Repeat([]byte("x"), reply)}, true
	}
	return w
}

func mustPut(t testing.TB, s *Store, j tokens.Job, writes ...tokens.WriteChange) {
	t.Helper()
	snap, err := s.Load(t.Context(), j)
	if err == nil {
		_, err = s.Commit(t.Context(), tokens.Change{Job: j, Expect: snap.Version, Record: atFloor(1), Writes: writes})
	}
	if err != nil {
		t.Fatalf("commit writes of %s: %v", j, err)
	}
}

func writeOf(t testing.TB, s *Store, j tokens.Job, key string) tokens.WriteRecord {
	t.Helper()
	w, err := s.LoadWrite(t.Context(), j, key)
	if err != nil {
		t.Fatalf("load write %q of %s: %v", key, j, err)
	}
	return w
}

// keysUnder counts what is stored under each prefix.
func keysUnder(t testing.TB, s *Store) map[byte]int {
	t.Helper()
	n := make(map[byte]int)
	txn := s.db.NewTransactionAt(s.acknowledged.Load(), false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		n[it.Item().Key()[0]]++
	}
	return n
}

func TestIndexesAndRepliesFollowTheirWrite(t *testing.T) {
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, neverBeats())
	put := func(w tokens.WriteRecord) tokens.WriteChange { return tokens.WriteChange{Key: "k", Record: w} }
	for i, step := range []struct {
		change                      []tokens.WriteChange
		write, reply, open, expires int
	}{
		{[]tokens.WriteChange{put(inFlight("a"))}, 1, 0, 1, 0},
		{[]tokens.WriteChange{put(inFlight("b"))}, 1, 0, 1, 0},
		{[]tokens.WriteChange{put(settledAs(tokens.WriteApplied, 10, 5))}, 1, 1, 0, 1},
		{[]tokens.WriteChange{put(settledAs(tokens.WriteApplied, 20, 5))}, 1, 1, 0, 1},
		{[]tokens.WriteChange{put(settledAs(tokens.WriteDeclined, 20, 0))}, 1, 0, 0, 1},
		{[]tokens.WriteChange{put(inFlight("c"))}, 1, 0, 1, 0},
		{[]tokens.WriteChange{put(settledAs(tokens.WriteUnknown, 0, 5))}, 1, 1, 1, 0},
		{[]tokens.WriteChange{{Key: "k", Purge: true}}, 0, 0, 0, 0},
		{[]tokens.WriteChange{{Key: "k", Purge: true}}, 0, 0, 0, 0},
		// Several changes of one key in one commit: the last counts.
		{[]tokens.WriteChange{put(settledAs(tokens.WriteApplied, 10, 5)), put(settledAs(tokens.WriteApplied, 20, 0))}, 1, 0, 0, 1},
		{[]tokens.WriteChange{put(inFlight("d")), {Key: "k", Purge: true}}, 0, 0, 0, 0},
	} {
		mustPut(t, s, job("j"), step.change...)
		n := keysUnder(t, s)
		if n[prefixWrite] != step.write || n[prefixReply] != step.reply || n[prefixOpen] != step.open || n[prefixExpiry] != step.expires {
			t.Fatalf("step %d: %d writes, %d replies, %d open, %d expire; want %+v", i,
				n[prefixWrite], n[prefixReply], n[prefixOpen], n[prefixExpiry], step)
		}
	}
}

func TestTheCommitterReadsNothingForAWrite(t *testing.T) {
	// What prepare gives the committer is all that it writes: the record aside, the
	// start of a keyed write is two entries and its end four.
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, neverBeats())
	change := func(w tokens.WriteRecord) tokens.Change {
		return tokens.Change{Job: job("j"), Writes: []tokens.WriteChange{{Key: "k", Record: w}}}
	}
	p, err := s.prepare(change(inFlight("a")))
	if err != nil || len(p.entries) != 2 || p.freed != 0 {
		t.Errorf("%d entries, %d bytes freed (%v)", len(p.entries), p.freed, err)
	}
	mustPut(t, s, job("j"), tokens.WriteChange{Key: "k", Record: inFlight("a")})
	p, err = s.prepare(change(settledAs(tokens.WriteApplied, 10, 5)))
	if err != nil || len(p.entries) != 4 || p.freed != 0 {
		t.Errorf("%d entries, %d bytes freed (%v)", len(p.entries), p.freed, err)
	}
}

func TestAWriteThatDoesNotFitIsRefusedAndTheStoreGoesOn(t *testing.T) {
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, neverBeats())
	many := make([]tokens.WriteChange, maxBatchEntries)
	for i := range many {
		many[i] = tokens.WriteChange{Key: fmt.Sprint(i), Record: inFlight("a")}
	}
	for name, writes := range map[string][]tokens.WriteChange{
		"a reply of a mebibyte": {{Key: "k", Record: settledAs(tokens.WriteApplied, 10, 1<<20)}},
		"a key of 17 KiB":       {{Key: strings.Repeat("k", 17<<10), Record: inFlight("a")}},
		"thousands of writes":   many,
	} {
		_, err := s.Commit(t.Context(), tokens.Change{Job: job("j"), Record: atFloor(1), Writes: writes})
		wantError(t, err, tokens.ErrRefused)
		if s.Err() != nil || floorOf(t, s, job("j")) != 0 {
			t.Errorf("%s: %v", name, s.Err())
		}
	}
	// What just fits goes through Badger.
	mustPut(t, s, job("j"), tokens.WriteChange{Key: "k", Record: settledAs(tokens.WriteApplied, 10, maxBatchBytes-1000)})
	mustPut(t, s, job("j"), many[:maxBatchEntries/2-1]...)
	if got := len(writeOf(t, s, job("j"), "k").Reply.Body); got != maxBatchBytes-1000 {
		t.Errorf("a reply of %d bytes", got)
	}
	if logs, err := filepath.Glob(filepath.Join(storeDir(s.opt.Dir), "*.vlog")); err != nil || len(logs) > 1 {
		t.Errorf("values went to the value log: %v %v", logs, err)
	}
}

// A batch of large changes is cut where Badger's transaction ends.
func TestLargeRepliesThatQueueTogetherAreAllCommitted(t *testing.T) {
	s, g := openGated(t, Options{Dir: t.TempDir()})
	var done []<-chan error
	commit := func(n int) {
		ch := make(chan error, 1)
		go func() {
			_, err := s.Commit(t.Context(), tokens.Change{Job: jobN(n), Record: atFloor(1),
				Writes: []tokens.WriteChange{{Key: "k", Record: settledAs(tokens.WriteApplied, 10, 100<<10)}}})
			ch <- err
		}()
		done = append(done, ch)
	}
	commit(0)
	<-g.entered
	for n := range 40 {
		commit(n + 1)
	}
	awaitQueue(t, s, 40)
	close(g.done)
	for n, ch := range done {
		if err := <-ch; err != nil {
			t.Errorf("commit %d: %v", n, err)
		}
	}
	for n := range done {
		if w := writeOf(t, s, jobN(n), "k"); w.Reply == nil || len(w.Reply.Body) != 100<<10 {
			t.Errorf("write %d came back without its reply", n)
		}
	}
}
