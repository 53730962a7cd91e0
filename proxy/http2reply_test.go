package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"golang.org/x/net/http2"
)

func TestAnEarlyReplyEndsTheUpload(t *testing.T) {
	// The whole reply, then RST_STREAM with NO_ERROR (RFC 9113, section 8.1).
	url := newPeerUpstream(t, func(p *peer) {
		stream, _, ok := p.open()
		if !ok {
			return
		}
		p.reply(stream, false, ":status", "413", "content-length", "3")
		_ = p.fr.WriteData(stream, true, []byte("no!"))
		_ = p.fr.WriteRSTStream(stream, http2.ErrCodeNo)
		_, _ = io.Copy(io.Discard, readFrames{p.fr})
	})
	f := newFixture(t, url, overHTTP2, func(r *Route) { r.BodyBuffer = 10 })
	f.claim("j")
	pr, pw := io.Pipe()
	defer func() { _ = pw.Close() }()
	a := f.start(f.request("j", "1", pr))
	if _, err := pw.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	got := <-a
	want(t, got, 413, "forwarded", "", "declined")
	if got.body != "no!" {
		t.Errorf("got %q", got.body)
	}
	f.takeOver("j")
	want(t, f.post("j", "2"), 413, "forwarded", "", "declined")
}

func TestTooManyInterimRepliesEndTheWrite(t *testing.T) {
	url := newPeerUpstream(t, func(p *peer) {
		stream, ok := p.request()
		for range 2 * maxInterim {
			if !ok {
				return
			}
			p.reply(stream, false, ":status", "103", "link", "</a>")
		}
		_, _ = io.Copy(io.Discard, readFrames{p.fr})
	})
	want(t, newFixture(t, url, overHTTP2).post("j", "1"), 502, "refused", "upstream-failed", "unknown")
}

func TestInterimRepliesToACallerOfHTTP2ThatHangsUpHurtNobody(t *testing.T) {
	// The race detector sees what would crash the process.
	url := rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		for range 200 {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	f := newFixture(t, url, func(r *Route) { r.Sender = NewTransportSender(nil, 8) })
	c := f.http2(false)
	for range 50 {
		ctx, hangUp := context.WithCancel(t.Context())
		trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { hangUp(); return nil }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.client.Do(r); err == nil {
			_ = res.Body.Close()
		}
		hangUp()
	}
}

func TestAnEventStreamIsPassedOnAtOnceOverHTTP2(t *testing.T) {
	next := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	f := newFixture(t, u.URL, overHTTP2)
	res, err := f.server.Client().Get(f.server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	br := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := br.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
		_, _ = br.ReadString('\n')
		next <- struct{}{}
	}
}

func TestWhatIsKeptOfRepliesOverHTTP2(t *testing.T) {
	for _, c := range []struct {
		name, method string
		reply        http.HandlerFunc
		status       int // of the repetition
		decision     string
	}{
		{"with a length", "POST", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") }, 200, "replayed"},
		{"without a length", "POST", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "bo")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "dy")
		}, 200, "replayed"},
		{"with trailers that nobody announced", "POST", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		}, 409, "refused"},
		{"to a HEAD", "HEAD", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "4") }, 409, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUpstream(t, c.reply)
			f := newFixture(t, u.URL, overHTTP2, keeping, func(r *Route) { r.Methods = []string{"POST", "HEAD"} })
			for i := range 2 {
				r := f.keyed("j", "1", "k", "")
				r.Method = c.method
				got := f.send(r)
				status, decision := 200, "forwarded"
				if i == 1 {
					status, decision = c.status, c.decision
				}
				if got.err != nil || got.StatusCode != status || got.Header.Get("Fence-Decision") != decision {
					t.Errorf("try %d: %v, %d %v", i, got.err, got.StatusCode, got.Header)
				}
				if status == 200 && c.method == "POST" && got.body != "body" {
					t.Errorf("try %d: %q", i, got.body)
				}
			}
		})
	}
}
