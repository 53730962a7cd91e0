package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// saying is an upstream that reads each request whole and then says this.
func saying(t *testing.T, say func(p *peer, stream uint32)) (url string) {
	return newPeerUpstream(t, func(p *peer) {
		for {
			stream, ok := p.request()
			if !ok {
				return
			}
			say(p, stream)
		}
	})
}

func TestAClosedWindowEndsASmallWriteToo(t *testing.T) {
	url := newPeerUpstream(t, func(p *peer) {
		if _, _, ok := p.open(); ok {
			_, _ = io.Copy(io.Discard, readFrames{p.fr})
		}
	}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	f := newFixture(t, url, overHTTP2, func(r *Route) { r.IdleTimeout = 100 * time.Millisecond })
	want(t, f.post("j", "1"), 502, "refused", "upstream-failed", "unknown")
}

func TestNoUpstreamOfHTTP2SwitchesTheCallersProtocol(t *testing.T) {
	url := saying(t, func(p *peer, stream uint32) {
		p.reply(stream, false, ":status", "101")
		p.reply(stream, true, ":status", "200")
	})
	f := newFixture(t, url, overHTTP2)
	want(t, f.post("j", "1"), 502, "refused", "upstream-failed", "unknown")
}

func TestAMalformedReplyHeadOfHTTP2IsNoAnswer(t *testing.T) {
	for _, c := range []struct {
		status string
		fields []string
		code   int
	}{
		{"200", []string{"content-length", "2", "content-length", "100"}, 502},
		{"200", []string{"content-length", "2", "content-length", "2"}, 502},
		{"200", []string{"content-length", "+2"}, 502},
		{"200", []string{"content-length", "-2"}, 502},
		{"200", []string{"content-length", "two"}, 502},
		{"200", []string{"content-length", "99999999999999999999"}, 502},
		{"+200", nil, 502},
		{"0200", nil, 502},
		{"20", nil, 502},
		{"200", []string{"content-length", "2"}, 200},
		{"200", nil, 200},
	} {
		url := saying(t, func(p *peer, stream uint32) {
			p.reply(stream, false, append([]string{":status", c.status}, c.fields...)...)
			_ = p.fr.WriteData(stream, true, []byte("ok"))
		})
		f := newFixture(t, url, overHTTP2)
		got := f.post("j", "1")
		if c.code == 200 {
			want(t, got, 200, "forwarded", "", "applied")
		} else {
			want(t, got, 502, "refused", "upstream-failed", "unknown")
		}
	}
}

func TestTheLengthOfA304IsNotWaitedFor(t *testing.T) {
	url := saying(t, func(p *peer, stream uint32) {
		p.reply(stream, true, ":status", "304", "content-length", "5", "etag", `"x"`)
	})
	f := newFixture(t, url, overHTTP2)
	c, br := f.raw("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	for range 3 { // on the same connection, so it was not broken off
		res, err := http.ReadResponse(br, &http.Request{Method: http.MethodGet})
		if err != nil || res.StatusCode != 304 || res.Header.Get("Content-Length") != "5" {
			t.Fatalf("%v, %+v", err, res)
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConnectionsOfHeadRequestsAreKept(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "5")
	})
	for _, body := range []string{"", "x"} {
		u.conns.Store(0)
		f := newFixture(t, u.URL, overHTTP2, func(r *Route) { r.Methods = []string{"HEAD"} })
		for range 5 {
			r := f.request("j", "1", strings.NewReader(body))
			r.Method = http.MethodHead
			got := f.send(r)
			want(t, got, 200, "forwarded", "", "applied")
			if got.ContentLength != 5 {
				t.Errorf("length %d", got.ContentLength)
			}
		}
		if n := u.conns.Load(); body == "" && n != 1 {
			t.Errorf("%d connections for 5 requests", n)
		}
		eventually(t, "connections that are not kept are closed", func() bool { return u.open.Load() <= 2 })
	}
}
