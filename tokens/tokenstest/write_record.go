package tokenstest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func writeCases() []conformance {
	return []conformance{
		{"LoadOfAnAbsentWriteIsZero", writeAbsent},
		{"LoadWriteReturnsEveryFieldAndTheReply", writeEveryField},
		{"WritesAndTheirRecordAreCommittedAllOrNone", writeAllOrNone},
		{"ManyWritesOfOneCommitAreAllThere", writeMany},
		{"APurgedWriteIsGoneWithItsReply", writePurge},
		{"AWriteThatReplacesAnotherDropsItsReply", writeReplaces},
		{"WritesWithAlmostEqualNamesAreApart", writeNames},
		{"CommittedWritesSurviveReopening", writeReopen},
		{"ACommitRefusesAWriteThatCanNotBeStored", writeUnstorable},
	}
}

func (s *subject) loadWrite(job tokens.Job, key string) tokens.WriteRecord {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	w, err := s.LoadWrite(ctx, job, key)
	if err != nil {
		s.t.Fatalf("load write %q of %q: %v", key, job, err)
	}
	return w
}

// wantWrite fails unless the store holds exactly this write.
func (s *subject) wantWrite(job tokens.Job, key string, want tokens.WriteRecord) {
	s.t.Helper()
	got := s.loadWrite(job, key)
	if (got.Reply == nil) != (want.Reply == nil) || got.Reply != nil &&
		(!reflect.DeepEqual(got.Reply.Header, want.Reply.Header) || !bytes.Equal(got.Reply.Body, want.Reply.Body)) {
		s.t.Errorf("load write %q of %q: not the reply that was committed", key, job)
	}
	got.Reply, want.Reply = nil, nil
	if got != want {
		s.t.Errorf("load write %q of %q:\n got %+v\nwant %+v", key, job, got, want)
	}
}

// sampleWrite is a write that differs for every n, in flight.
func sampleWrite(n int) tokens.WriteRecord {
	return tokens.WriteRecord{
		State: tokens.WriteInFlight, Attempt: "boot-" + strings.Repeat("i", n%7+1), Generation: tokens.Generation(n + 1),
		Fingerprint: tokens.Fingerprint{Head: "head"}, Method: "POST", Path: "/charge", Route: "payments", Started: int64(1000 + n),
	}
}

// settledWrite is the same write when it was applied, with a reply of size bytes.
func settledWrite(n int, expires int64, size int) tokens.WriteRecord {
	w := sampleWrite(n)
	w.State, w.Settled, w.Expires, w.Status = tokens.WriteApplied, w.Started+5, expires, 201
	if size > 0 {
		w.Reply, w.HasReply = &tokens.Reply{Header: http.Header{"X-N": {strings.Repeat("n", n%5)}}, Body: bytes.Repeat([]byte{byte(n)}, size)}, true
	}
	return w
}

func put(key string, w tokens.WriteRecord) tokens.WriteChange {
	return tokens.WriteChange{Key: key, Record: w}
}

// writeAs commits one write on whatever version is current.
func (s *subject) writeAs(job tokens.Job, w ...tokens.WriteChange) {
	s.t.Helper()
	s.commitWrites(job, s.load(job).Version, sample(1), w...)
}

func writeAbsent(t *testing.T, o Opener) {
	s := open(t, o)
	s.writeAs(job("j"), put("k", sampleWrite(1)))
	for _, at := range []struct {
		job tokens.Job
		key string
	}{{job("j"), "other"}, {job("other"), "k"}, {job("j"), ""}, {job("j"), "kk"}, {tokens.Job{Namespace: "n", ID: "j"}, "k"}} {
		if w := s.loadWrite(at.job, at.key); w != (tokens.WriteRecord{}) {
			t.Errorf("load of the absent write %q of %q: %+v", at.key, at.job, w)
		}
	}
}

func fullWrite() tokens.WriteRecord {
	return tokens.WriteRecord{
		State: tokens.WriteApplied, Attempt: "boot-1", Generation: tokens.MaxGeneration,
		Fingerprint: tokens.Fingerprint{Head: strings.Repeat("a", 32), Body: strings.Repeat("b", 64)},
		Method:      "PATCH", Path: `/São/"x"/<&>`, Route: "payments", Started: 1<<53 + 1, Settled: 1<<53 + 2, Expires: 1<<62 + 3,
		Status: 201, Location: "/charges/1?a=b&c=<d>", HasReply: true, Resolved: true, Doubtful: true, Key: "own",
		Reply: &tokens.Reply{
			Header: http.Header{"Link": {"<a>; rel=x", "<b>; rel=y", ""}, "Content-Type": {"application/octet-stream"}, "x-Odd": {"ä \t!"}},
			Body:   manyBytes(64 << 10),
		},
	}
}

// manyBytes holds every byte value, and does not compress.
func manyBytes(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func writeEveryField(t *testing.T, o Opener) {
	s := open(t, o)
	full := fullWrite()
	for _, v := range []reflect.Value{reflect.ValueOf(full), reflect.ValueOf(full.Fingerprint), reflect.ValueOf(*full.Reply)} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("the suite's full write leaves %s.%s empty", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	empty := settledWrite(1, 0, 0)
	empty.HasReply, empty.Reply = true, &tokens.Reply{Header: http.Header{}, Body: []byte{}}
	s.writeAs(job("j"), put("full", full), put("bare", sampleWrite(1)), put("empty reply", empty))
	for range 2 {
		s.wantWrite(job("j"), "full", full)
		s.wantWrite(job("j"), "bare", sampleWrite(1))
		s.wantWrite(job("j"), "empty reply", empty)
		s.close()
		s = open(t, o)
	}
	// Who changes what was loaded changes nothing that is stored.
	got := s.loadWrite(job("j"), "full")
	got.Reply.Body[0]++
	got.Reply.Header.Set("Link", "changed")
	s.wantWrite(job("j"), "full", full)
	s.writeAs(job("j"), put("full", sampleWrite(2)))
	s.wantWrite(job("j"), "full", sampleWrite(2))
}

func writeAllOrNone(t *testing.T, o Opener) {
	s := open(t, o)
	v1 := s.commitWrites(job("j"), 0, sample(1), put("kept", settledWrite(1, 500, 10)))
	v2 := s.commitWrites(job("j"), v1, sample(2), put("second", sampleWrite(2)))
	for _, old := range []tokens.Version{0, v1, v2 + 1} {
		_, err := s.try(job("j"), old, sample(9), put("new", sampleWrite(9)), put("second", settledWrite(9, 1, 10)),
			tokens.WriteChange{Key: "kept", Purge: true})
		wantConflict(t, err)
		s.wantRecord(job("j"), v2, sample(2))
		s.wantWrite(job("j"), "kept", settledWrite(1, 500, 10))
		s.wantWrite(job("j"), "second", sampleWrite(2))
		s.wantWrite(job("j"), "new", tokens.WriteRecord{})
		s.wantWrites(tokens.WritesQuery{Open: true, Limit: 10}, "j second")
		s.wantWrites(tokens.WritesQuery{ExpiredAt: 1000, Limit: 10}, "j kept")
	}
	v3 := s.commitWrites(job("j"), v2, sample(3), put("second", settledWrite(2, 700, 20)), put("third", sampleWrite(3)))
	s.wantRecord(job("j"), v3, sample(3))
	s.wantWrite(job("j"), "second", settledWrite(2, 700, 20))
	s.wantWrite(job("j"), "third", sampleWrite(3))
}

// A sweep purges hundreds of writes of a job in one commit.
func writeMany(t *testing.T, o Opener) {
	s := open(t, o)
	var all, none []tokens.WriteChange
	for n := range 500 {
		key := strings.Repeat("k", n/2+1) + string(rune('0'+n%2))
		all = append(all, put(key, settledWrite(n, int64(n+1), 100)))
		none = append(none, tokens.WriteChange{Key: key, Purge: true})
	}
	s.writeAs(job("j"), all...)
	s.close()
	s = open(t, o)
	for _, w := range all {
		s.wantWrite(job("j"), w.Key, w.Record)
	}
	s.writeAs(job("j"), none...)
	if page := s.listWrites(tokens.WritesQuery{Limit: 1000}); len(page) != 0 {
		t.Errorf("%d of 500 writes are there after their purge", len(page))
	}
}

func writePurge(t *testing.T, o Opener) {
	s := open(t, o)
	s.writeAs(job("j"), put("a", settledWrite(1, 10, 100)), put("b", sampleWrite(2)), put("c", settledWrite(3, 10, 100)))
	s.writeAs(job("other"), put("a", settledWrite(4, 10, 100)))
	purge := func(key string) tokens.WriteChange { return tokens.WriteChange{Key: key, Purge: true} }
	s.writeAs(job("j"), purge("a"), purge("b"), purge("absent"))
	for range 2 {
		for _, key := range []string{"a", "b", "absent"} {
			s.wantWrite(job("j"), key, tokens.WriteRecord{})
		}
		s.wantWrite(job("j"), "c", settledWrite(3, 10, 100))
		s.wantWrite(job("other"), "a", settledWrite(4, 10, 100))
		s.wantWrites(tokens.WritesQuery{Limit: 10}, "j c", "other a")
		s.wantWrites(tokens.WritesQuery{Open: true, Limit: 10})
		s.wantWrites(tokens.WritesQuery{ExpiredAt: 10, Limit: 10}, "j c", "other a")
		s.close()
		s = open(t, o)
	}
	if s.load(job("j")).Version == 0 {
		t.Error("a purge removed the job's record")
	}
	// The name can be used again, and nothing of the old write comes back.
	s.writeAs(job("j"), put("a", settledWrite(5, 20, 0)))
	s.wantWrite(job("j"), "a", settledWrite(5, 20, 0))
	s.wantWrites(tokens.WritesQuery{ExpiredAt: 20, Limit: 10}, "j c", "other a", "j a")
}

func writeReplaces(t *testing.T, o Opener) {
	s := open(t, o)
	for _, next := range []tokens.WriteRecord{sampleWrite(2), settledWrite(3, 99, 0), settledWrite(4, 99, 5)} {
		s.writeAs(job("j"), put("k", settledWrite(1, 10, 1000)))
		s.writeAs(job("j"), put("k", next))
		s.wantWrite(job("j"), "k", next)
		s.close()
		s = open(t, o)
		s.wantWrite(job("j"), "k", next)
	}
}

// writePlaces are names that separators, prefixes and encodings have confused.
func writePlaces() (places []tokens.ListedWrite) {
	long := strings.Repeat("x", 254)
	for _, at := range []struct {
		job  tokens.Job
		keys []string
	}{
		{job("a"), []string{"b", "bc", "b/c", " once 1 b", " once 12 b", "B", "%", "_", "0", "00", "!", "~", long + "a", long + "b", "b\x01"}},
		{job("ab"), []string{"b", "c", " once 1 b"}},
		{job("a/b"), []string{"c"}},
		{job("a!"), []string{"b"}},
		{tokens.Job{Namespace: "a", ID: "b"}, []string{"c", "b"}},
		{tokens.Job{Namespace: "a!", ID: "b"}, []string{"c"}},
		{tokens.Job{Namespace: "a", ID: "bc"}, []string{"c", "!"}},
		{tokens.Job{Namespace: "A", ID: "b"}, []string{"c"}},
		{tokens.Job{Namespace: "ab", ID: "c"}, []string{"c"}},
	} {
		for _, key := range at.keys {
			places = append(places, tokens.ListedWrite{Job: at.job, Key: key})
		}
	}
	return places
}

func writeNames(t *testing.T, o Opener) {
	s := open(t, o)
	places := writePlaces()
	for n, p := range places {
		s.wantWrite(p.Job, p.Key, tokens.WriteRecord{})
		s.writeAs(p.Job, put(p.Key, settledWrite(n, int64(n+1), n)))
	}
	for range 2 {
		for n, p := range places {
			s.wantWrite(p.Job, p.Key, settledWrite(n, int64(n+1), n))
		}
		s.close()
		s = open(t, o)
	}
	for n, p := range places {
		if n%2 == 0 {
			s.writeAs(p.Job, tokens.WriteChange{Key: p.Key, Purge: true})
		}
	}
	for n, p := range places {
		if n%2 == 1 {
			s.wantWrite(p.Job, p.Key, settledWrite(n, int64(n+1), n))
		} else {
			s.wantWrite(p.Job, p.Key, tokens.WriteRecord{})
		}
	}
}

// One commit, then the end: nothing that comes later may be needed to make it durable.
func writeReopen(t *testing.T, o Opener) {
	for n := range 4 {
		s := open(t, o)
		if n > 0 {
			s.wantWrite(job("j"), "k", settledWrite(n-1, 50, 64<<10))
			s.wantWrites(tokens.WritesQuery{Open: true, Limit: 10}, "j open")
			s.wantWrites(tokens.WritesQuery{ExpiredAt: 50, Limit: 10}, "j k")
		}
		s.writeAs(job("j"), put("k", settledWrite(n, 50, 64<<10)), put("open", sampleWrite(n)))
		s.close()
	}
}

func writeUnstorable(t *testing.T, o Opener) {
	s := open(t, o)
	v := s.commit(job("j"), 0, sample(1))
	huge := settledWrite(1, 10, 64<<20)
	if _, err := s.try(job("j"), v, sample(2), put("a", sampleWrite(1)), put("k", huge)); err == nil {
		// An engine may take it; then it has to be there.
		s.wantWrite(job("j"), "k", huge)
		return
	} else if !errors.Is(err, tokens.ErrRefused) {
		t.Errorf("commit of a write that can not be stored: %v, want ErrRefused", err)
	}
	s.wantRecord(job("j"), v, sample(1))
	s.wantWrite(job("j"), "a", tokens.WriteRecord{})
	s.writeAs(job("j"), put("k", sampleWrite(1)))
}
