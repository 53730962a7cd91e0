package badgerstore

import (
	"testing"
	"time"
)

func nowOf(t *testing.T, s *Store) time.Time {
	t.Helper()
	snap, err := s.Load(t.Context(), job("absent"))
	if err != nil {
		t.Fatal(err)
	}
	return snap.Now
}

func TestTheStoresTimeIgnoresStepsOfTheWallClockWhileOpen(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		c := newHandClock(start)
		s := mustOpenWith(t, Options{Dir: t.TempDir(), Clock: c}, neverBeats())
		c.step(step)
		c.pass(time.Minute)
		if got := nowOf(t, s); !got.Equal(start.Add(time.Minute)) {
			t.Errorf("after a step of %v and a minute it is %v", step, got)
		}
	}
}

func TestTheStoresTimeAcrossReopening(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		step time.Duration
		want time.Time
	}{
		{"follows the wall clock forward", time.Hour, start.Add(time.Minute + time.Hour)},
		{"stands still while the wall clock is behind", -time.Hour, start.Add(time.Minute)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, clock := t.TempDir(), newHandClock(start)
			s := mustOpenWith(t, Options{Dir: dir, Clock: clock}, neverBeats())
			clock.pass(time.Minute)
			closeStore(t, s)
			clock.step(c.step)
			s = mustOpenWith(t, Options{Dir: dir, Clock: clock}, neverBeats())
			if got := nowOf(t, s); !got.Equal(c.want) {
				t.Errorf("it is %v, want %v", got, c.want)
			}
			info := s.Info()
			if !info.LastKnown.Equal(start.Add(time.Minute)) || !info.Opened.Equal(c.want) {
				t.Errorf("last known %v and opened %v, want %v and %v", info.LastKnown, info.Opened, start.Add(time.Minute), c.want)
			}
		})
	}
}

func TestAHeartbeatMakesTheClockDurableAndIsNoBatch(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	dir, clock := t.TempDir(), newHandClock(start)
	beats := make(chan time.Time)
	sm := productionSeams()
	sm.beats = beats
	s := mustOpenWith(t, Options{Dir: dir, Clock: clock, ObserveBatch: func(n int) {
		t.Errorf("a heartbeat counts as a batch of %d", n)
	}}, sm)
	before := s.acknowledged.Load()
	clock.pass(90 * time.Second)
	for range 3 {
		// The second is received once the first was written; time has not
		// moved since, so it writes nothing.
		beats <- time.Time{}
	}
	image := t.TempDir()
	copyDir(t, dir, image)
	closeStore(t, s)
	if n := s.sequence - before; n != 1 {
		t.Errorf("%d heartbeats were written, want 1: time moved once", n)
	}
	clock.step(-time.Hour)
	s = mustOpenWith(t, Options{Dir: image, Clock: clock}, neverBeats())
	if got := s.Info().LastKnown; !got.Equal(start.Add(90 * time.Second)) {
		t.Errorf("after the crash the last known time is %v", got)
	}
}
