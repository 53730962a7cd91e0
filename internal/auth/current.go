package auth

import "sync/atomic"

// Current holds the principals that count now. Its zero value holds none. It may be used
// concurrently.
type Current struct{ now atomic.Pointer[Principals] }

// Swap makes other principals count from now on, and returns those from before. What
// was let in before goes on. Nil means that there is no auth file, and everybody may do
// everything.
func (c *Current) Swap(ps *Principals) (before *Principals) { return c.now.Swap(ps) }

// Load returns the principals that count now; nil if there is no auth file. A nil
// Current never has one.
func (c *Current) Load() *Principals {
	if c == nil {
		return nil
	}
	return c.now.Load()
}
