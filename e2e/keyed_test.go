package e2e_test

import (
	"bytes"
	"context"
	"net/url"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// keyed is a write under a lease and a key; id is its name at the upstream.
func keyed(l daemon.Lease, key, id, do string) daemon.Write {
	w := write(l, id, do)
	w.Key = key
	return w
}

// replayed checks that an answer repeats the first one, and came from the store.
func (s *stage) replayed(a, first daemon.Answer) {
	s.Helper()
	if a.Decision() != "replayed" || a.Outcome() != "applied" || a.Header.Get("Idempotent-Replayed") != "true" || a.Reason() != "" {
		s.Fatalf("want a replay, got %s", show(a))
	}
	if a.Status != first.Status || !bytes.Equal(a.Raw, first.Raw) {
		s.Fatalf("want a replay of %s\ngot %s", show(first), show(a))
	}
	for _, name := range []string{"Location", "Etag", "Content-Type", "Idempotency-Key"} {
		if got, want := a.Header.Get(name), first.Header.Get(name); got != want {
			s.Errorf("the replay has %s %q, want %q", name, got, want)
		}
	}
}

// inProgress checks a refusal because a write under the key is in flight.
func (s *stage) inProgress(a daemon.Answer) {
	s.Helper()
	s.refused(a, 409, "write-in-progress")
	if a.Header.Get("Retry-After") == "" {
		s.Errorf("no Retry-After: %s", show(a))
	}
}

// blocked checks a refusal because nobody knows what became of the key, and that it says so.
func (s *stage) blocked(a daemon.Answer) {
	s.Helper()
	s.refused(a, 409, "outcome-unknown")
	s.about(a, "unknown")
}

// about checks the state of the write that a refusal tells of, and returns that.
func (s *stage) about(a daemon.Answer, state string) daemon.Fields {
	s.Helper()
	w := a.Member("write")
	if w["state"] != state {
		s.Fatalf("want a write that is %s, got %s", state, show(a))
	}
	return w
}

// appliedOnce checks that exactly one write under the key was executed.
func (s *stage) appliedOnce(job, key string) {
	s.Helper()
	if n := s.up.ExecutedKey(job, key); n != 1 {
		s.Errorf("key %q of job %q was executed %d times, want once", key, job, n)
	}
}

// listed returns what the control listener lists, by key.
func (s *stage) listed(job, state string) map[string]daemon.Fields {
	s.Helper()
	r := s.reply(s.control.Writes(s.soon(), url.Values{"job_id": {job}, "state": {state}}))
	s.wantReply(r, 200, "")
	out := make(map[string]daemon.Fields)
	for _, w := range r.List("writes") {
		key, _ := w["key"].(string)
		out[key] = w
	}
	return out
}

// becomes waits until the write under a key is in a state.
func (s *stage) becomes(job, key, state string) {
	s.Helper()
	s.until("the write is "+state, func() bool { return s.listed(job, state)[key] != nil })
}

// answeredBy counts the replies that the upstream has given to the proxy.
func (s *stage) answeredBy() float64 {
	s.Helper()
	n, err := s.control.Metric(s.soon(), `fenceproxy_upstream_duration_seconds_count{route="`+daemon.Route+`"}`)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func TestASuccessorIsAnsweredWithWhatItsPredecessorDid(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.up.Reply("/charge", charged)
	seven := s.claim("job", "A", brief)
	first := s.send(keyed(seven, "k1", "first", ""))
	s.forwarded(first, 201, "applied")
	if len(first.Header["Set-Cookie"]) != 1 || first.Header.Get("Idempotency-Key") != "k1" {
		t.Errorf("the first caller got %v", first.Header)
	}
	eight := s.takeOver("job", "B", long)
	s.quiet(func() {
		again := s.send(keyed(eight, "k1", "again", ""))
		s.replayed(again, first)
		if again.Header["Set-Cookie"] != nil || again.Floor() != eight.Generation {
			t.Errorf("the replay carries %v", again.Header)
		}
		late := s.send(keyed(seven, "k1", "late", ""))
		s.stale(late, "superseded")
		w := s.about(late, "applied")
		if daemon.Number(w, "status") != 201 || w["location"] != "/charges/55" || daemon.Number(w, "generation") != int64(seven.Generation) {
			t.Errorf("the stale write was told of %v", w)
		}
		s.stale(s.send(keyed(seven, "k2", "other", "")), "superseded") // the generation decides before the key does
	})
	s.appliedOnce("job", "k1")

	s.proxy.Kill()
	s.restart()
	s.quiet(func() { s.replayed(s.send(keyed(eight, "k1", "after", "")), first) })
	s.forwarded(s.send(keyed(s.claim("other", "A", long), "k1", "of another job", "")), 201, "applied")
}

func TestAJobThatIsStartedAgainFindsWhatWasDone(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.up.Reply("/charge", charged)
	l := s.claim("job", "A", long)
	first := s.send(keyed(l, "run-2024-05-01", "first", ""))
	s.forwarded(first, 201, "applied")
	s.wantReply(s.reply(s.control.Complete(s.soon(), l, nil)), 200, "")
	s.wantReply(s.reply(s.control.Claim(s.soon(), "job", "C", long, nil)), 409, "job-completed")
	s.stale(s.send(keyed(l, "run-2024-05-01", "late", "")), "completed")
	s.wantReply(s.reply(s.control.Reopen(s.soon(), "job", "test")), 200, "")
	next := s.claim("job", "C", long)
	s.replayed(s.send(keyed(next, "run-2024-05-01", "again", "")), first)
	s.forwarded(s.send(keyed(next, "run-2024-05-02", "next", "")), 201, "applied")
	s.appliedOnce("job", "run-2024-05-01")
	s.unseen("late", "again")
}

func TestTheImpatientCallersRetryIsInProgressThenReplayed(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	ctx, giveUp := context.WithCancel(s.soon())
	first := s.startIn(ctx, keyed(l, "k1", "first", "hang"))
	s.arrives("first")
	giveUp()
	<-first.done
	for range 3 {
		s.inProgress(s.send(keyed(l, "k1", "retry", "")))
	}
	s.up.Release("first")
	s.becomes("job", "k1", "applied")
	done := daemon.Answer{Status: 200, Raw: []byte("done first\n"), Header: map[string][]string{
		"Content-Type": {"text/plain"}, "Idempotency-Key": {"k1"}}}
	s.replayed(s.send(keyed(l, "k1", "later", "")), done)
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "job", l.Generation, "test")), 200, "")
	s.replayed(s.send(keyed(s.claim("job", "B", long), "k1", "of the next", "")), done)
	s.appliedOnce("job", "k1")
	s.unseen("retry", "later", "of the next")
	if n := s.up.Accepted(); n != 1 {
		t.Errorf("the proxy opened %d connections, want 1", n)
	}
}

// The key is judged before the older attempts are waited for: who repeats one of them learns it at once.
func TestADuplicateOfAnOlderAttemptDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	s := open(t, "takeover: {wait: 1h}")
	seven, eight := issued("job", 7), issued("job", 8)
	applied := s.send(keyed(seven, "done", "done", ""))
	s.forwarded(applied, 200, "applied")
	old := s.start(keyed(seven, "k1", "old", "hang"))
	s.arrives("old")
	s.inProgress(s.send(keyed(eight, "k1", "same", "")))
	s.replayed(s.send(keyed(eight, "done", "repeated", "")), applied)
	other := s.start(keyed(eight, "k2", "other", ""))
	s.staysAway("other")
	s.up.Release("old")
	s.forwarded(old.answer(), 200, "applied")
	s.forwarded(other.answer(), 200, "applied")
	s.replayed(s.send(keyed(eight, "k1", "again", "")), old.answer())
	s.appliedOnce("job", "k1")
}
