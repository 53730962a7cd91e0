package framing

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener has every connection judged.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return NewConn(c, Options{HTTP2: true}), nil
}

// served is what a handler saw.
type served struct {
	path, body string
	verdict    error
	broken     error
}

// front is an HTTP server whose connections are judged.
type front struct {
	addr string
	mu   sync.Mutex
	seen []served
}

func (f *front) all() []served {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]served(nil), f.seen...)
}

func serve(t *testing.T) *front {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{addr: ln.Addr().String()}
	s := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return NewContext(ctx, c.(*Conn))
		},
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateHijacked {
				c.(*Conn).Release()
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got := served{path: r.URL.Path, verdict: Verdict(r.Context())}
			switch {
			case got.verdict != nil:
				w.Header().Set("Connection", "close")
				http.Error(w, got.verdict.Error(), 400)
			case r.URL.Path == "/take":
				c, brw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("hijack: %v", err)
					return
				}
				b, _ := io.ReadAll(brw)
				got.body = string(b)
				defer func() { _ = c.Close() }() // last, for it ends the test's wait
			default:
				var b []byte
				b, got.broken = io.ReadAll(r.Body)
				if got.body = string(b); got.broken != nil {
					w.WriteHeader(400)
				}
			}
			f.mu.Lock()
			f.seen = append(f.seen, got)
			f.mu.Unlock()
		}),
	}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(listener{ln}) // ends when it is closed
	}()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return f
}

// say sends text in pieces on a connection of its own and returns all answers until the server closes.
func (f *front) say(t *testing.T, text string, pieces int) []int {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	step := max(len(text)/pieces, 1)
	for len(text) > 0 {
		n := min(step, len(text))
		if _, err := io.WriteString(c, text[:n]); err != nil {
			break // the server has closed, the answer counts
		}
		text = text[n:]
	}
	_ = c.(*net.TCPConn).CloseWrite() // it may be gone
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	br := bufio.NewReader(c)
	var statuses []int
	for {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		statuses = append(statuses, res.StatusCode)
	}
}

const good = "PUT /good HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"

func TestAHandlerLearnsOfTheFaultInItsOwnHead(t *testing.T) {
	for _, pieces := range []int{1, 3} {
		f := serve(t)
		// Folded: net/http itself would take it.
		bad := "GET /bad HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n"
		got := f.say(t, good+good+bad+good, pieces)
		seen := f.all()
		if len(seen) != 3 || seen[0].verdict != nil || seen[1].verdict != nil || !errors.Is(seen[2].verdict, FaultFold) {
			t.Fatalf("the handler saw %+v", seen)
		}
		if seen[2].path != "/bad" || seen[0].body != "ok" || seen[1].body != "ok" {
			t.Errorf("the handler saw %+v", seen)
		}
		if len(got) != 3 || got[2] != 400 {
			t.Errorf("answers %v", got)
		}
	}
}

func TestNoFaultLetsAnythingThroughBehindIt(t *testing.T) {
	for name, c := range faulty {
		f := serve(t)
		got := f.say(t, good+c.stream+strings.Repeat(good, 2), 2)
		for i, s := range f.all() {
			if i > 0 && s.verdict == nil && s.broken == nil {
				t.Errorf("%s: the handler took %+v", name, s)
			}
		}
		for i, status := range got {
			if i > 0 && (status < 400 || status > 501) {
				t.Errorf("%s: answer %d is %d", name, i, status)
			}
		}
		if len(got) > 2 {
			t.Errorf("%s: %d answers", name, len(got))
		}
	}
}

func TestABodyWithAFaultIsBrokenAndNotShort(t *testing.T) {
	for name, c := range faulty {
		if c.head || !strings.HasPrefix(c.stream, chunked) {
			continue
		}
		f := serve(t)
		f.say(t, c.stream, 1)
		if seen := f.all(); len(seen) != 1 || seen[0].broken == nil || seen[0].verdict != nil {
			t.Errorf("%s: the handler saw %+v", name, seen)
		}
	}
}

func TestWhatIsHijackedIsNotJudged(t *testing.T) {
	f := serve(t)
	frames := "\x81\x05hello\x00\n\nGET / HTTP/1.1\n"
	f.say(t, "GET /take HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"+frames, 1)
	if seen := f.all(); len(seen) != 1 || seen[0].body != frames {
		t.Errorf("the handler saw %+v", seen)
	}
}

func TestARequestBehindAnUpgradeThatWasAnsweredIsRefused(t *testing.T) {
	f := serve(t)
	got := f.say(t, "GET /no HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"+good, 1)
	seen := f.all()
	if len(seen) != 2 || !errors.Is(seen[1].verdict, FaultNotJudged) || len(got) != 2 || got[1] != 400 {
		t.Errorf("answers %v, the handler saw %+v", got, seen)
	}
}

func TestARequestWithThePrefacesFirstLineIsNotHTTP2(t *testing.T) {
	for _, text := range []string{"PRI * HTTP/2.0\r\nHost: h\r\n\r\n" + good, "PRI * HTTP/2.0\r\n\r\n" + good, "PRI * HTTP/2.0\r\n\r\n"} {
		f := serve(t)
		got := f.say(t, text, 1)
		for _, s := range f.all() {
			if s.verdict == nil {
				t.Errorf("%q: the handler took %+v", text, s)
			}
		}
		if len(got) > 1 {
			t.Errorf("%q: answers %v", text, got)
		}
	}
}

func TestHTTP2NeedsNoVerdict(t *testing.T) {
	f := serve(t)
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	for range 2 {
		res, err := (&http.Client{Transport: tr}).Post("http://"+f.addr+"/h2", "text/plain", strings.NewReader("ok"))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Errorf("got %s over %s", res.Status, res.Proto)
		}
	}
	for _, s := range f.all() {
		if s.verdict != nil || s.body != "ok" {
			t.Errorf("the handler saw %+v", s)
		}
	}
}

func TestWithoutAJudgeThereIsNoFault(t *testing.T) {
	if err := Verdict(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestJudgingAllocatesNothing(t *testing.T) {
	j := &judge{maxHead: DefaultMaxHead}
	if n := testing.AllocsPerRun(100, func() { j.scan(headOfTen) }); n > 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// over is a connection whose peer has sent a head with a fault, and is still there.
func over(t *testing.T) (c *Conn, peer net.Conn) {
	t.Helper()
	under, peer := net.Pipe()
	t.Cleanup(func() { _ = under.Close(); _ = peer.Close() })
	c = NewConn(under, Options{})
	said := make(chan error, 1)
	go func() {
		_, err := io.WriteString(peer, "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\nmore")
		said <- err
	}()
	if n, err := c.Read(make([]byte, 100)); err != nil || n != len("GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n") {
		t.Fatalf("got %d bytes, %v", n, err)
	}
	if err := <-said; err != nil {
		t.Fatal(err)
	}
	return c, peer
}

func TestAfterAFaultNobodyWaitsForMore(t *testing.T) {
	c, _ := over(t)
	for range 2 { // the peer says nothing
		if n, err := c.Read(make([]byte, 2)); n != 0 || !errors.Is(err, FaultFold) {
			t.Errorf("got %d bytes, %v", n, err)
		}
	}
}

func TestWhoTakesAConnectionOverReadsWhatFollowsAFault(t *testing.T) {
	c, peer := over(t)
	c.Release()
	go func() { _, _ = io.WriteString(peer, "\x00") }() // read below, or the pipe is closed
	b := make([]byte, 10)
	if n, err := c.Read(b); err != nil || n != 1 {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

func TestAMutedConnOnlyLosesTheLookAhead(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = errors.Join(ours.Close(), theirs.Close()) }() // the test is over
	c := NewConn(ours, Options{})
	c.Mute(true)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("muted: got %d and %v", n, err)
	}
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	go func() { _, _ = io.WriteString(theirs, request) }() // a short one shows below
	buf := make([]byte, 3)
	if n, err := c.Read(buf); n != 3 || err != nil || string(buf) != "GET" {
		t.Errorf("got %d, %v and %q", n, err, buf)
	}
	c.Mute(false)
	if n, err := c.Read(buf[:1]); n != 1 || err != nil || buf[0] != ' ' {
		t.Errorf("lifted: got %d, %v and %q", n, err, buf)
	}
	rest := make([]byte, len(request)-4)
	if _, err := io.ReadFull(c, rest); err != nil || string(rest) != request[4:] {
		t.Errorf("got %v and %q", err, rest)
	}
}
