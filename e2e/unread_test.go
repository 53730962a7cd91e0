package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// inOurWords checks that answers are refusals of the proxy's, in its form.
func (s *stage) inOurWords(name string, all []daemon.Answer) {
	s.Helper()
	for k, a := range all {
		if a.Status < 400 || a.Status > 499 || a.Decision() != "refused" || a.Reason() == "" || a.Reason() != a.Text("code") ||
			a.Header.Get("Content-Type") != "application/problem+json" || a.Text("detail") == "" {
			s.Errorf("%s: answer %d is %s %v", name, k, show(a), a.Header)
		}
	}
}

// unread are requests that the server's parser does not take, so that nothing behind it ever hears of them. Of each place
// at which net/http refuses there is one; its own tests have more.
func unread() []hostile {
	line := func(line string) string { return line + "\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n" }
	post := func(headers string) string { return "POST /w HTTP/1.1\r\nHost: p\r\n{F}" + headers + "\r\n\r\n" }
	return []hostile{
		{name: "one word", text: line("POST")},
		{name: "a method that is no token", text: line("P@ST /w HTTP/1.1")},
		{name: "another protocol", text: line("POST /w HTTQ/1.1")},
		{name: "HTTP/0.9 by name", text: line("POST /w HTTP/0.9")},
		{name: "HTTP/1.2", text: line("POST /w HTTP/1.2")},
		{name: "HTTP/2.0", text: line("POST /w HTTP/2.0")},
		{name: "half a preface", text: "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"},
		{name: "an escape that is none", text: line("POST /%zz HTTP/1.1")},
		{name: "half an escape", text: line("POST /w%2 HTTP/1.1")},
		{name: "an authority that is none", text: line("POST http://[::1/w HTTP/1.1")},
		{name: "a port that is none", text: line("POST http://p:x/w HTTP/1.1")},
		{name: "CONNECT to a port that is none", text: line("CONNECT p:x HTTP/1.1")},
		{name: "a name that is no token", text: post("X@Y: z\r\nContent-Length: 0")},
		{name: "a line without a colon", text: post("X\r\nContent-Length: 0")},
		{name: "a host that is none", text: "POST /w HTTP/1.1\r\nHost: p q\r\n{F}Content-Length: 0\r\n\r\n"},
		{name: "no host", text: "POST /w HTTP/1.1\r\n{F}Content-Length: 0\r\n\r\n"},
		{name: "two hosts", text: post("Host: q\r\nContent-Length: 0")},
		{name: "a control byte in a value", text: post("X: \x01\r\nContent-Length: 0")},
		{name: "a coding that nobody knows", text: post("Transfer-Encoding: gzip")},
		{name: "two lengths", text: post("Content-Length: 0\r\nContent-Length: 1")},
		{name: "a trailer that is a length", text: post("Transfer-Encoding: chunked\r\nTrailer: Content-Length") + "0\r\n\r\n"},
		{name: "an expectation that nobody knows", text: post("Content-Length: 0\r\nExpect: payment")},
		{name: "an empty line", text: "\r\n" + line("POST /w HTTP/1.1")},
		{name: "zeros", text: strings.Repeat("\x00", 40)},
		{name: "a TLS hello", text: "\x16\x03\x01\x00\x05hello\r\n\r\n"},
		{name: "one header over the limit", text: post("X: " + strings.Repeat("x", 100<<10) + "\r\nContent-Length: 0")},
	}
}

func TestWhatTheParserDoesNotTakeIsRefusedInOurWords(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	certFile, keyFile := p.issue("server")
	for name, c := range map[string]struct {
		top  []string
		dial func(addr string) (net.Conn, error)
	}{
		"plain": {nil, func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }},
		"over TLS": {[]string{fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", certFile, keyFile)}, func(addr string) (net.Conn, error) {
			return tls.Dial("tcp", addr, &tls.Config{RootCAs: p.pool, NextProtos: []string{"http/1.1"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, daemon.Settings{Top: c.top})
			l := s.claim("job", "A", long)
			s.unreadBy(c.dial, l)
		})
	}
}

// unreadBy sends each of unread alone, byte by byte, before and behind a write that is admitted.
func (s *stage) unreadBy(dial func(addr string) (net.Conn, error), l daemon.Lease) {
	s.Helper()
	rows := unread()
	var mu sync.Mutex // of what follows
	refused, through := 0, 0
	try := func(name, text string, size, before int) {
		conn, err := dial(s.proxy.DataAddr())
		if err != nil {
			s.Error(err)
			return
		}
		got := answersOn(conn, text, size, before+1)
		mu.Lock()
		defer mu.Unlock()
		refused, through = refused+1, through+before
		if len(got) != before+1 || got[before].Status != 400 || got[before].Reason() != "request-invalid" {
			s.Errorf("%s: got %d answers %v, want %d and a refusal", name, len(got), got, before)
			return
		}
		s.inOurWords(name, got[before:])
		for _, a := range got[:before] {
			if a.Status != 200 || a.Decision() != "forwarded" {
				s.Errorf("%s: the write before it got %s", name, show(a))
			}
		}
	}
	var all sync.WaitGroup
	for first := range 4 {
		all.Go(func() {
			for i := first; i < len(rows); i += 4 {
				row, alone, good := rows[i], spell(rows[i].text, l, itoa(i)), spell("{W}", l, "-good"+itoa(i))
				try(row.name, alone, len(alone), 0)
				try(row.name+", behind a write and before one", good+alone+spell("{W}", l, itoa(i)), 1<<20, 1)
				if len(alone) < 1000 {
					try(row.name+", byte by byte behind a write", good+alone, 1, 1)
				}
			}
		})
	}
	all.Wait()
	for i := range rows {
		s.unseen("w"+itoa(i), "smuggled"+itoa(i))
	}
	s.metricIs(`fenceproxy_rejections_total{code="request-invalid",route="none"}`, float64(refused))
	s.metricIs(`fenceproxy_writes_total{decision="forwarded",route="test"}`, float64(through))
	s.logged(`"msg":"request refused"`, refused)
}

func TestHalfAHeadIsRefusedWhenItsCallerHasEnded(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.quiet(func() {
		c, err := net.Dial("tcp", s.proxy.DataAddr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: p\r\nX: ") // the answer tells
		_ = c.(*net.TCPConn).CloseWrite()
		got := answersOn(c, "", 1, 1)
		if s.inOurWords("half a head", got); len(got) != 1 || got[0].Reason() != "request-invalid" {
			t.Errorf("got %v", got)
		}
	})
}

func TestHTTPOnATLSPortIsRefusedInOurWords(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	certFile, keyFile := p.issue("server")
	s := openWith(t, daemon.Settings{Top: []string{fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", certFile, keyFile)}})
	l := s.claim("job", "A", long)
	s.quiet(func() {
		got := s.answers(spell("{W}", l, "")+strings.Repeat("x", 30<<10), 1) // what is not read must not cost the answer
		if s.inOurWords("HTTP on a TLS port", got); len(got) != 1 || got[0].Reason() != "request-invalid" || !strings.Contains(got[0].Text("detail"), "HTTPS") {
			t.Errorf("got %v", got)
		}
	})
	s.metricIs(`fenceproxy_rejections_total{code="request-invalid",route="none"}`, 1)
}
