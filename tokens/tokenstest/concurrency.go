package tokenstest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func concurrencyCases() []conformance {
	return []conformance{
		{"ConcurrentCommitsOnOneVersionHaveOneWinner", concurrentWinner},
		{"ConcurrentCommitsLoseNoUpdate", concurrentUpdates},
		{"ConcurrentCommitsOfManyJobsAllCount", concurrentJobs},
	}
}

// all runs f concurrently, released at once, and waits.
func all(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func concurrentWinner(t *testing.T, o Opener) {
	s := open(t, o)
	const writers, rounds = 16, 10
	var v tokens.Version
	for round := range rounds {
		var (
			mu     sync.Mutex
			won    []tokens.Version
			winner tokens.Record
		)
		all(writers, func(i int) {
			r := sample(tokens.Generation(1 + round*writers + i))
			got, err := s.try(job("j"), v, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won, winner = append(won, got), r
			case !errors.Is(err, tokens.ErrConflict):
				t.Errorf("commit: %v, want success or ErrConflict", err)
			}
		})
		if len(won) != 1 {
			t.Fatalf("%d of %d commits on version %d won, want 1", len(won), writers, v)
		}
		v = won[0]
		s.wantRecord(job("j"), v, winner)
	}
}

func concurrentUpdates(t *testing.T, o Opener) {
	s := open(t, o)
	const writers, each = 8, 12
	all(writers, func(int) {
		for range each {
			for {
				snap := s.load(job("j"))
				_, err := s.try(job("j"), snap.Version, sample(snap.Record.Seen+1))
				if err == nil {
					break
				}
				if !errors.Is(err, tokens.ErrConflict) {
					t.Errorf("commit: %v", err)
					return
				}
			}
		}
	})
	if got := s.load(job("j")).Record.Seen; got != writers*each {
		t.Errorf("%d increments came to %d", writers*each, got)
	}
	s.close()
	s = open(t, o)
	if got := s.load(job("j")).Record.Seen; got != writers*each {
		t.Errorf("reopened: %d increments came to %d", writers*each, got)
	}
}

func concurrentJobs(t *testing.T, o Opener) {
	s := open(t, o)
	const jobs, each = 24, 4
	versions := make([]tokens.Version, jobs)
	all(jobs, func(i int) {
		for g := range each {
			v, err := s.try(job(fmt.Sprintf("j-%02d", i)), versions[i], sample(tokens.Generation(g+1)))
			if err != nil {
				t.Errorf("commit of job %d: %v", i, err)
				return
			}
			versions[i] = v
		}
	})
	for i, v := range versions {
		s.wantRecord(job(fmt.Sprintf("j-%02d", i)), v, sample(each))
	}
}
