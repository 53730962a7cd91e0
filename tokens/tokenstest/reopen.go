package tokenstest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func reopenCases() []conformance {
	return []conformance{
		{"CommittedRecordsSurviveReopening", reopenKeeps},
		{"TheLastCommitSurvivesReopening", reopenLast},
	}
}

func reopenKeeps(t *testing.T, o Opener) {
	s := open(t, o)
	const jobs = 100
	for i := range jobs {
		j := job(fmt.Sprintf("j-%03d", i))
		s.commit(j, s.commit(j, 0, sample(1)), sample(tokens.Generation(i+2)))
	}
	for range 2 {
		s.close()
		s = open(t, o)
		if page := s.list(tokens.ListQuery{AllNamespaces: true, Limit: 1000}); len(page) != jobs {
			t.Errorf("reopened: %d jobs, want %d", len(page), jobs)
		}
		for i := range jobs {
			j, want := job(fmt.Sprintf("j-%03d", i)), sample(tokens.Generation(i+2))
			if got := s.load(j).Record; !reflect.DeepEqual(got, want) {
				t.Fatalf("reopened: %q is %s, want %s", j, show(got), show(want))
			}
		}
	}
}

// One commit, then the end: nothing that comes later may be needed to make it durable.
func reopenLast(t *testing.T, o Opener) {
	for g := tokens.Generation(1); g <= 5; g++ {
		s := open(t, o)
		snap := s.load(job("j"))
		if snap.Record.Seen != g-1 {
			t.Fatalf("reopened: the record is %s, want the one of generation %d", show(snap.Record), g-1)
		}
		s.commit(job("j"), snap.Version, sample(g))
		s.close()
	}
}
