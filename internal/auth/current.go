package auth

import (
	"sync"
	"sync/atomic"
)

// Current holds the principals that count now. Its zero value holds none. It may be used
// concurrently.
type Current struct {
	now     atomic.Pointer[Principals]
	mu      sync.Mutex
	changed chan struct{} // closed by the next Swap; nil while nobody waits for it
}

// Swap makes other principals count from now on, and returns those from before. What
// was let in before goes on, unless it looks at Changed. Nil means that there is no auth file, and everybody may do
// everything.
func (c *Current) Swap(ps *Principals) (before *Principals) {
	before = c.now.Swap(ps)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return before
}

// Changed returns a channel that is closed by the next Swap. Who waits asks for it before Load,
// to miss none. A nil Current never changes.
func (c *Current) Changed() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// Load returns the principals that count now; nil if there is no auth file. A nil
// Current never has one.
func (c *Current) Load() *Principals {
	if c == nil {
		return nil
	}
	return c.now.Load()
}
