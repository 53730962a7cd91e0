package proxy

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// nonce is the Sec-WebSocket-Key of every test, as in RFC 6455, section 1.3.
const nonce = "dGhlIHNhbXBsZSBub25jZQ=="

// The opcodes of RFC 6455, section 5.2.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// frame is one WebSocket frame. Callers mask theirs.
func frame(op byte, payload string, mask bool) []byte {
	b := []byte{0x80 | op}
	bit := byte(0)
	if mask {
		bit = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, bit|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|127), uint64(n))
	}
	if !mask {
		return append(b, payload...)
	}
	key := [4]byte{1, 2, 3, 4}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// readFrame reads one frame.
func readFrame(br *bufio.Reader) (op byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return 0, "", err
	}
	n := uint64(head[1] & 0x7f)
	if n >= 126 {
		ext := make([]byte, 2)
		if n == 127 {
			ext = make([]byte, 8)
		}
		if _, err := io.ReadFull(br, ext); err != nil {
			return 0, "", err
		}
		n = binary.BigEndian.Uint64(append(make([]byte, 8-len(ext)), ext...))
	}
	var key [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(br, key[:]); err != nil {
			return 0, "", err
		}
	}
	b := make([]byte, n)
	_, err = io.ReadFull(br, b)
	for i := range b {
		b[i] ^= key[i%4]
	}
	return head[0] & 0x0f, string(b), err
}

// socketUpstream is a WebSocket server on raw sockets.
type socketUpstream struct {
	url   string
	conns atomic.Int64
	mu    sync.Mutex
	heads []*http.Request
	// opened gets each connection whose handshake was done, ended how one ended.
	opened chan *socketConn
	ended  chan error
}

type socketConn struct {
	net.Conn
	br *bufio.Reader
}

// newSocketUpstream serves with talk after each handshake; with echo if that is nil.
func newSocketUpstream(t *testing.T, ln net.Listener, greeting []byte, talk func(c *socketConn) error) *socketUpstream {
	t.Helper()
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	if talk == nil {
		talk = echo
	}
	u := &socketUpstream{url: "http://" + ln.Addr().String(), opened: make(chan *socketConn, 100), ended: make(chan error, 100)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u.conns.Add(1)
			all.Go(func() {
				defer func() { _ = c.Close() }()
				u.serve(&socketConn{Conn: c, br: bufio.NewReader(c)}, greeting, talk)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return u
}

func (u *socketUpstream) serve(c *socketConn, greeting []byte, talk func(c *socketConn) error) {
	for {
		r, err := http.ReadRequest(c.br)
		if err != nil {
			return
		}
		u.mu.Lock()
		u.heads = append(u.heads, r)
		u.mu.Unlock()
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nFence-Outcome: applied\r\n" +
			"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
		if _, err := c.Write(append([]byte(head), greeting...)); err != nil {
			return
		}
		u.opened <- c
		u.ended <- talk(c)
		return
	}
}

// echo sends every text back, and closes when it is asked to. nil is a proper end.
func echo(c *socketConn) error {
	for {
		op, payload, err := readFrame(c.br)
		if err != nil {
			return err
		}
		if _, err := c.Write(frame(op, payload, false)); err != nil || op == opClose {
			return err
		}
	}
}

func sockets(r *Route) { r.WebSocket = true }

// handshake is the head of an upgrade, with more lines and with what follows it.
func handshake(generation string, more ...string) string {
	head := "GET /live HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + nonce + "\r\n"
	if generation != "" {
		head += "Fence-Job-Id: j\r\nFence-Generation: " + generation + "\r\n"
	}
	for _, line := range more {
		head += line + "\r\n"
	}
	return head + "\r\n"
}

// socket opens a WebSocket through the proxy; first is sent with the head.
func (f *fixture) socket(generation string, first []byte, more ...string) (net.Conn, *bufio.Reader, *http.Response) {
	f.t.Helper()
	c, br := f.raw(handshake(generation, more...) + string(first))
	res := head(f.t, br)
	if res.StatusCode != http.StatusSwitchingProtocols {
		f.t.Fatalf("got %d %q", res.StatusCode, res.Header.Get("Fence-Reason"))
	}
	return c, br, res
}

// wantFrame checks the next frame.
func wantFrame(t *testing.T, br *bufio.Reader, op byte, payload string) {
	t.Helper()
	got, text, err := readFrame(br)
	if err != nil || got != op || text != payload {
		t.Fatalf("got frame %d %.40q, %v; want %d %.40q", got, text, err, op, payload)
	}
}

// outcomes waits until the metrics have one attempt of an outcome and none in flight.
func (f *fixture) outcomes(outcome string, n int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprint(n, " are ", outcome), func() bool {
		m := f.scrape()
		return strings.Contains(m, fmt.Sprintf(`fenceproxy_outcomes_total{outcome=%q,route="default"} %d`+"\n", outcome, n)) &&
			strings.Contains(m, `fenceproxy_in_flight{route="default"} 0`+"\n")
	})
}

func TestAWebSocketKeepsEveryFrame(t *testing.T) {
	eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
		u := newSocketUpstream(t, nil, frame(opText, "greeting", false), nil)
		f := newFixture(t, u.url, sender, sockets)
		f.claim("j")
		c, br, res := f.socket("1", frame(opText, "first", true))
		h := res.Header
		if h.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || !strings.EqualFold(h.Get("Upgrade"), "websocket") || h.Get("Connection") != "Upgrade" ||
			h.Get("Fence-Decision") != "forwarded" || h.Get("Fence-Generation") != "1" || h.Get("Fence-Outcome") != "" {
			t.Errorf("the handshake was answered with %v", h)
		}
		wantFrame(t, br, opText, "greeting") // came with the 101
		wantFrame(t, br, opText, "first")    // was sent with the request
		big := strings.Repeat("0123456789", 100_000)
		go func() {
			_, _ = c.Write(frame(opText, big, true))
			_, _ = c.Write(frame(opPing, "p", true))
		}()
		wantFrame(t, br, opText, big)
		wantFrame(t, br, opPing, "p")
		if n := f.inFlight(); n != 1 || !strings.Contains(f.scrape(), `fenceproxy_in_flight{route="default"} 1`+"\n") {
			t.Errorf("%d attempts are in flight", n)
		}
		_, _ = c.Write(frame(opClose, "", true))
		wantFrame(t, br, opClose, "")
		if _, err := br.ReadByte(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		_ = c.Close()
		if err := <-u.ended; err != nil {
			t.Errorf("the upstream saw %v", err)
		}
		f.outcomes("applied", 1)
		if f.inFlight() != 0 || !strings.Contains(f.logs.String(), `"msg":"tunnel ended"`) {
			t.Errorf("logged %s", f.logs)
		}
		if g := u.heads[0].Header; g.Get("Fence-Job-Id") != "" || g.Get("Sec-WebSocket-Key") != nonce || g.Get("X-Forwarded-For") == "" {
			t.Errorf("the upstream got %v", g)
		}
	})
}

func TestATakeoverCutsAWebSocket(t *testing.T) {
	eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
		u := newSocketUpstream(t, nil, nil, nil)
		f := newFixture(t, u.url, sender, sockets)
		f.claim("j")
		c, br, _ := f.socket("1", frame(opText, "old", true))
		wantFrame(t, br, opText, "old")
		f.takeOver("j")
		_, _ = c.Write(frame(opText, "late", true)) // fails or is dropped
		if b, err := br.ReadByte(); err == nil {
			t.Errorf("after the takeover came %q", b)
		}
		if err := <-u.ended; err == nil || err == io.EOF {
			t.Errorf("the upstream saw a proper end: %v", err)
		}
		want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
		f.outcomes("unknown", 1)
		if !strings.Contains(f.logs.String(), `"reason":"a newer generation took over"`) {
			t.Errorf("logged %s", f.logs)
		}
		_, br = f.raw(handshake("1"))
		wantNo100(t, br, 412, "stale-generation")
	})
}

func TestANewerGenerationWaitsForTheEndOfACutWebSocket(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	f := newFixture(t, u.url, sockets, func(r *Route) { r.Linger, r.TakeoverWait = time.Hour, 20*time.Millisecond })
	f.claim("j")
	f.socket("1", nil)
	f.takeOver("j")
	want(t, f.post("j", "2"), 503, "refused", "takeover-pending", "")
}

func TestAnUpgradeIsJudgedLikeAWrite(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	for code, c := range map[string]struct {
		status int
		head   string
		change func(*Route)
	}{
		"stale-generation":    {412, handshake("1"), func(*Route) {}},
		"unissued-generation": {412, handshake("9"), func(*Route) {}},
		"fence-required":      {428, handshake(""), func(*Route) {}},
		"fence-invalid":       {400, handshake("2", "Idempotency-Key: k"), func(*Route) {}},
		"lease-mismatch":      {412, handshake("2"), func(r *Route) { r.RequireLease = true }},
	} {
		f := newFixture(t, u.url, sockets, func(r *Route) { r.Methods = []string{"POST"} }, c.change)
		f.claim("j")
		f.takeOver("j")
		_, br := f.raw(c.head)
		wantNo100(t, br, c.status, code)
	}
	if n := u.conns.Load(); n != 0 {
		t.Errorf("%d connections to the upstream", n)
	}
}

func TestEveryOtherUpgradeIsRefused(t *testing.T) {
	u := newUpstream(t, nil)
	allowed, strict := newFixture(t, u.URL, sockets), newFixture(t, u.URL)
	ok := handshake("1")
	edit := func(old, new string) string { return strings.Replace(ok, old, new, 1) }
	for name, c := range map[string]struct {
		f    *fixture
		head string
	}{
		"websocket, not allowed here": {strict, ok},
		"h2c":                         {allowed, edit("Upgrade: WebSocket", "Upgrade: h2c")},
		"a list":                      {allowed, edit("Upgrade: WebSocket", "Upgrade: websocket, h2c")},
		"two lines":                   {allowed, edit("Upgrade: WebSocket", "Upgrade: websocket\r\nUpgrade: h2c")},
		"a version of the protocol":   {allowed, edit("Upgrade: WebSocket", "Upgrade: websocket/13")},
		"nothing":                     {allowed, edit("Upgrade: WebSocket", "Upgrade:")},
		"not named in Connection":     {allowed, edit("Connection: Upgrade", "Connection: keep-alive")},
		"POST":                        {allowed, edit("GET", "POST")},
		"HTTP/1.0":                    {allowed, edit("HTTP/1.1", "HTTP/1.0")},
		"a body":                      {allowed, edit("Host: h", "Host: h\r\nContent-Length: 1") + "x"},
		"a chunked body":              {allowed, edit("Host: h", "Host: h\r\nTransfer-Encoding: chunked") + "0\r\n\r\n"},
		"an old version":              {allowed, edit("Version: 13", "Version: 8")},
		"two versions":                {allowed, edit("Version: 13", "Version: 13\r\nSec-WebSocket-Version: 8")},
		"no key":                      {allowed, edit("Sec-WebSocket-Key: "+nonce+"\r\n", "")},
		"a short key":                 {allowed, edit(nonce, "c2hvcnQ=")},
		"a key that is no base64":     {allowed, edit(nonce, "the sample nonce")},
	} {
		t.Run(name, func(t *testing.T) {
			_, br := c.f.raw(c.head)
			wantNo100(t, br, 400, "request-invalid")
		})
	}
	if u.conns.Load() != 0 {
		t.Error("the upstream was connected to")
	}
}

func TestAnUpgradeThatTheUpstreamDeclinesIsAnOrdinaryReply(t *testing.T) {
	for status, outcome := range map[int]string{401: "declined", 200: "applied", 500: "unknown"} {
		eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			f := newFixture(t, u.URL, sender, sockets)
			_, br := f.raw(handshake("1"))
			res := head(t, br)
			if res.StatusCode != status || res.Header.Get("Fence-Outcome") != outcome || !res.Close {
				t.Errorf("got %d, outcome %q, close %v", res.StatusCode, res.Header.Get("Fence-Outcome"), res.Close)
			}
			f.outcomes(outcome, 1)
		})
	}
}

func TestAnUpstreamMayOnlySwitchToWhatWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct{ request, reply string }{
		"another protocol": {handshake("1"), "Connection: Upgrade\r\nUpgrade: h2c\r\n"},
		"none":             {handshake("1"), ""},
		"unasked": {
			"POST / HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 0\r\n\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
				f := newFixture(t, replying(t, "HTTP/1.1 101 Switching\r\n"+c.reply+"\r\n"), sender, sockets)
				_, br := f.raw(c.request)
				if res := head(t, br); res.StatusCode != 502 || res.Header.Get("Fence-Reason") != "upstream-failed" || res.Header.Get("Fence-Outcome") != "unknown" {
					t.Errorf("got %d %v", res.StatusCode, res.Header)
				}
				f.outcomes("unknown", 1)
			})
		})
	}
}

// replying is an upstream that gives the same reply to every request.
func replying(t *testing.T, reply string) (url string) {
	t.Helper()
	return rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := http.ReadRequest(br); err == nil {
			_, _ = io.WriteString(c, reply)
			_, _ = io.Copy(io.Discard, c)
		}
	})
}
