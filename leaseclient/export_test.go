package leaseclient

import "time"

// WithClocks returns the configuration with other clocks, for tests.
func (c Config) WithClocks(read func() (mono, wall time.Time)) Config {
	c.clocks = func() instant {
		mono, wall := read()
		return instant{mono: mono, wall: wall}
	}
	return c
}

// RenewAll renews every lease of a client n times, without waiting for the time to come.
func RenewAll(c *Client, n int) {
	for range n {
		c.mu.Lock()
		batches := c.batches(append([]*Lease(nil), c.leases...), c.now())
		c.mu.Unlock()
		for _, b := range batches {
			c.renew(b)
		}
	}
}
