package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// writeIn leaves a write in a state behind.
func (p *process) writeIn(state tokens.WriteState, key string) *write {
	p.t.Helper()
	w := p.begin(keyed(7, key))
	switch state {
	case tokens.WriteApplied:
		p.finish(w, applied())
	case tokens.WriteDeclined:
		p.finish(w, tokens.Settlement{Outcome: tokens.Declined, Status: 400})
	case tokens.WriteNotSent:
		p.finish(w, tokens.Settlement{Outcome: tokens.NotSent})
	case tokens.WriteUnknown:
		p.finish(w, tokens.Settlement{Outcome: tokens.OutcomeUnknown, Status: 500})
	}
	return w
}

func TestOnlyAWriteOfUnknownOutcomeCanBeResolved(t *testing.T) {
	states := tokens.WriteStates()
	for _, state := range append(states, "dead") {
		for verdict, want := range map[tokens.Verdict]map[tokens.WriteState]error{
			tokens.VerdictApplied: {
				tokens.WriteInFlight: tokens.ErrWriteInProgress, tokens.WriteApplied: nil, tokens.WriteUnknown: nil, "dead": nil,
				tokens.WriteDeclined: tokens.ErrWriteSettled, tokens.WriteNotSent: tokens.ErrWriteSettled,
			},
			tokens.VerdictNotApplied: {
				tokens.WriteInFlight: tokens.ErrWriteInProgress, tokens.WriteApplied: tokens.ErrWriteSettled, tokens.WriteUnknown: nil, "dead": nil,
				tokens.WriteDeclined: nil, tokens.WriteNotSent: tokens.ErrWriteSettled,
			},
		} {
			t.Run(string(state)+"/"+string(verdict), func(t *testing.T) {
				p := start(t, tokens.Options{})
				p.writeIn(state, "k")
				if state == "dead" {
					p = p.crash(tokens.Options{})
				}
				for range 2 { // repeating it changes nothing
					w, err := p.Resolve(t.Context(), j1, "k", verdict, hour)
					if !errors.Is(err, want[state]) || (err == nil) != (want[state] == nil) {
						t.Fatalf("resolve: %v, want %v", err, want[state])
					}
					if open := state == tokens.WriteUnknown || state == "dead"; err == nil && (w.Resolved != open || w.Expires == 0) {
						t.Errorf("resolved as %+v", w)
					}
				}
				if want[state] != nil {
					return
				}
				p = p.crash(tokens.Options{})
				if verdict == tokens.VerdictApplied {
					p.deny(keyed(7, "k"), tokens.ErrAlreadyApplied)
				} else {
					p.begin(keyed(7, "k"))
				}
			})
		}
	}
}

func TestAResolutionNeedsAWriteAndAStore(t *testing.T) {
	p := start(t, tokens.Options{})
	_, err := p.Resolve(t.Context(), j1, "k", tokens.VerdictApplied, hour)
	wantErr(t, err, tokens.ErrWriteNotFound)
	p.writeIn(tokens.WriteUnknown, "k")
	p.store.FailNext(tokenstest.Refuse)
	_, err = p.Resolve(t.Context(), j1, "k", tokens.VerdictNotApplied, hour)
	wantErr(t, err, tokens.ErrStoreUnavailable)
	p.deny(keyed(7, "k"), tokens.ErrOutcomeUnknown)
}

func TestASweepForgetsOnlyWhatIsSettledExpiredAndOfNoHeldJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		var want []string
		for i, state := range tokens.WriteStates() {
			p.writeIn(state, string(state))
			if i == 0 || state == tokens.WriteUnknown {
				want = append(want, string(state))
			}
		}
		held := keyed(1, "of a held job")
		held.Job.ID = "held"
		lease, err := p.Claim(t.Context(), tokens.ClaimRequest{Job: held.Job, Owner: "a", TTL: 2 * hour}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.finish(p.begin(held), applied())
		sweep := func(n int) {
			t.Helper()
			if purged, err := p.Sweep(t.Context()); err != nil || purged != n {
				t.Fatalf("%d writes were purged, want %d (%v)", purged, n, err)
			}
		}
		time.Sleep(time.Hour - time.Millisecond)
		sweep(0)
		p.deny(keyed(7, "applied"), tokens.ErrAlreadyApplied)
		time.Sleep(time.Millisecond)
		sweep(3)
		sweep(0)
		var left []string
		page, err := p.mem.ListWrites(t.Context(), tokens.WritesQuery{Job: j1, Limit: 10})
		for _, l := range page {
			left = append(left, l.Key)
		}
		if slices.Sort(left); err != nil || !slices.Equal(left, want) {
			t.Errorf("left are %q (%v), want %q", left, err, want)
		}
		// A purged key is as one that was never used.
		p.begin(keyed(7, "applied"))
		_, err = p.Release(t.Context(), tokens.LeaseRef{Job: held.Job, Owner: "a", Generation: 1, LeaseID: lease.Lease.ID}, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		sweep(1)
		time.Sleep(1000 * time.Hour)
		sweep(0)
		if q := p.crash(tokens.Options{}); q.deny(keyed(7, "in_flight"), tokens.ErrOutcomeUnknown) == nil {
			t.Error("a write in flight was forgotten")
		}
	})
}

func TestASweepGoesThroughManyPagesAndStopsWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		held, err := p.Claim(t.Context(), tokens.ClaimRequest{Job: tokens.Job{ID: "held"}, Owner: "a", TTL: 10 * hour}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 1200 {
			w := keyed(1, fmt.Sprint("k", n))
			if w.Job.ID = fmt.Sprint("j", n%7); n%7 == 0 {
				w.Job.ID, w.Generation = "held", held.Lease.Generation
			}
			p.finish(p.begin(w), applied())
		}
		time.Sleep(time.Hour)
		p.store.FailNext(tokenstest.Refuse)
		if n, err := p.Sweep(t.Context()); !errors.Is(err, tokens.ErrStoreUnavailable) || n >= 1028 {
			t.Errorf("with a failing store %d were purged (%v)", n, err)
		}
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		page, err := p.mem.ListWrites(t.Context(), tokens.WritesQuery{Limit: 10000})
		if err != nil || len(page) != 172 {
			t.Errorf("%d writes are left, want the 172 of the held job (%v)", len(page), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := p.Sweep(ctx); err == nil || n != 0 {
			t.Errorf("without time %d were purged (%v)", n, err)
		}
	})
}

func TestASuccessorLearnsWhatItsPredecessorDid(t *testing.T) {
	p := start(t, tokens.Options{})
	first := p.claim("a", time.Millisecond).Lease
	write := func(key string, s tokens.Settlement) {
		p.finish(p.begin(keyed(first.Generation, key)), s)
	}
	write("a1", applied())
	write("a2", applied())
	write("d1", tokens.Settlement{Outcome: tokens.Declined})
	write("n1", tokens.Settlement{Outcome: tokens.NotSent})
	write("u1", tokens.Settlement{Outcome: tokens.OutcomeUnknown})
	unkeyed := p.sent(first.Generation)
	p.Settle(&unkeyed.Attempt, tokens.Applied)
	flying := p.begin(keyed(first.Generation, "f1"))
	flying.Gate()
	flying.SentWhole()
	if _, err := p.Revoke(t.Context(), j1, 0, ""); err != nil {
		t.Fatal(err)
	}
	got := p.claim("b", time.Millisecond).Predecessor
	if got == nil || got.Generation != first.Generation || got.Owner != "a" || got.InFlight != 1 ||
		got.Writes != (tokens.Tally{Generation: first.Generation, Applied: 3, Declined: 1, Unknown: 1}) {
		t.Fatalf("predecessor %+v", got)
	}
	if len(got.Unresolved) != 2 || got.Unresolved[0].Key != "f1" || got.Unresolved[0].Record.State != tokens.WriteInFlight ||
		got.Unresolved[1].Key != "u1" || got.Unresolved[1].Record.State != tokens.WriteUnknown || got.Unresolved[1].Record.Path != "/charge" {
		t.Errorf("unresolved %+v", got.Unresolved)
	}
	// After a crash what was counted with a key is still known, and nothing is in
	// flight any more.
	p = p.crash(tokens.Options{})
	if _, err := p.Revoke(t.Context(), j1, 0, ""); err != nil {
		t.Fatal(err)
	}
	got = p.claim("c", time.Hour).Predecessor
	if got == nil || got.Generation != 2 || got.Owner != "b" || got.Writes != (tokens.Tally{Generation: 2}) || got.InFlight != 0 {
		t.Errorf("predecessor %+v", got)
	}
	// What is unresolved is told whichever generation began it.
	if len(got.Unresolved) != 2 || got.Unresolved[0].Record.State != tokens.WriteUnknown || got.Unresolved[0].Record.Generation != 1 {
		t.Errorf("unresolved %+v", got.Unresolved)
	}
	view, err := p.Job(t.Context(), j1)
	if err != nil || view.Record.Tally[0] != (tokens.Tally{Generation: 1, Applied: 2, Declined: 1}) {
		t.Errorf("tally %+v (%v)", view.Record.Tally, err)
	}
}

func TestAClaimMayWaitUntilTheReportIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.claim("a", time.Second)
		w := p.begin(keyed(1, "k"))
		w.Gate()
		w.SentWhole()
		time.Sleep(time.Second)
		var g tokens.Grant
		claimed := background(func() (err error) {
			g, err = p.Claim(t.Context(), request("b", time.Hour), 0, 10*time.Second)
			return err
		})
		time.Sleep(3 * time.Second)
		claimed.waiting(t)
		p.finish(w, applied())
		claimed.answered(t, nil, 3*time.Second)
		if got := g.Predecessor; got.InFlight != 0 || got.Writes.Applied != 1 || len(got.Unresolved) != 0 {
			t.Errorf("predecessor %+v", got)
		}
	})
}

func TestWritesAreListedByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		for _, state := range tokens.WriteStates() {
			for n := range 3 {
				p.writeIn(state, fmt.Sprint(state, n))
			}
			time.Sleep(time.Minute)
		}
		once := keyed(7, "with once")
		once.Once = true
		p.finish(p.begin(once), applied())
		keys := func(state tokens.WriteState, open bool, limit int) (keys []string) {
			t.Helper()
			page, err := p.Writes(t.Context(), tokens.WritesQuery{Job: j1, Open: open, Limit: limit}, state)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page {
				if l.Record.Reply != nil || state != "" && l.Record.State != state {
					t.Errorf("listed as %+v", l.Record)
				}
				keys = append(keys, l.Key)
			}
			return keys
		}
		for _, c := range []struct {
			state tokens.WriteState
			open  bool
			limit int
			want  []string
		}{
			{tokens.WriteApplied, false, 10, []string{"applied0", "applied1", "applied2", "with once"}},
			{tokens.WriteDeclined, false, 2, []string{"declined0", "declined1"}},
			{tokens.WriteUnknown, true, 2, []string{"unknown0", "unknown1"}},
			{tokens.WriteInFlight, true, 10, []string{"in_flight0", "in_flight1", "in_flight2"}},
			{"", true, 4, []string{"in_flight0", "in_flight1", "in_flight2", "unknown0"}},
		} {
			if got := keys(c.state, c.open, c.limit); !slices.Equal(got, c.want) {
				t.Errorf("%q, open %v, %d: %q, want %q", c.state, c.open, c.limit, got, c.want)
			}
		}
		if got := keys("", false, 100); len(got) != 16 {
			t.Errorf("%d writes are listed: %q", len(got), got)
		}
		began := time.Now()
		n, oldest, err := p.Unknown(t.Context())
		if err != nil || n != 3 || began.Sub(oldest) != time.Minute {
			t.Errorf("%d unknown, the oldest for %v (%v)", n, began.Sub(oldest), err)
		}
		p = p.crash(tokens.Options{})
		if got := keys(tokens.WriteUnknown, true, 10); len(got) != 6 {
			t.Errorf("after a crash %q are unknown", got)
		}
		if n, oldest, err = p.Unknown(t.Context()); err != nil || n != 6 || began.Sub(oldest) != 5*time.Minute {
			t.Errorf("after a crash %d unknown, the oldest for %v (%v)", n, began.Sub(oldest), err)
		}
	})
}

func TestAListOfNoWritesEnds(t *testing.T) {
	p := start(t, tokens.Options{})
	p.writeIn(tokens.WriteApplied, "k")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if page, err := p.Writes(ctx, tokens.WritesQuery{}, ""); err != nil || len(page) != 0 {
		t.Errorf("%d writes are listed (%v)", len(page), err)
	}
}
