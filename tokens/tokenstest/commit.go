package tokenstest

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func commitCases() []conformance {
	return []conformance{
		{"CommitCreatesOnce", commitCreatesOnce},
		{"CommitOnAnOldVersionConflictsAndWritesNothing", commitConflict},
		{"CommitOnAnAbsentJobNeedsVersionZero", commitAbsent},
		{"CommitChangesTheVersionEachTime", commitVersions},
		{"CommitOfOneJobLeavesOthersAlone", commitApart},
		{"CommitRefusesARecordThatCanNotBeStored", commitUnstorable},
	}
}

func wantConflict(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, tokens.ErrConflict) {
		t.Errorf("commit on a version that is not current: %v, want ErrConflict", err)
	}
}

func commitCreatesOnce(t *testing.T, o Opener) {
	s := open(t, o)
	v := s.commit(job("j"), 0, sample(1))
	_, err := s.try(job("j"), 0, sample(2))
	wantConflict(t, err)
	s.wantRecord(job("j"), v, sample(1))
}

func commitConflict(t *testing.T, o Opener) {
	s := open(t, o)
	v1 := s.commit(job("j"), 0, sample(1))
	v2 := s.commit(job("j"), v1, sample(2))
	for _, old := range []tokens.Version{0, v1, v2 + 1, v2 + 1000} {
		_, err := s.try(job("j"), old, sample(9))
		wantConflict(t, err)
		s.wantRecord(job("j"), v2, sample(2))
	}
	s.close()
	s = open(t, o)
	snap := s.load(job("j"))
	s.wantRecord(job("j"), snap.Version, sample(2))
	s.commit(job("j"), snap.Version, sample(3))
}

func commitAbsent(t *testing.T, o Opener) {
	s := open(t, o)
	_, err := s.try(job("j"), 1, sample(1))
	wantConflict(t, err)
	other := s.commit(job("other"), 0, sample(1))
	_, err = s.try(job("j"), other, sample(1))
	wantConflict(t, err)
	if snap := s.load(job("j")); snap.Version != 0 {
		t.Errorf("a commit that conflicted made a record: version %d", snap.Version)
	}
}

// The version changes even when the record does not, and none comes back: otherwise a
// decision that was made on the first could be committed over the third.
func commitVersions(t *testing.T, o Opener) {
	s := open(t, o)
	seen := make(map[tokens.Version]bool)
	var v tokens.Version
	for i := range 60 {
		v = s.commit(job("j"), v, sample(tokens.Generation(1+i/20)))
		if seen[v] {
			t.Fatalf("commit %d answered version %d, which an earlier one had", i+1, v)
		}
		seen[v] = true
	}
}

func commitApart(t *testing.T, o Opener) {
	s := open(t, o)
	a := s.commit(job("a"), 0, sample(1))
	b := s.commit(job("b"), 0, sample(2))
	a2 := s.commit(job("a"), a, sample(3))
	s.wantRecord(job("b"), b, sample(2))
	s.commit(job("b"), b, sample(4))
	s.wantRecord(job("a"), a2, sample(3))
}

func commitUnstorable(t *testing.T, o Opener) {
	s := open(t, o)
	v := s.commit(job("j"), 0, sample(1))
	bad := sample(2)
	bad.Result = json.RawMessage(`{"cut`)
	if _, err := s.try(job("j"), v, bad); !errors.Is(err, tokens.ErrRefused) {
		t.Errorf("commit of a record that can not be encoded: %v, want ErrRefused", err)
	}
	s.wantRecord(job("j"), v, sample(1))
	s.commit(job("j"), v, sample(2))
}
