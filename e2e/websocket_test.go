package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// socketServer grants every upgrade and sends back what comes, byte by byte as frames go. It tells how each
// connection ended.
type socketServer struct {
	lis   net.Listener
	ended chan error
	all   sync.WaitGroup
}

func newSocketServer(t *testing.T) *socketServer {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &socketServer{lis: lis, ended: make(chan error, 10)}
	u.all.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			u.all.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() { _ = lis.Close(); u.all.Wait() })
	return u
}

func (u *socketServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello")
		_, err = io.Copy(c, br)
		u.ended <- err
		return
	}
}

// socket asks for an upgrade, with what follows at once, and returns the answer.
func (s *stage) socket(l daemon.Lease, follows string) (net.Conn, *bufio.Reader, *http.Response) {
	s.Helper()
	c, err := net.Dial("tcp", s.proxy.DataAddr())
	if err != nil {
		s.Fatal(err)
	}
	br, res := s.socketOn(c, l, follows)
	return c, br, res
}

// socketOn does so on a connection that is there.
func (s *stage) socketOn(c net.Conn, l daemon.Lease, follows string) (*bufio.Reader, *http.Response) {
	s.Helper()
	s.Cleanup(func() { _ = c.Close() })
	deadline, _ := s.soon().Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		s.Fatal(err)
	}
	var head strings.Builder
	head.WriteString("GET /live HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
	if err := write(l, "w", "").Head().Write(&head); err != nil {
		s.Fatal(err)
	}
	s.say(c, head.String()+"\r\n"+follows)
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		s.Fatal(err)
	}
	return br, res
}

func (s *stage) reads(br *bufio.Reader, want string) {
	s.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(br, got); err != nil || string(got) != want {
		s.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func TestAWebSocketIsCutWhenItsJobIsTakenOver(t *testing.T) {
	t.Parallel()
	u := newSocketServer(t)
	s := onStage(t, nil, daemon.Settings{Upstream: "http://" + u.lis.Addr().String(), Route: []string{"websocket: true"}})
	a := s.claim("job", "A", brief)
	c, br, res := s.socket(a, "\x81\x05first")
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Fence-Decision") != "forwarded" {
		t.Fatalf("got %d %v", res.StatusCode, res.Header)
	}
	s.reads(br, "\x81\x05hello") // came with the 101
	s.reads(br, "\x81\x05first") // was sent with the request
	s.say(c, "\x81\x05later")
	s.reads(br, "\x81\x05later")
	b := s.takeOver("job", "B", long)
	if _, err := br.ReadByte(); err == nil {
		t.Error("the caller's connection is still open")
	}
	if err := <-u.ended; err == nil {
		t.Error("the upstream saw a proper end")
	}
	if _, _, res := s.socket(a, ""); res.StatusCode != 412 || !res.Close {
		t.Errorf("a stale upgrade got %d, close %v", res.StatusCode, res.Close)
	}
	_, br, res = s.socket(b, "")
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %d %v", res.StatusCode, res.Header)
	}
	s.reads(br, "\x81\x05hello")
}
