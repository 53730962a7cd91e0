package tokens_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestARouteWithOneWritePerGenerationCountsThem(t *testing.T) {
	once := func(g tokens.Generation, key string) *write {
		w := keyed(g, key)
		w.Once = true
		w.Fingerprint.Body = "b" + key
		return w
	}
	for _, first := range []string{"", "k"} {
		p := start(t, tokens.Options{})
		w := p.begin(once(7, first))
		p.deny(once(7, ""), tokens.ErrWriteInProgress)
		p.deny(once(7, "other"), tokens.ErrWriteInProgress)
		p.finish(w, applied())
		for restart := range 2 {
			if restart > 0 {
				p = p.crash(tokens.Options{})
			}
			if ref := p.deny(once(7, ""), tokens.ErrAlreadyApplied); ref.Write.Reply != nil || ref.Write.Status != 201 {
				t.Errorf("a second write: %+v", ref.Write)
			}
			if ref := p.deny(once(7, "other"), tokens.ErrAlreadyApplied); ref.Write.Reply != nil || ref.Write.Generation != 7 {
				t.Errorf("a second write under another key: %+v", ref.Write)
			}
			if first != "" {
				wantReply(t, p.deny(once(7, first), tokens.ErrAlreadyApplied))
			}
			elsewhere := once(7, "elsewhere")
			elsewhere.Route = "refunds"
			p.finish(p.begin(elsewhere), tokens.Settlement{Outcome: tokens.Declined})
		}
		p.finish(p.begin(once(8, "next")), tokens.Settlement{Outcome: tokens.Declined})
		p.finish(p.begin(once(8, "again")), applied()) // the first did nothing
		p.deny(once(8, "third"), tokens.ErrAlreadyApplied)
	}
}

func TestADuplicateMayWaitForTheFirst(t *testing.T) {
	waiting := func(d time.Duration) *write {
		w := keyed(7, "k")
		w.DuplicateWait = d
		return w
	}
	for name, c := range map[string]struct {
		s    tokens.Settlement
		want error
	}{
		"applied": {applied(), tokens.ErrAlreadyApplied}, "unknown": {tokens.Settlement{Outcome: tokens.OutcomeUnknown}, tokens.ErrOutcomeUnknown},
		"declined": {tokens.Settlement{Outcome: tokens.Declined}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, tokens.Options{})
				first := p.begin(keyed(7, "k"))
				p.admitLater(waiting(0)).answered(t, tokens.ErrWriteInProgress, 0)
				impatient := p.admitLater(waiting(time.Second))
				patient := p.admitLater(waiting(10 * time.Second))
				time.Sleep(3 * time.Second)
				impatient.answered(t, tokens.ErrWriteInProgress, time.Second)
				patient.waiting(t)
				// News of the job that are not of the write change nothing.
				p.finish(p.begin(keyed(7, "other")), applied())
				patient.waiting(t)
				p.finish(first, c.s)
				patient.answered(t, c.want, 3*time.Second)
			})
		})
	}
	t.Run("lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := start(t, tokens.Options{})
			first := p.begin(keyed(7, "k"))
			patient := p.admitLater(waiting(10 * time.Second))
			time.Sleep(time.Second)
			p.Settle(&first.Attempt, tokens.Applied) // its outcome could not be recorded
			patient.answered(t, tokens.ErrOutcomeUnknown, time.Second)
		})
	})
	t.Run("the caller leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := start(t, tokens.Options{})
			p.begin(keyed(7, "k"))
			ctx, cancel := context.WithCancel(t.Context())
			w := waiting(10 * time.Second)
			left := background(func() error { return p.Admit(ctx, &w.Attempt) })
			left.waiting(t)
			cancel()
			left.answered(t, context.Canceled, 0)
		})
	})
}
