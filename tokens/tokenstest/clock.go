package tokenstest

import (
	"sync"
	"time"
)

// Clock is a wall clock that stands still until it is moved. It may be used
// concurrently; the zero value is ready and starts in the year 2001.
type Clock struct {
	mu      sync.Mutex
	elapsed time.Duration
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(1_000_000_000, 0).UTC().Add(c.elapsed)
}

// Advance moves the clock on, or back.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed += d
}
