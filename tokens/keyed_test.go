package tokens_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

const hour = int64(time.Hour / time.Millisecond)

// keyed is a write with a key.
func keyed(g tokens.Generation, key string) *write {
	w := newWrite(j1, g)
	w.Keying = tokens.Keying{
		Key: key, Fingerprint: tokens.Fingerprint{Head: tokens.HeadFingerprint("POST", "/charge"), Body: "b"},
		Method: "POST", Path: "/charge", Route: "payments", Retention: hour,
	}
	return w
}

// begin admits a write, which must be let through.
func (p *process) begin(w *write) *write {
	p.t.Helper()
	if err := p.Admit(p.t.Context(), &w.Attempt); err != nil {
		p.t.Fatalf("admit key %q of generation %d: %v", w.Key, w.Generation, err)
	}
	return w
}

// finish records an outcome and settles the attempt.
func (p *process) finish(w *write, s tokens.Settlement) {
	p.t.Helper()
	if err := p.Record(p.t.Context(), &w.Attempt, s); err != nil {
		p.t.Fatalf("record %v: %v", s.Outcome, err)
	}
	p.Settle(&w.Attempt, s.Outcome)
}

// deny must be refused with want.
func (p *process) deny(w *write, want error) *tokens.Refusal {
	p.t.Helper()
	err := p.Admit(p.t.Context(), &w.Attempt)
	if !errors.Is(err, want) {
		p.t.Fatalf("admit key %q of generation %d: %v, want %v", w.Key, w.Generation, err, want)
	}
	var ref *tokens.Refusal
	if !errors.As(err, &ref) {
		p.t.Fatalf("%v is no refusal", err)
	}
	return ref
}

func applied() tokens.Settlement {
	return tokens.Settlement{Outcome: tokens.Applied, Status: 201, Location: "/charges/1",
		Reply: &tokens.Reply{Header: http.Header{"X-A": {"1", "2"}}, Body: []byte("paid")}}
}

func wantReply(t *testing.T, ref *tokens.Refusal) {
	t.Helper()
	w := ref.Write
	if w == nil || w.State != tokens.WriteApplied || w.Status != 201 || w.Location != "/charges/1" || w.Reply == nil ||
		string(w.Reply.Body) != "paid" || len(w.Reply.Header["X-A"]) != 2 {
		t.Fatalf("the refusal carries %+v", w)
	}
}

// TestOfManyIdenticalKeyedWritesOneIsLetThrough is C24, step 1.
func TestOfManyIdenticalKeyedWritesOneIsLetThrough(t *testing.T) {
	for _, generations := range [][]tokens.Generation{{7}, {8, 7}} {
		p := start(t, tokens.Options{})
		var through, busy, stale atomic.Int32
		var wg sync.WaitGroup
		for n := range 50 {
			wg.Go(func() {
				w := keyed(generations[n%len(generations)], "k")
				w.TakeoverWait = 0
				switch err := p.Admit(context.Background(), &w.Attempt); {
				case err == nil:
					// It is not settled, so that every other one meets it.
					if w.Gate() {
						through.Add(1)
					}
				case errors.Is(err, tokens.ErrWriteInProgress):
					busy.Add(1)
				case errors.Is(err, tokens.ErrStaleGeneration), errors.Is(err, tokens.ErrTakeoverPending):
					stale.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if through.Load() > 1 || len(generations) == 1 && (through.Load() != 1 || busy.Load() != 49) {
			t.Errorf("generations %v: %d let through, %d in progress, %d stale", generations, through.Load(), busy.Load(), stale.Load())
		}
	}
}

func TestNothingIsSentBeforeTheAttemptIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.admit(7)
		gate := p.store.HoldCommits()
		w := keyed(7, "k")
		admitted := p.admitLater(w)
		gate.Arrived()
		admitted.waiting(t)
		gate.Open()
		admitted.answered(t, nil, 0)
		if got := p.crash(tokens.Options{}).deny(keyed(7, "k"), tokens.ErrOutcomeUnknown).Write; got.State != tokens.WriteUnknown ||
			got.Method != "POST" || got.Path != "/charge" || got.Route != "payments" || got.Generation != 7 || got.Attempt == "" {
			t.Errorf("the write that was in flight when the process died: %+v", got)
		}
	})
}

func TestAKeyedWriteCostsTwoCommits(t *testing.T) {
	p := start(t, tokens.Options{})
	p.Settle(&p.admit(7).Attempt, tokens.Applied)
	_, before := p.store.Counts()
	p.finish(p.begin(keyed(7, "k")), applied())
	p.deny(keyed(7, "k"), tokens.ErrAlreadyApplied)
	if _, after := p.store.Counts(); after != before+2 {
		t.Errorf("a keyed write and its replay cost %d commits", after-before)
	}
}

func TestWhatBecameOfAWriteDecidesOnTheNextUnderItsKey(t *testing.T) {
	for _, c := range []struct {
		outcome tokens.Outcome
		want    error
		state   tokens.WriteState
	}{
		{tokens.Applied, tokens.ErrAlreadyApplied, tokens.WriteApplied},
		{tokens.OutcomeUnknown, tokens.ErrOutcomeUnknown, tokens.WriteUnknown},
		{tokens.Declined, nil, ""},
		{tokens.NotSent, nil, ""},
	} {
		t.Run(c.outcome.String(), func(t *testing.T) {
			p := start(t, tokens.Options{})
			w := p.begin(keyed(7, "k"))
			if ref := p.deny(keyed(7, "k"), tokens.ErrWriteInProgress); ref.Write.State != tokens.WriteInFlight || ref.Key != "k" || ref.Floor != 7 {
				t.Errorf("in flight: %+v of %+v", ref, ref.Write)
			}
			s := applied()
			s.Outcome = c.outcome
			p.finish(w, s)
			// Another key, and the same of another job, are not concerned.
			p.finish(p.begin(keyed(7, "other")), applied())
			other := keyed(7, "k")
			other.Job.ID = "j2"
			p.begin(other)
			for restart := range 2 {
				if restart > 0 {
					p = p.crash(tokens.Options{})
				}
				if c.want == nil {
					p.finish(p.begin(keyed(7, "k")), tokens.Settlement{Outcome: tokens.Declined})
					continue
				}
				ref := p.deny(keyed(7, "k"), c.want)
				if ref.Write.State != c.state || ref.Key != "k" || ref.Write.Status != 201 {
					t.Errorf("refused with %+v", ref.Write)
				}
				if c.outcome == tokens.Applied {
					wantReply(t, ref)
				}
			}
		})
	}
}

func TestAReplyCanBeAddedAfterTheOutcome(t *testing.T) {
	p := start(t, tokens.Options{})
	w := p.begin(keyed(7, "k"))
	whole := applied()
	head := whole
	head.Reply = nil
	p.finish(w, head)
	if ref := p.deny(keyed(7, "k"), tokens.ErrAlreadyApplied); ref.Write.Reply != nil || ref.Write.HasReply || ref.Write.Location != "/charges/1" {
		t.Errorf("before the body: %+v", ref.Write)
	}
	if err := p.Record(t.Context(), &w.Attempt, whole); err != nil {
		t.Fatal(err)
	}
	wantReply(t, p.deny(keyed(7, "k"), tokens.ErrAlreadyApplied))
	if v, err := p.Job(t.Context(), j1); err != nil || v.Record.Tally[0].Applied != 1 {
		t.Errorf("counted as %+v (%v)", v.Record.Tally, err)
	}
}

func TestAnotherRequestUnderTheSameKeyIsRefusedWhateverBecameOfTheFirst(t *testing.T) {
	others := map[string]func(f *tokens.Fingerprint){
		"method": func(f *tokens.Fingerprint) { f.Head = tokens.HeadFingerprint("PUT", "/charge") },
		"path":   func(f *tokens.Fingerprint) { f.Head = tokens.HeadFingerprint("POST", "/charge/") },
		"query":  func(f *tokens.Fingerprint) { f.Head = tokens.HeadFingerprint("POST", "/charge?a") },
		"body":   func(f *tokens.Fingerprint) { f.Body = "other" },
	}
	for name, change := range others {
		p := start(t, tokens.Options{})
		other := func() *write {
			w := keyed(7, "k")
			w.ForwardUnknown = true
			change(&w.Fingerprint)
			return w
		}
		w := p.begin(keyed(7, "k"))
		p.deny(other(), tokens.ErrKeyReused)
		p.deny(other(), tokens.ErrKeyReused)
		p.finish(w, tokens.Settlement{Outcome: tokens.OutcomeUnknown})
		p.deny(other(), tokens.ErrKeyReused)
		p.deny(keyed(7, "k"), tokens.ErrOutcomeUnknown)
		if _, err := p.Resolve(t.Context(), j1, "k", tokens.VerdictApplied, hour); err != nil {
			t.Fatal(err)
		}
		p.deny(other(), tokens.ErrKeyReused)
		p.deny(keyed(7, "k"), tokens.ErrAlreadyApplied)
		if name == "body" {
			// While the body is still being passed on it may be the same.
			streamed := keyed(7, "k")
			streamed.Fingerprint.Body = ""
			p.deny(streamed, tokens.ErrAlreadyApplied)
		}
	}
	// A declined write leaves its key free for a corrected request.
	p := start(t, tokens.Options{})
	p.finish(p.begin(keyed(7, "k")), tokens.Settlement{Outcome: tokens.Declined})
	w := keyed(7, "k")
	w.Fingerprint.Body = "corrected"
	p.begin(w)
}

func TestABodyThatWasPassedOnIsKnownAfterwards(t *testing.T) {
	p := start(t, tokens.Options{})
	streamed := func() *write {
		w := keyed(7, "k")
		w.Fingerprint.Body = ""
		return w
	}
	w := p.begin(streamed())
	p.deny(streamed(), tokens.ErrWriteInProgress)
	s := applied()
	s.BodyDigest = "digest"
	p.finish(w, s)
	p.deny(keyed(7, "k"), tokens.ErrKeyReused)
	p.deny(streamed(), tokens.ErrAlreadyApplied)
	same := keyed(7, "k")
	same.Fingerprint.Body = "digest"
	wantReply(t, p.deny(same, tokens.ErrAlreadyApplied))
}

func TestARouteMayForwardWhatIsUnknownAgain(t *testing.T) {
	p := start(t, tokens.Options{})
	forward := func() *write {
		w := keyed(7, "k")
		w.ForwardUnknown = true
		return w
	}
	first := p.begin(forward())
	p.deny(forward(), tokens.ErrWriteInProgress)
	p.finish(first, tokens.Settlement{Outcome: tokens.OutcomeUnknown})
	p.deny(keyed(7, "k"), tokens.ErrOutcomeUnknown)
	second := p.begin(forward())
	p.deny(forward(), tokens.ErrWriteInProgress)
	p = p.crash(tokens.Options{}) // in the middle of it
	third := p.begin(forward())
	p.finish(third, applied())
	wantReply(t, p.deny(forward(), tokens.ErrAlreadyApplied))
	_ = second
}

// A successor repeats what its predecessor did. C16, and issue case 2.
func TestAKeyBelongsToItsJobAcrossGenerations(t *testing.T) {
	p := start(t, tokens.Options{})
	p.claim("a", time.Millisecond)
	a := p.begin(keyed(1, "k1"))
	p.finish(a, applied())
	if _, err := p.Revoke(t.Context(), j1, 0, ""); err != nil {
		t.Fatal(err)
	}
	b := p.claim("b", time.Hour).Lease
	ref := p.deny(keyed(b.Generation, "k1"), tokens.ErrAlreadyApplied)
	wantReply(t, ref)
	if ref.Write.Generation != 1 {
		t.Errorf("done by generation %d", ref.Write.Generation)
	}
	p.deny(keyed(1, "k1"), tokens.ErrStaleGeneration)
	p.deny(keyed(1, "k2"), tokens.ErrStaleGeneration)
	if known := p.Known(t.Context(), j1, "k1"); known == nil || known.State != tokens.WriteApplied {
		t.Errorf("known of k1: %+v", known)
	}
	if known := p.Known(t.Context(), j1, "k2"); known != nil {
		t.Errorf("known of k2: %+v", known)
	}
	if known := p.Known(t.Context(), j1, ""); known != nil {
		t.Errorf("known without a key: %+v", known)
	}
}
