package tokenstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func contextCases() []conformance {
	return []conformance{
		{"CallsReturnWhenTheirContextHasEnded", contextEnded},
		{"ACommitWhoseContextEndsTellsTheTruth", contextTruth},
	}
}

// endedTimeout is long for a call that has nothing to wait for.
const endedTimeout = 5 * time.Second

func contextEnded(t *testing.T, o Opener) {
	s := open(t, o)
	s.commit(job("j"), 0, sample(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		// Answers and errors are both allowed: the question is whether it returns.
		_, _ = s.Load(ctx, job("j"))
		_, _ = s.List(ctx, tokens.ListQuery{Limit: 1})
		_, _ = s.LoadWrite(ctx, job("j"), "k")
		_, _ = s.ListWrites(ctx, tokens.WritesQuery{Limit: 1})
		_, _ = s.Commit(ctx, tokens.Change{Job: job("other"), Record: sample(1)})
	}()
	select {
	case <-returned:
	case <-time.After(endedTimeout):
		t.Fatal("a call does not return though its context has ended")
	}
	if got := s.load(job("j")).Record.Seen; got != 1 {
		t.Errorf("the store does not serve others any more: %d", got)
	}
}

// However a context and a commit race: nil means written, refused and conflict mean not
// written, and whatever was written stays.
func contextTruth(t *testing.T, o Opener) {
	s := open(t, o)
	durations := []time.Duration{0, time.Microsecond, 20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond}
	for i := range 60 {
		before := s.load(job("j"))
		next := sample(tokens.Generation(i + 1))
		ctx, cancel := context.WithTimeout(t.Context(), durations[i%len(durations)])
		_, err := s.Commit(ctx, tokens.Change{Job: job("j"), Expect: before.Version, Record: next})
		cancel()
		if err != nil {
			if kindErr := oneKind(err); kindErr != nil {
				t.Fatal(kindErr)
			}
		}
		if errors.Is(err, tokens.ErrUnknown) {
			// It may be written later, by a commit that is still under way.
			// A commit of our own decides: either it wins, and the unknown
			// one never will, or it conflicts.
			v, ours := s.try(job("j"), before.Version, next)
			switch {
			case errors.Is(ours, tokens.ErrRefused) && s.Err() != nil:
				// An engine that can no longer tell what it holds takes
				// nothing more, and says so.
				return
			case ours == nil:
				s.wantRecord(job("j"), v, next)
			default:
				wantConflict(t, ours)
			}
			continue
		}
		written := s.load(job("j")).Record.Seen == next.Seen
		if written != (err == nil) {
			t.Fatalf("commit said %v, and the record was written: %v", err, written)
		}
	}
}
