package listen

import "sync"

// handshakes are those under way, in the order of their beginning.
type handshakes struct {
	most int
	mu   sync.Mutex
	seq  uint64
	next uint64 // nobody older than this is there
	all  map[uint64]*conn
	over bool // the listener is closed
}

// begin counts a handshake in. If there are too many the oldest one is ended. After closeAll it
// closes c and returns nil.
func (h *handshakes) begin(c *conn) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		_ = c.Close() // nobody was promised an answer
		return nil
	}
	if h.all == nil {
		h.all = make(map[uint64]*conn)
	}
	id := h.seq
	h.seq++
	h.all[id] = c
	for len(h.all) > h.most {
		if old, ok := h.all[h.next]; ok {
			delete(h.all, h.next)
			_ = old.Close() // its handshake fails
		}
		h.next++
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.all, id)
	}
}

func (h *handshakes) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for _, c := range h.all {
		_ = c.Close() // its handshake fails
	}
}
