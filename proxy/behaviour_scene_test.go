package proxy

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// behaviour is one row of the table: what a caller sends, what the upstream does, and what both see of each other. It is
// played once without a proxy, and the other ways are compared with that.
type behaviour struct {
	name string
	// send is the request, byte for byte; client plays the caller instead. $HOST stands for the upstream's address.
	send   string
	client func(*caller)
	// serve is what the upstream does with a request whose head it has read; nil answers 200 "ok".
	serve func(*served)
	// route changes the proxy's route.
	route func(*Route)
	// forwarding shows the headers that tell the upstream about the caller.
	forwarding bool
	// because says why ours may differ from direct; empty: it may not.
	because string
	// varies says why the bare proxy does not do the same each time; then it is not compared.
	varies string
	// held says that the bare proxy holds pieces back, so that nobody waits long for them.
	held bool
}

const (
	// patience is how long a piece may take before it counts as held back, bareTime where it is known to be.
	patience = 5 * time.Second
	bareTime = time.Second
	// sceneTime bounds everything else.
	sceneTime = 20 * time.Second
	// again is the path of the request that proves a connection to be in order.
	again = "/again"
)

// scene is one row played one way.
type scene struct {
	t   *testing.T
	row *behaviour

	lis      net.Listener
	runs     sync.WaitGroup
	patience time.Duration

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	seen    []*message // by the upstream
	got     []*message // by the caller
	notes   []string
	signals map[string]chan struct{}
	proxy   string // the address that the caller speaks to
}

func newScene(t *testing.T, row *behaviour) *scene {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, row: row, lis: lis, patience: patience, conns: map[net.Conn]struct{}{}, signals: map[string]chan struct{}{}}
	s.runs.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = struct{}{}
			s.mu.Unlock()
			s.runs.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(s.end)
	return s
}

// end waits until the upstream has seen all that was sent to it. Whoever sent it has closed its connections.
func (s *scene) end() {
	_ = s.lis.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.SetReadDeadline(time.Now().Add(sceneTime / 10)) // they end by themselves, or soon
	}
	s.mu.Unlock()
	s.runs.Wait()
}

func (s *scene) upstream() string { return s.lis.Addr().String() }

// note adds a line of its own to what was observed.
func (s *scene) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, "* "+line)
}

func (s *scene) signal(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.signals[name]
	if c == nil {
		c = make(chan struct{}, 100)
		s.signals[name] = c
	}
	return c
}

// tell lets whoever waits for name go on.
func (s *scene) tell(name string) { s.signal(name) <- struct{}{} }

// await waits for what the other side tells, and notes it if that takes too long.
func (s *scene) await(name string) {
	select {
	case <-s.signal(name):
	case <-time.After(s.patience):
		s.note("held back: " + name)
	}
}

// served is one request at the upstream.
type served struct {
	*scene
	*message
	conn net.Conn
	in   *bufio.Reader
	over bool // the connection is of no more use
}

func (s *scene) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		m, err := readHead(in)
		if err != nil {
			return
		}
		m.frame(false)
		u := &served{scene: s, message: m, conn: c, in: in}
		if strings.Contains(m.first, again) {
			u.write(reply200("Content-Length: 5") + "again")
			continue
		}
		s.mu.Lock()
		s.seen = append(s.seen, m)
		s.mu.Unlock()
		if s.row.serve == nil {
			u.read()
			u.write(reply200("Content-Length: 2") + "ok")
		} else {
			s.row.serve(u)
		}
		if u.over {
			return
		}
	}
}

// read reads the request's body to its end.
func (u *served) read() {
	u.readBody(u.in, nil)
	u.over = u.over || u.broken
}

// write writes to the proxy, or the caller.
func (u *served) write(text string) {
	_ = u.conn.SetWriteDeadline(time.Now().Add(sceneTime))
	if _, err := io.WriteString(u.conn, text); err != nil {
		u.over = true
	}
}

// close closes the connection after what was written, reset breaks it off.
func (u *served) close() {
	u.over = true
	if c, ok := u.conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
}

func (u *served) reset() {
	u.over = true
	if c, ok := u.conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = u.conn.Close()
}

// caller is the other end.
type caller struct {
	*scene
	conn  net.Conn
	in    *bufio.Reader
	ended bool // the connection can not carry another request
}

// play runs the row against addr and returns what was observed once end has been called.
func (s *scene) play(addr string) {
	s.proxy = addr
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(sceneTime))
	c := &caller{scene: s, conn: conn, in: bufio.NewReader(conn)}
	sent := make(chan struct{})
	if s.row.client != nil {
		close(sent)
		s.row.client(c)
	} else {
		go func() { // the upstream may answer before it has taken all
			defer close(sent)
			c.send(s.row.send)
		}()
		c.reply()
	}
	if !c.ended {
		<-sent
		c.again()
	}
	_ = conn.Close()
	<-sent
}

// send writes bytes; a proxy that has closed already shows in its answer.
func (c *caller) send(text string) {
	_, _ = io.WriteString(c.conn, strings.ReplaceAll(text, "$HOST", c.upstream()))
}

// head reads the heads that come, up to and with the final one.
func (c *caller) head() *message {
	for {
		m, err := readHead(c.in)
		if err != nil {
			c.note("< the connection ends without a reply")
			c.ended = true
			return nil
		}
		c.mu.Lock()
		c.got = append(c.got, m)
		c.mu.Unlock()
		version, rest, _ := strings.Cut(m.first, " ")
		if rest == "" {
			c.note("the reply is not HTTP")
			c.ended = true
			return nil
		}
		m.first = rest
		status := rest[:min(3, len(rest))]
		if status[0] == '1' {
			continue
		}
		bodyless := status == "204" || status == "304" || c.isHead()
		if bodyless {
			m.length = "none"
			if n := m.get("Content-Length"); n != "" {
				m.length = n
			}
		} else {
			m.frame(true)
		}
		if !bodyless && m.closed || strings.EqualFold(m.get("Connection"), "close") || version == "HTTP/1.0" {
			c.ended = true
		}
		return m
	}
}

func (c *caller) isHead() bool { return strings.HasPrefix(c.row.send, "HEAD ") }

// reply reads a whole reply. It tells "head", and "piece " with each piece of the body as it comes.
func (c *caller) reply() *message {
	m := c.head()
	if m == nil {
		return nil
	}
	c.tell("head")
	if status := m.first[:3]; status == "204" || status == "304" || c.isHead() {
		return m
	}
	m.readBody(c.in, func(piece string) {
		if len(piece) < 32 {
			c.tell("piece " + piece)
		}
	})
	c.ended = c.ended || m.broken
	return m
}

// again proves that the next reply on the connection is that of the next request.
func (c *caller) again() {
	c.send(request("GET " + again + " HTTP/1.1"))
	m, err := readHead(c.in)
	if err != nil {
		return // closed between two requests, as it may
	}
	m.frame(false)
	m.readBody(c.in, nil)
	if string(m.body) != "again" {
		c.note("the next request on the connection got " + m.first + " " + shortly(string(m.body)))
	}
}

// request composes a request with a fence, and with what most clients send.
func request(first string, lines ...string) string {
	for _, always := range []string{"Host: $HOST", "User-Agent: test", "Accept-Encoding: identity"} {
		name, _, _ := strings.Cut(always, ":")
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+":") }) {
			lines = append(lines, always)
		}
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasSuffix(l, ": -") })
	return first + "\r\nFence-Job-Id: job\r\nFence-Generation: 1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// reply200 composes the head of a reply, with the Content-Type that most have.
func reply200(lines ...string) string {
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Content-Type:") }) {
		lines = append(lines, "Content-Type: text/plain")
	}
	return response("200 OK", slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l == "Content-Type: -" })...)
}

// response composes the head of any reply.
func response(status string, lines ...string) string {
	return strings.Join(append([]string{"HTTP/1.1 " + status}, lines...), "\r\n") + "\r\n\r\n"
}
