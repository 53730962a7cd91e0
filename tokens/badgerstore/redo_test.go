package badgerstore

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// sequenceAhead returns the image of a process that died when the sequence file had the
// change of job "last" and Badger had not, and the wall clock's time in it.
func sequenceAhead(t *testing.T, clock *handClock) (image string) {
	t.Helper()
	dir, image := t.TempDir(), t.TempDir()
	sm := neverBeats()
	remembered, hang := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	sm.commit = func(db *badger.DB, sequence uint64, entries []entry) error {
		if !armed.Load() {
			return commitAt(db, sequence, entries)
		}
		<-hang
		return errors.New("the process has died")
	}
	sm.sync = func(f *os.File) error {
		err := syncData(f)
		if armed.Load() {
			close(remembered)
		}
		return err
	}
	s := mustOpenWith(t, Options{Dir: dir, Clock: clock}, sm)
	mustRaise(t, s, job("before"), 4)
	clock.pass(time.Minute)
	armed.Store(true)
	last := start(t.Context(), s, job("last"), 7)
	<-remembered
	copyDir(t, dir, image)
	close(hang)
	wantError(t, <-last, tokens.ErrUnknown)
	_ = s.Close()
	return image
}

func TestAChangeThatOnlyTheSequenceFileHoldsIsRedone(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := newHandClock(start)
	dir := sequenceAhead(t, clock)
	clock.step(-time.Hour)
	for range 2 {
		s := mustOpenWith(t, Options{Dir: dir, Clock: clock}, neverBeats())
		if got := floorOf(t, s, job("last")); got != 7 {
			t.Errorf("the floor is %d, want 7", got)
		}
		if got := floorOf(t, s, job("before")); got != 4 {
			t.Errorf("the floor before is %d, want 4", got)
		}
		if got := s.Info().LastKnown; !got.Equal(start.Add(time.Minute)) {
			t.Errorf("the last known time is %v, want the redone change's", got)
		}
		mustRaise(t, s, job("last"), floorOf(t, s, job("last")))
		closeStore(t, s)
	}
}

func TestASalvageKeepsAChangeThatOnlyTheSequenceFileHolds(t *testing.T) {
	dir := sequenceAhead(t, newHandClock(time.Now()))
	report, err := Salvage(Options{Dir: dir})
	if err != nil || report.Jobs != 2 || report.Acknowledged != report.Found+1 {
		t.Fatalf("report %+v (%v)", report, err)
	}
	if got := floorOf(t, mustOpen(t, Options{Dir: dir}), job("last")); got != 7 {
		t.Errorf("the floor is %d, want 7", got)
	}
}

// What can not be redone was lost.
func TestASequenceFileAheadIsRefusedUnlessItHoldsExactlyTheNextChange(t *testing.T) {
	for name, change := range map[string]func(s *slot){
		"two changes ahead":  func(s *slot) { s.sequence++ },
		"without the change": func(s *slot) { s.redo = nil },
		"of another store":   func(s *slot) { s.id = "another" },
		"of another epoch":   func(s *slot) { s.epoch++ },
		"many changes ahead": func(s *slot) { s.sequence += 40 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := sequenceAhead(t, newHandClock(time.Now()))
			s := slotOf(t, dir)
			change(&s)
			if err := createSidecar(sidecarPath(dir), s); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := Open(Options{Dir: dir})
				wantError(t, err, ErrDamaged)
			}
		})
	}
}

// A batch may begin only when both files have the one before: else a crash could leave
// the sequence file two ahead.
func TestNoBatchBeginsBeforeTheSequenceFileHasTheOneBefore(t *testing.T) {
	sm := neverBeats()
	var armed atomic.Bool
	entered, release := make(chan struct{}), make(chan struct{})
	sm.sync = func(f *os.File) error {
		if armed.Load() {
			entered <- struct{}{}
			<-release
		}
		return syncData(f)
	}
	committed := make(chan uint64, 16)
	sm.commit = func(db *badger.DB, sequence uint64, entries []entry) error {
		err := commitAt(db, sequence, entries)
		committed <- sequence
		return err
	}
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, sm)
	for len(committed) > 0 {
		<-committed
	}
	armed.Store(true)
	one := start(t.Context(), s, job("one"), 1)
	<-entered
	first := <-committed
	two := start(t.Context(), s, job("two"), 1)
	awaitQueue(t, s, 1)
	select {
	case <-one:
		t.Error("acknowledged before the sequence file was synced")
	case n := <-committed:
		t.Errorf("batch %d began before the sequence file had %d", n, first)
	default:
	}
	armed.Store(false)
	close(release)
	for _, r := range []<-chan error{one, two} {
		if err := <-r; err != nil {
			t.Error(err)
		}
	}
}
