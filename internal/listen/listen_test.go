package listen

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fenceproxy/fenceproxy/internal/framing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is a server over a listener of ours.
type stand struct {
	*testing.T
	addr  string
	ln    *Listener
	roots *x509.CertPool
}

// stood starts a server that answers with what it saw of a request.
func stood(t *testing.T, secure bool, opt Options) *stand {
	t.Helper()
	s := &stand{T: t, roots: x509.NewCertPool()}
	if secure {
		lend := httptest.NewUnstartedServer(nil)
		lend.StartTLS()
		lend.Close()
		opt.TLS = &tls.Config{Certificates: lend.TLS.Certificates}
		s.roots.AddCert(lend.Certificate())
	}
	opt.MaxHead, opt.Logger = 64<<10, slog.New(slog.DiscardHandler)
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr, s.ln = under.Addr().String(), New(under, opt)
	srv := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := framing.Verdict(r.Context()); err != nil {
			if r.URL.Path == "/take" {
				take(t, w)
				return
			}
			http.Error(w, err.Error(), 400)
			return
		}
		body, _ := io.ReadAll(r.Body) // a broken one is short
		_, _ = fmt.Fprintf(w, "proto=%d tls=%v body=%s", r.ProtoMajor, r.TLS != nil, body)
	}), opt)
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(s.ln) // ends when it is closed
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return s
}

// take takes the connection over and says back what comes on it.
func take(t *testing.T, w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Errorf("hijack: %v", err)
		return
	}
	defer func() { _ = c.Close() }()
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Errorf("what follows can not be read: %v", err)
	}
	_, _ = c.Write(b) // who reads it notices
}

// post sends a small body and returns what the server saw.
func (s *stand) post(secure bool, protocols func(*http.Protocols)) string {
	s.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "example.com"}}
	protocols(tr.Protocols)
	defer tr.CloseIdleConnections()
	scheme := "http"
	if secure {
		scheme = "https"
	}
	res, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Post(scheme+"://"+s.addr, "text/plain", strings.NewReader("x"))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}

func http1(p *http.Protocols)      { p.SetHTTP1(true) }
func http2TLS(p *http.Protocols)   { p.SetHTTP2(true) }
func http2Plain(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }

func TestEveryProtocolIsServedAndKnowsWhetherItCameOverTLS(t *testing.T) {
	for _, c := range []struct {
		name      string
		secure    bool
		protocols func(*http.Protocols)
		want      string
	}{
		{"HTTP/1.1", false, http1, "proto=1 tls=false body=x"},
		{"HTTP/2 with prior knowledge", false, http2Plain, "proto=2 tls=false body=x"},
		{"HTTP/1.1 over TLS", true, http1, "proto=1 tls=true body=x"},
		{"HTTP/2 over TLS", true, http2TLS, "proto=2 tls=true body=x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := stood(t, c.secure, Options{}).post(c.secure, c.protocols); got != c.want {
				t.Errorf("the handler saw %q, want %q", got, c.want)
			}
		})
	}
}

// dialTLS opens a TLS connection that offers these protocols.
func (s *stand) dialTLS(protocols ...string) *tls.Conn {
	s.Helper()
	c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.roots, ServerName: "example.com", NextProtos: protocols})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func TestTheSchemeThatAStreamClaimsDoesNotDecideWhetherItIsTLS(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := stood(t, secure, Options{})
		var c net.Conn
		if secure {
			c = s.dialTLS("h2")
		} else {
			c = s.dial()
		}
		scheme := map[bool]string{false: "https", true: "http"}[secure] // the wrong one
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", scheme}, {":path", "/"}, {":authority", "h"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
		}
		_, _ = io.WriteString(c, http2.ClientPreface)
		fr := http2.NewFramer(c, c)
		_ = fr.WriteSettings()
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				t.Fatalf("secure %v: no answer: %v", secure, err)
			}
			if d, ok := f.(*http2.DataFrame); ok {
				if got, want := string(d.Data()), fmt.Sprintf("proto=2 tls=%v body=", secure); got != want {
					t.Errorf("the handler saw %q, want %q", got, want)
				}
				break
			}
		}
	}
}

func (s *stand) dial() net.Conn {
	s.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// answers reads all of them until the server closes.
func answers(c net.Conn) (statuses []int) {
	br := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		statuses = append(statuses, res.StatusCode)
	}
}

func TestFramingIsJudgedUnderTLSToo(t *testing.T) {
	s := stood(t, true, Options{})
	c := s.dialTLS("http/1.1")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := answers(c); len(got) != 1 || got[0] != 400 {
		t.Errorf("answers %v, want one 400", got)
	}
}

func TestThePrefaceOfHTTP2OpensNoDoorUnderTLSWithoutALPN(t *testing.T) {
	s := stood(t, true, Options{})
	for _, protocols := range [][]string{nil, {"http/1.1"}} {
		c := s.dialTLS(protocols...)
		_, _ = io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		for _, status := range answers(c) {
			if status < 400 {
				t.Errorf("answer %d", status)
			}
		}
	}
}

func TestAnUpgradeIsAnsweredWithTheEndOfTheConnection(t *testing.T) {
	s := stood(t, false, Options{})
	c := s.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := answers(c); len(got) != 1 || got[0] != 200 {
		t.Errorf("answers %v, want one, and no switch of protocols", got)
	}
}

// Some read what follows the head of a CONNECT as its body, others as the next request.
func TestAConnectIsAnsweredWithTheEndOfTheConnection(t *testing.T) {
	s := stood(t, false, Options{})
	c := s.dial()
	_, _ = io.WriteString(c, "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nContent-Length: 27\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := answers(c); len(got) != 1 {
		t.Errorf("answers %v, want one", got)
	}
}

func TestHTTPOnATLSPortIsTold(t *testing.T) {
	s := stood(t, true, Options{Refusal: inWords})
	for text, want := range map[string]int{
		target("/"): 1, line("PROPFIND / HTTP/1.1"): 1, line("A / HTTP/1.1"): 1, http2.ClientPreface: 1, "SSH-2.0-OpenSSH_9.6\r\n": 0, "HELO\x00there": 0, "     ": 0,
	} {
		c := s.dial()
		_, _ = io.WriteString(c, text)
		if got := answers(c); len(got) != want || want == 1 && got[0] != 400 {
			t.Errorf("%q: answers %v, want %d", text, got, want)
		}
	}
}

func TestSilentHandshakesDoNotKeepHonestOnesOut(t *testing.T) {
	s := stood(t, true, Options{MaxHandshakes: 8})
	var silent []net.Conn
	for range 50 {
		silent = append(silent, s.dial())
	}
	if got := s.post(true, http1); got != "proto=1 tls=true body=x" {
		t.Errorf("the handler saw %q", got)
	}
	// The oldest were ended: the server has closed them.
	if _, err := silent[0].Read(make([]byte, 1)); err == nil {
		t.Error("a silent connection got something")
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the oldest handshake was not ended")
	}
}

// atRest counts the idle connections.
func (s *stand) atRest() (n int) {
	r := &s.ln.conns
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.all {
		if c.idle.Load() != 0 {
			n++
		}
	}
	return n
}

func TestTheConnectionThatWasIdleForLongestMakesRoom(t *testing.T) {
	s := stood(t, false, Options{MaxConns: 20})
	var idle []net.Conn
	for range 20 {
		c := s.dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
		// The answer may be here before the server has noted that nothing is left to do.
		eventually(t, "the connections are at rest", func() bool { return s.atRest() == len(idle) })
	}
	if got := s.post(false, http1); got != "proto=1 tls=false body=x" {
		t.Errorf("the handler saw %q", got)
	}
	if _, err := io.Copy(io.Discard, idle[0]); err != nil {
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Error("the connection that was idle for longest was kept")
		}
	}
	// The newest are still served.
	c := idle[19]
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Errorf("the newest connection was ended: %v", err)
	}
}

func TestClosingEndsWhatIsNotAcceptedYet(t *testing.T) {
	s := stood(t, true, Options{})
	c := s.dial()
	eventually(t, "a handshake is under way", func() bool {
		s.ln.pending.mu.Lock()
		defer s.ln.pending.mu.Unlock()
		return len(s.ln.pending.all) == 1
	})
	began := time.Now()
	if err := s.ln.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > handshakeTimeout/2 {
		t.Errorf("it took %s", d)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := s.ln.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
}

func TestConnectionsThatEndAreForgotten(t *testing.T) {
	s := stood(t, false, Options{})
	for range 10 {
		_ = s.dial().Close()
		s.post(false, http2Plain)
	}
	eventually(t, "all connections are forgotten", func() bool {
		s.ln.conns.mu.Lock()
		defer s.ln.conns.mu.Unlock()
		return len(s.ln.conns.all) == 0
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestAHandlerThatTakesTheConnectionOverReadsOn(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := stood(t, secure, Options{})
		var c net.Conn
		if secure {
			c = s.dialTLS("http/1.1")
		} else {
			c = s.dial()
		}
		_, _ = io.WriteString(c, "GET /take HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n")
		// In a piece of its own, for what came with the fault is dropped.
		go func() {
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return // the test is over
				}
				time.Sleep(time.Millisecond)
			}
		}()
		if b, err := io.ReadAll(c); len(b) == 0 {
			t.Errorf("secure %v: nothing came back: %v", secure, err)
		}
		_ = c.Close()
	}
}
