package leaseclient

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"
)

const (
	// watchEvery is how often the clocks are compared, to find out that the machine was suspended.
	watchEvery = time.Second
	// sleptEnough is a difference between the clocks that makes it worth looking at every lease.
	sleptEnough = 10 * time.Millisecond
	// patience is how long the end of a lease waits for a renewal in flight before it breaks it off.
	patience = time.Second
)

// renewal is what the scheduler knows of a lease. The client's lock guards it.
type renewal struct {
	index int // in the schedule, -1 if not
	// wake is when to look at the lease: when its renewal is due, or else at its deadline.
	wake, due time.Time
	failures  int
	hurried   time.Time // see hurry
	// resting leases are not renewed any more.
	resting bool
	// batch is the call that renews the lease right now.
	batch *batch
}

func (r *renewal) renews() bool { return !r.resting && r.batch == nil }

// schedule is a heap of leases by wake. It implements heap.Interface.
type schedule []*Lease

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].renewal.wake.Before(s[j].renewal.wake) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].renewal.index, s[j].renewal.index = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	l := x.(*Lease)
	l.renewal.index = len(*s)
	*s = append(*s, l)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	l := (*s)[last]
	(*s)[last], *s = nil, (*s)[:last]
	l.renewal.index = -1
	return l
}

// add begins to renew a lease. It returns false if the client is closed.
func (c *Client) add(l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	l.plan(c.now().mono, l.interval())
	heap.Push(&c.leases, l)
	if !c.scheduling {
		c.scheduling = true
		c.busy++
		go c.run()
	}
	c.rouse()
	return true
}

// remove forgets a lease that is over.
func (c *Client) remove(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.renewal.resting = true
	if l.renewal.index >= 0 {
		heap.Remove(&c.leases, l.renewal.index)
		c.rouse()
	}
}

// rest stops the renewals of a lease; its deadline is still watched. When it returns none is in flight: one that was is
// awaited for a while, then broken off, which costs the others in its batch no more than another attempt.
func (c *Client) rest(ctx context.Context, l *Lease) {
	c.mu.Lock()
	l.renewal.resting = true
	b := l.renewal.batch
	c.mu.Unlock()
	if b == nil {
		return
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-b.done:
		return
	case <-ctx.Done():
	case <-t.C:
	}
	b.cancel()
	<-b.done
}

// rouse makes the scheduler look again. The lock is held.
func (c *Client) rouse() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// hurry renews a lease now, because something suggests that it is not what it is believed to be. At most once a second.
func (c *Client) hurry(l *Lease) {
	now := c.now().mono
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &l.renewal
	if r.index >= 0 && r.renews() && now.Sub(r.hurried) > time.Second {
		r.hurried, r.due = now, now
		c.replan(l)
	}
}

// run is the scheduler. It makes no call itself, so that no hanging call can keep it from ending a lease in time, and it
// ends with the last lease.
func (c *Client) run() {
	defer c.leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := c.now()
	for {
		now := c.now()
		c.mu.Lock()
		if last.slept(now) > sleptEnough {
			c.reconsider(now)
		}
		expired, due := c.look(now)
		batches := c.batches(due, now)
		empty := len(c.leases) == 0
		if empty {
			c.scheduling = false
		} else {
			timer.Reset(min(c.leases[0].renewal.wake.Sub(now.mono), watchEvery))
		}
		c.mu.Unlock()
		last = now
		for _, l := range expired {
			l.expire(now)
		}
		for _, b := range batches {
			go c.renew(b)
		}
		if empty {
			return
		}
		select {
		case <-timer.C:
		case <-c.kick:
		}
	}
}

// reconsider puts the leases in front whose deadline passed while the timers stood still. The lock is held.
func (c *Client) reconsider(now instant) {
	for _, l := range c.leases {
		if l.left(now) <= 0 {
			l.renewal.wake = now.mono
		}
	}
	heap.Init(&c.leases)
}

// look returns the leases whose deadline has passed, and takes them off the schedule; and those to renew now. The lock
// is held.
func (c *Client) look(now instant) (expired, due []*Lease) {
	for len(c.leases) > 0 && !c.leases[0].renewal.wake.After(now.mono) {
		l := c.leases[0]
		if l.left(now) <= 0 {
			heap.Remove(&c.leases, 0)
			expired = append(expired, l)
			continue
		}
		due = append(due, l)
		l.renewal.wake = l.deadline()
		heap.Fix(&c.leases, 0)
	}
	if len(due) == 0 {
		return expired, nil
	}
	// Who is due soon goes along, so that many leases make few calls.
	due = due[:0]
	for _, l := range c.leases {
		r := &l.renewal
		if r.renews() && r.failures == 0 && r.due.Sub(now.mono) <= l.interval()/10 || r.renews() && !r.due.After(now.mono) {
			due = append(due, l)
		}
	}
	return expired, due
}

// interval is the longest time between two renewals.
func (l *Lease) interval() time.Duration { return l.ttl / 3 }

// plan makes the next renewal due at most d after since, with jitter, so that processes which started together drift
// apart. The client's lock is held.
func (l *Lease) plan(since time.Time, d time.Duration) {
	l.renewal.due = since.Add(d - rand.N(d/10+1))
	l.renewal.wake = l.nextLook()
}

func (l *Lease) nextLook() time.Time {
	deadline := l.deadline()
	if r := &l.renewal; r.renews() && r.due.Before(deadline) {
		return r.due
	}
	return deadline
}

// replan puts a lease where its renewal's state says. The lock is held.
func (c *Client) replan(l *Lease) {
	l.renewal.wake = l.nextLook()
	if l.renewal.index >= 0 {
		heap.Fix(&c.leases, l.renewal.index)
		c.rouse()
	}
}
