package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// Dying is an upstream on bare sockets that serves the first request of each connection, keeps the connection alive,
// executes the second one and closes without an answer: the moment at which an HTTP client is tempted to send again.
// Safe for concurrent use.
type Dying struct {
	lis  *listener
	runs sync.WaitGroup

	mu   sync.Mutex
	seen map[string][]int
	open map[net.Conn]struct{}
}

// NewDying starts one on a free loopback port.
func NewDying() (*Dying, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open dying upstream: %w", err)
	}
	d := &Dying{lis: &listener{Listener: lis}, seen: make(map[string][]int), open: make(map[net.Conn]struct{})}
	d.runs.Go(d.accept)
	return d, nil
}

// URL is the base address.
func (d *Dying) URL() string { return "http://" + d.lis.Addr().String() }

// Seen tells, for each time that the request with this id was executed, which request of its connection it was, from 1.
func (d *Dying) Seen(id string) []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int(nil), d.seen[id]...)
}

// Close ends the listener and all connections and waits for their goroutines.
func (d *Dying) Close() {
	_ = d.lis.Close() // ends the accept loop
	d.mu.Lock()
	for c := range d.open {
		_ = c.Close()
	}
	d.open = nil
	d.mu.Unlock()
	d.runs.Wait()
}

func (d *Dying) accept() {
	for {
		c, err := d.lis.Accept()
		if err != nil {
			return // closed
		}
		d.mu.Lock()
		if d.open == nil {
			_ = c.Close()
		} else {
			d.open[c] = struct{}{}
			d.runs.Go(func() { d.serve(c) })
		}
		d.mu.Unlock()
	}
}

func (d *Dying) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		d.mu.Lock()
		delete(d.open, c)
		d.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for nth := 1; nth <= 2; nth++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		d.mu.Lock()
		d.seen[r.Header.Get(HeaderID)] = append(d.seen[r.Header.Get(HeaderID)], nth)
		d.mu.Unlock()
		if nth == 1 {
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
				return
			}
		}
	}
}

// Mute completes the TCP handshake and then says nothing, so that a TLS handshake with it never ends. Safe for concurrent
// use.
type Mute struct {
	lis      *listener
	arrivals chan struct{}
	runs     sync.WaitGroup
}

// NewMute starts one on a free loopback port.
func NewMute() (*Mute, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open mute upstream: %w", err)
	}
	m := &Mute{lis: &listener{Listener: lis}, arrivals: make(chan struct{}, 64)}
	m.runs.Go(m.accept)
	return m, nil
}

// URL is the https base address.
func (m *Mute) URL() string { return "https://" + m.lis.Addr().String() }

// Arrivals yields once for each connection on which the first bytes have come: the peer has begun its TLS handshake.
func (m *Mute) Arrivals() <-chan struct{} { return m.arrivals }

// Received is the number of bytes that arrived.
func (m *Mute) Received() int64 { _, _, n := m.lis.counts(); return n }

// Close ends the listener and its connections.
func (m *Mute) Close() {
	_ = m.lis.Close() // ends the accept loop
	m.lis.mu.Lock()
	for _, c := range m.lis.conns {
		_ = c.Close()
	}
	m.lis.mu.Unlock()
	m.runs.Wait()
}

func (m *Mute) accept() {
	for {
		c, err := m.lis.Accept()
		if err != nil {
			return // closed
		}
		m.runs.Go(func() {
			defer c.Close()
			buf := make([]byte, 4<<10)
			for first := true; ; first = false {
				_, err := c.Read(buf)
				if first && err == nil {
					m.arrivals <- struct{}{}
				}
				if err != nil {
					return // the peer gave up, or Close
				}
			}
		})
	}
}
