package upstream

import (
	"net"
	"sync"
	"sync/atomic"
)

// listener counts the connections that it accepts and the bytes that arrive on each.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns []*conn
}

type conn struct {
	net.Conn
	id     int64
	bytes  atomic.Int64
	closed atomic.Bool
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	counted := &conn{Conn: c, id: int64(len(l.conns) + 1)}
	l.conns = append(l.conns, counted)
	return counted, nil
}

func (l *listener) all() []Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Conn, len(l.conns))
	for i, c := range l.conns {
		out[i] = Conn{ID: c.id, Bytes: c.bytes.Load(), Open: !c.closed.Load()}
	}
	return out
}

func (l *listener) counts() (accepted, open int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		bytes += c.bytes.Load()
		if !c.closed.Load() {
			open++
		}
	}
	return len(l.conns), open, bytes
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// reset closes the connection with a TCP RST instead of a FIN, as a crashed peer does.
func reset(c net.Conn) {
	under := c
	if counted, ok := c.(*conn); ok {
		under = counted.Conn
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // only shapes the close below; a failure means that the peer was faster
	}
	_ = c.Close()
}
