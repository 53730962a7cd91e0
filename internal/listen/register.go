package listen

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// register are the connections that are open.
type register struct {
	most int
	mu   sync.Mutex
	all  map[*conn]struct{}
}

// conn is one of them.
type conn struct {
	net.Conn
	in *register
	// idle is since when it is, in nanoseconds of the wall clock; 0 while it is not.
	idle atomic.Int64

	read, write deadline
}

// add counts a connection in. A new one is idle: it has asked for nothing yet.
func (r *register) add(under net.Conn) *conn {
	c := &conn{Conn: under, in: r}
	c.read.set, c.write.set = under.SetReadDeadline, under.SetWriteDeadline
	c.rest(true)
	r.mu.Lock()
	if r.all == nil {
		r.all = make(map[*conn]struct{})
	}
	r.all[c] = struct{}{}
	var surplus []*conn
	if r.most > 0 && len(r.all) > r.most {
		surplus = r.idlest()
	}
	r.mu.Unlock()
	for _, old := range surplus {
		_ = old.Close() // whoever reads from it finds out
	}
	return c
}

// count is how many connections are open.
func (r *register) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// rest notes whether the connection is idle.
func (c *conn) rest(idle bool) {
	var since int64
	if idle {
		since = time.Now().UnixNano()
	}
	c.idle.Store(since)
}

// idlest chooses which connections make room: the one that has been idle for longest, and the
// others of a sixteenth of the time, so that a flood does not look at all of them for each. If
// none is idle, it is the newest that has to go.
func (r *register) idlest() []*conn {
	now := time.Now().UnixNano()
	oldest := now
	for c := range r.all {
		if since := c.idle.Load(); since != 0 && since < oldest {
			oldest = since
		}
	}
	limit := oldest + (now-oldest)/16
	var out []*conn
	for c := range r.all {
		if since := c.idle.Load(); since != 0 && since <= limit {
			out = append(out, c)
		}
	}
	return out
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.in.mu.Lock()
	delete(c.in.all, c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes our side only.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
