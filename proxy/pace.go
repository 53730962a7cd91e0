package proxy

import (
	"net/http"
	"sync"
	"time"
)

// headDelay is how long a part of a reply waits for what follows it, so that a head and a
// short body leave in one packet and nobody waits for an upstream that thinks.
const headDelay = 5 * time.Millisecond

// pacer lets nothing of a reply wait for what its upstream has yet to make: what was
// written is flushed when nothing follows for headDelay. Its methods are for the
// goroutine that writes the reply, which must call end before it returns.
type pacer struct {
	w  http.ResponseWriter
	rc *http.ResponseController

	mu    sync.Mutex // held by whoever uses w
	timer *time.Timer
	over  bool
}

// write writes a piece.
func (p *pacer) write(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(b)
	return err
}

// flush passes on what was written.
func (p *pacer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rc.Flush()
}

// later flushes in a while, unless it is called again before or all is over.
func (p *pacer) later() {
	if p.timer != nil {
		p.timer.Reset(headDelay)
		return
	}
	p.timer = time.AfterFunc(headDelay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.over {
			_ = p.rc.Flush() // the next write fails too
		}
	})
}

// end flushes no more.
func (p *pacer) end() {
	if p.timer == nil {
		return
	}
	p.timer.Stop()
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
}
