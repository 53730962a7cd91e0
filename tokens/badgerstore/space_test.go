package badgerstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestCommitsAreRefusedWhileSpaceIsLowAndTakenAgainAfterwards(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	beats := make(chan time.Time)
	sm := productionSeams()
	sm.beats = beats
	sm.free = func(string) (int64, error) {
		if n := free.Load(); n >= 0 {
			return n, nil
		}
		return 0, errors.New("stale file handle")
	}
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, sm)
	mustRaise(t, s, job("j"), 1)
	for _, low := range []int64{DefaultMinFree - 1, -1} {
		free.Store(low)
		wantError(t, raise(t.Context(), s, job("j"), 2), tokens.ErrRefused)
		if s.Err() == nil {
			t.Error("the store says that it takes writes")
		}
		wantError(t, raise(t.Context(), s, job("j"), 2), tokens.ErrRefused)
		if got := floorOf(t, s, job("j")); got != 1 {
			t.Errorf("reading goes on: floor %d, want 1", got)
		}
		free.Store(DefaultMinFree)
		beats <- time.Time{}
		beats <- time.Time{} // received after the first was handled
		if err := s.Err(); err != nil {
			t.Errorf("there is space again, and the store says %v", err)
		}
	}
	mustRaise(t, s, job("j"), 2)
}

func TestAStoreDoesNotOpenOnAFullDisk(t *testing.T) {
	sm := productionSeams()
	sm.free = func(string) (int64, error) { return openFree - 1, nil }
	_, err := open(Options{Dir: t.TempDir()}, sm)
	wantError(t, err, ErrNoSpace)
}

func TestAStoreOpensWithoutWritingWhenSpaceIsLow(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	mustRaise(t, s, job("j"), 1)
	closeStore(t, s)
	sm := neverBeats()
	sm.free = func(string) (int64, error) { return openFree, nil }
	s = mustOpenWith(t, Options{Dir: dir}, sm)
	wantError(t, s.Err(), ErrNoSpace)
	if got := floorOf(t, s, job("j")); got != 1 {
		t.Errorf("floor %d, want 1", got)
	}
}
