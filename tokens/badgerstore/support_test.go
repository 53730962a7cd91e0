package badgerstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// steppedClock is the system's clock with a wall clock that a test steps.
type steppedClock struct {
	systemClock
	by atomic.Int64
}

func (c *steppedClock) Wall() time.Time       { return c.systemClock.Wall().Add(time.Duration(c.by.Load())) }
func (c *steppedClock) step(by time.Duration) { c.by.Add(int64(by)) }

// handClock moves only when a test moves it.
type handClock struct{ wall, elapsed atomic.Int64 }

func newHandClock(wall time.Time) *handClock {
	c := &handClock{}
	c.wall.Store(wall.UnixNano())
	return c
}

func (c *handClock) Wall() time.Time        { return time.Unix(0, c.wall.Load()) }
func (c *handClock) Elapsed() time.Duration { return time.Duration(c.elapsed.Load()) }

// pass lets time go by; step moves the wall clock alone.
func (c *handClock) pass(d time.Duration) { c.elapsed.Add(int64(d)); c.wall.Add(int64(d)) }
func (c *handClock) step(d time.Duration) { c.wall.Add(int64(d)) }

// neverBeats are seams without heartbeats.
func neverBeats() seams {
	sm := productionSeams()
	sm.beats = make(chan time.Time)
	return sm
}

func mustOpen(t testing.TB, opt Options) *Store { return mustOpenWith(t, opt, productionSeams()) }

// mustOpenWith opens a store and closes it at the end of the test, if the test has
// not.
func mustOpenWith(t testing.TB, opt Options, sm seams) *Store {
	t.Helper()
	s, err := open(opt, sm)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close store: %v", err)
	}
}

func job(id string) tokens.Job { return tokens.Job{ID: id} }

func jobN(n int) tokens.Job { return job(fmt.Sprintf("job-%05d", n)) }

func atFloor(g tokens.Generation) tokens.Record { return tokens.Record{Floor: g, Seen: g} }

// raise commits a floor on whatever version is current.
func raise(ctx context.Context, s *Store, j tokens.Job, g tokens.Generation) error {
	snap, err := s.Load(ctx, j)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, tokens.Change{Job: j, Expect: snap.Version, Record: atFloor(g)})
	return err
}

func mustRaise(t testing.TB, s *Store, j tokens.Job, g tokens.Generation) {
	t.Helper()
	if err := raise(t.Context(), s, j, g); err != nil {
		t.Fatalf("raise floor of %s to %d: %v", j, g, err)
	}
}

func floorOf(t testing.TB, s *Store, j tokens.Job) tokens.Generation {
	t.Helper()
	snap, err := s.Load(t.Context(), j)
	if err != nil {
		t.Fatalf("load %s: %v", j, err)
	}
	return snap.Record.Floor
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
