package badgerstore

import "time"

// storeClock is the store's time: the wall clock when the store was opened, but not
// below what an earlier process made durable, plus what has elapsed since. A step
// of the wall clock while the store is open changes nothing.
type storeClock struct {
	clock  Clock
	base   time.Time
	opened time.Duration
}

func newStoreClock(c Clock, atLeast time.Time) storeClock {
	// Round strips the monotonic reading: it would make later sums follow
	// another clock than Elapsed.
	base := c.Wall().Round(0)
	if base.Before(atLeast) {
		base = atLeast
	}
	return storeClock{clock: c, base: base, opened: c.Elapsed()}
}

func (c storeClock) now() time.Time {
	return c.base.Add(max(0, c.clock.Elapsed()-c.opened))
}
