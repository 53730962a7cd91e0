package proxy

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	registerShards = 32
	// lookEvery is how late a bound may strike.
	lookEvery = 25 * time.Millisecond
)

// register knows the exchanges that are under way. It breaks them off with the proxy, and
// bounds what each of them waits for. A context and timers for each would do the same,
// but are dearer than all that the fence does: nearly every write ends before any of
// its bounds, and here a bound that does not strike is a number that was stored.
type register struct {
	shards [registerShards]registerShard
	// ended tells that the proxy gives up what is under way; looking that the next
	// look is due already.
	ended, looking atomic.Bool
}

type registerShard struct {
	mu    sync.Mutex
	first *exchange
	_     [48]byte // a cache line each
}

// add begins to keep track of an exchange.
func (g *register) add(ex *exchange) {
	s := &g.shards[rand.Uint32N(registerShards)]
	ex.shard = s
	s.mu.Lock()
	ex.next = s.first
	if s.first != nil {
		s.first.prev = ex
	}
	s.first = ex
	s.mu.Unlock()
	// Both are asked after it was added: whoever has set them since finds it.
	if g.ended.Load() {
		ex.shutdown()
	}
	g.lookLater()
}

// remove ends it. A bound that has struck already may still reach the exchange.
func (g *register) remove(ex *exchange) {
	s := ex.shard
	s.mu.Lock()
	if ex.prev != nil {
		ex.prev.next = ex.next
	} else {
		s.first = ex.next
	}
	if ex.next != nil {
		ex.next.prev = ex.prev
	}
	ex.prev, ex.next = nil, nil
	s.mu.Unlock()
}

// end breaks off all that is under way, and all that comes.
func (g *register) end() {
	g.ended.Store(true)
	for i := range g.shards {
		for _, ex := range g.shards[i].find(func(*exchange) bool { return true }) {
			ex.shutdown()
		}
	}
}

// lookLater makes sure that a look is due.
func (g *register) lookLater() {
	if !g.looking.Load() && g.looking.CompareAndSwap(false, true) {
		time.AfterFunc(lookEvery, g.look)
	}
}

// look lets the bounds strike that have passed. It comes back as long as anything is
// under way.
func (g *register) look() {
	g.looking.Store(false)
	now, more := time.Now(), false
	for i := range g.shards {
		late := g.shards[i].find(func(ex *exchange) bool {
			more = true
			return ex.timer.passed(now) || ex.pause.passed(now) || ex.unchecked()
		})
		for _, ex := range late {
			ex.overdue(now)
			if ex.unchecked() {
				ex.recheck(now)
			}
		}
	}
	if more {
		g.lookLater()
	}
}

// find returns the exchanges of which ok holds. They are told without the lock.
func (s *registerShard) find(ok func(*exchange) bool) (found []*exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ex := s.first; ex != nil; ex = ex.next {
		if ok(ex) {
			found = append(found, ex)
		}
	}
	return found
}

// bound is a point in time at which a register breaks something off, never early and at
// most lookEvery late. Its methods may be called concurrently.
type bound struct {
	since time.Time
	due   atomic.Int64 // nanoseconds after since; zero for never
}

// Reset sets the bound from now on.
func (b *bound) Reset(d time.Duration) { b.due.Store(int64(time.Since(b.since) + d)) }

// Stop lifts it.
func (b *bound) Stop() { b.due.Store(0) }

func (b *bound) passed(now time.Time) bool {
	due := b.due.Load()
	return due != 0 && now.Sub(b.since) >= time.Duration(due)
}
