package leaseclient

import "time"

// instant is one reading of both clocks.
type instant struct {
	// mono has the monotonic reading, which no setting of the clock moves; wall has none.
	mono, wall time.Time
}

func readClocks() instant {
	now := time.Now()
	return instant{mono: now, wall: now.Round(0)}
}

// elapsed is how much time has passed since i, by the clock that says more.
func (i instant) elapsed(now instant) time.Duration {
	return max(now.mono.Sub(i.mono), now.wall.Sub(i.wall))
}

// slept is by how much the wall clock ran ahead of the monotonic one since i: the machine was suspended, or the clock
// was set forward.
func (i instant) slept(now instant) time.Duration {
	return now.wall.Sub(i.wall) - now.mono.Sub(i.mono)
}

// term is how long a lease is believed: span from the moment before the request was sent that the server agreed to.
type term struct {
	sent instant
	span time.Duration
}

// left is negative once the term is over.
func (t term) left(now instant) time.Duration { return t.span - t.sent.elapsed(now) }

// deadline has a monotonic reading.
func (t term) deadline() time.Time { return t.sent.mono.Add(t.span) }
