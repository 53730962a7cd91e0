package proxy

import (
	"sync"
	"time"
)

// pooledConn is a connection that a pool may keep.
type pooledConn interface{ Close() error }

// pool keeps connections that nobody uses.
type pool[C pooledConn] struct {
	most int // 0 keeps none

	mu     sync.Mutex
	idle   []idleConn[C] // the most recently used last
	reaper *time.Timer
	closed bool
}

type idleConn[C pooledConn] struct {
	conn  C
	since time.Time
}

// take returns the connection that was used last.
func (p *pool[C]) take() (c C, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return c, false
	}
	c = p.idle[n-1].conn
	p.idle[n-1] = idleConn[C]{}
	p.idle = p.idle[:n-1]
	return c, true
}

// put keeps a connection for later, or closes it.
func (p *pool[C]) put(c C) {
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < p.most
	if keep {
		p.idle = append(p.idle, idleConn[C]{c, time.Now()})
		if p.reaper == nil {
			p.reaper = time.AfterFunc(idleConnTimeout, p.reap)
		}
	}
	p.mu.Unlock()
	if !keep {
		_ = c.Close() // nobody uses it
	}
}

// reap closes the connections that were not used for a while.
func (p *pool[C]) reap() {
	p.mu.Lock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].since) >= idleConnTimeout {
		old++
	}
	drop := p.idle[:old:old]
	p.idle = append([]idleConn[C](nil), p.idle[old:]...)
	p.reaper = nil
	if len(p.idle) > 0 && !p.closed {
		p.reaper = time.AfterFunc(idleConnTimeout, p.reap)
	}
	p.mu.Unlock()
	for _, i := range drop {
		_ = i.conn.Close() // nobody uses it
	}
}

// close closes what is kept, and from now on keeps nothing.
func (p *pool[C]) close() {
	p.mu.Lock()
	drop := p.idle
	p.idle, p.closed = nil, true
	if p.reaper != nil {
		p.reaper.Stop()
	}
	p.mu.Unlock()
	for _, i := range drop {
		_ = i.conn.Close() // nobody uses it
	}
}
