package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// headroom is how much the process may allocate between two garbage collections, in
// bytes, however small its heap is. A proxy keeps little and allocates much: with Go's
// own pace, as much as the heap, collecting takes a sixth of the time of a write.
const headroom = 64 << 20

// collector sets the pace of the garbage collection after each one: GOGC is what makes
// the headroom, but at most 400, and never below 100, so that a large heap is collected at Go's own pace.
// GOMEMLIMIT, if it is set, is obeyed all the same.
type collector struct {
	mu      sync.Mutex
	percent int
	stopped bool
	live    []metrics.Sample
}

// paceCollector begins to set the pace. The function that it returns puts Go's own back.
// If somebody has chosen a GOGC, that one stays.
func paceCollector(getenv func(string) string) (stop func()) {
	if getenv("GOGC") != "" {
		return func() {}
	}
	c := &collector{percent: 100, live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	c.collected(0)
	return c.stop
}

// collected is called once after each garbage collection.
func (c *collector) collected(int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	metrics.Read(c.live)
	// Setting it stops the world for a moment: not for a trifle.
	if p := percentFor(c.live[0].Value.Uint64()); p > c.percent+c.percent/8 || p < c.percent-c.percent/8 {
		c.percent = p
		debug.SetGCPercent(p)
	}
	// What nobody holds is found at the next collection.
	runtime.AddCleanup(new(*collector), c.collected, 0)
}

func (c *collector) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	debug.SetGCPercent(100)
}

// percentFor is the GOGC that gives a heap with so many live bytes its headroom.
func percentFor(live uint64) int {
	// Go multiplies it with 4 MiB at least, and before the first collection
	// nothing is known to be live.
	return int(min(400, max(100, 100*headroom/max(live, 1))))
}
