package tokenstest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func closeCases() []conformance {
	return []conformance{
		{"CloseWaitsForCommitsUnderWay", closeWaits},
		{"AClosedStoreTakesNoCommits", closeRefuses},
		{"AnOpenStoreHasNoError", closeErr},
	}
}

// Commits race with Close. Whatever was acknowledged is there afterwards, whatever was
// refused is not.
func closeWaits(t *testing.T, o Opener) {
	const writers = 8
	type result struct {
		job tokens.Job
		err error
	}
	for round := range 3 {
		s := open(t, o)
		var (
			mu      sync.Mutex
			results []result
			wg      sync.WaitGroup
		)
		first := make(chan struct{}, writers)
		for w := range writers {
			wg.Go(func() {
				for n := 0; ; n++ {
					j := job(fmt.Sprintf("r%d-w%d-%04d", round, w, n))
					_, err := s.try(j, 0, sample(1))
					mu.Lock()
					results = append(results, result{j, err})
					mu.Unlock()
					if n == 0 {
						first <- struct{}{}
					}
					if err != nil || n > 5000 {
						return
					}
				}
			})
		}
		for range writers {
			<-first
		}
		s.close()
		wg.Wait()
		s = open(t, o)
		for _, r := range results {
			found := s.load(r.job).Version != 0
			switch {
			case r.err == nil && !found:
				t.Fatalf("%q was acknowledged while the store was closing and is lost", r.job)
			case r.err != nil && !errors.Is(r.err, tokens.ErrUnknown) && found:
				t.Fatalf("%q was refused (%v) while the store was closing and is there", r.job, r.err)
			}
		}
		s.close()
	}
}

func closeRefuses(t *testing.T, o Opener) {
	s := open(t, o)
	v := s.commit(job("j"), 0, sample(1))
	s.close()
	if s.Err() == nil {
		t.Error("a closed store says that it takes durable writes")
	}
	if _, err := s.try(job("j"), v, sample(2)); err == nil {
		t.Error("a closed store took a commit")
	}
	s = open(t, o)
	if got := s.load(job("j")).Record.Seen; got != 1 {
		t.Errorf("a closed store wrote: record %d", got)
	}
}

func closeErr(t *testing.T, o Opener) {
	s := open(t, o)
	for g := tokens.Generation(1); g <= 2; g++ {
		if err := s.Err(); err != nil {
			t.Errorf("an open store has the error %v", err)
		}
		s.commit(job(fmt.Sprint(g)), 0, sample(g))
	}
}
