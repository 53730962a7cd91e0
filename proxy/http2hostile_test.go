package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
	f := newFixture(t, url, overHTTP2, func(r *Route) { r.IdleTimeout = 500 * time.Millisecond })
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

func TestOddFramesOfHTTP2SayWhatTheySay(t *testing.T) {
	head := func(p *peer, fields ...string) []byte {
		p.hbuf.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = p.henc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return bytes.Clone(p.hbuf.Bytes())
	}
	for _, c := range []struct {
		name    string
		say     func(p *peer, stream uint32)
		outcome string // upstream-failed if unknown
		body    string
		broken  bool // the reply breaks off
	}{
		{"a head in pieces", func(p *peer, s uint32) {
			b := head(p, ":status", "200", "x-a", "1", "x-b", "2")
			_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: b[:1], EndStream: true, PadLength: 7, Priority: http2.PriorityParam{Weight: 3}})
			_ = p.fr.WriteContinuation(s, false, b[1:3])
			_ = p.fr.WriteContinuation(s, true, b[3:])
		}, "applied", "", false},
		{"padding and frames of other sorts", func(p *peer, s uint32) {
			p.reply(s, false, ":status", "200", "content-length", "2")
			_ = p.fr.WritePriority(s, http2.PriorityParam{Weight: 1})
			_ = p.fr.WriteDataPadded(s, false, []byte("ok"), make([]byte, 200))
			_ = p.fr.WriteRawFrame(0xbe, 0xff, s, []byte("grease"))
			_ = p.fr.WritePing(false, [8]byte{1})
			_ = p.fr.WriteDataPadded(s, true, nil, make([]byte, 10))
		}, "applied", "ok", false},
		{"goodbye, then the reply", func(p *peer, s uint32) {
			_ = p.fr.WriteGoAway(s, http2.ErrCodeNo, nil)
			p.reply(s, false, ":status", "200")
			_ = p.fr.WriteData(s, true, []byte("ok"))
		}, "applied", "ok", false},
		{"a refusal behind a 1xx", func(p *peer, s uint32) {
			p.reply(s, false, ":status", "103")
			_ = p.fr.WriteRSTStream(s, http2.ErrCodeRefusedStream)
		}, "unknown", "", false},
		{"a reset behind the end", func(p *peer, s uint32) {
			p.reply(s, false, ":status", "200")
			_ = p.fr.WriteData(s, true, []byte("ok"))
			_ = p.fr.WriteRSTStream(s, http2.ErrCodeRefusedStream)
		}, "applied", "ok", false},
		{"a reset with NO_ERROR before the end", func(p *peer, s uint32) {
			p.reply(s, false, ":status", "200")
			_ = p.fr.WriteData(s, false, []byte("ok"))
			_ = p.fr.WriteRSTStream(s, http2.ErrCodeNo)
		}, "applied", "ok", true},
		{"trailers that are not the end", func(p *peer, s uint32) {
			p.reply(s, false, ":status", "200")
			_ = p.fr.WriteData(s, false, []byte("ok"))
			p.reply(s, false, "x-sum", "1")
		}, "applied", "ok", true},
		{"less than its length", func(p *peer, s uint32) {
			p.reply(s, false, ":status", "200", "content-length", "5")
			_ = p.fr.WriteData(s, true, []byte("ok"))
		}, "applied", "ok", true},
		{"a length and nothing", func(p *peer, s uint32) {
			p.reply(s, true, ":status", "200", "content-length", "5")
		}, "applied", "", true},
		{"a promise", func(p *peer, s uint32) {
			_ = p.fr.WritePushPromise(http2.PushPromiseParam{StreamID: s, PromiseID: 2, BlockFragment: head(p, ":method", "GET"), EndHeaders: true})
			p.reply(s, true, ":status", "200")
		}, "unknown", "", false},
		{"an interim reply that ends", func(p *peer, s uint32) { p.reply(s, true, ":status", "103") }, "unknown", "", false},
		{"a body without a head", func(p *peer, s uint32) { _ = p.fr.WriteData(s, true, []byte("ok")) }, "unknown", "", false},
		{"the reply to another stream", func(p *peer, s uint32) { p.reply(s+2, true, ":status", "200") }, "unknown", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := saying(t, func(p *peer, stream uint32) {
				p.fr.AllowIllegalWrites = true
				c.say(p, stream)
			})
			f := newFixture(t, url, overHTTP2, func(r *Route) {
				if c.outcome == "unknown" {
					r.Timeout = 300 * time.Millisecond // for those that are no reply
				}
			})
			got := f.post("j", "1")
			if got.Response == nil || got.Header.Get("Fence-Outcome") != c.outcome || got.StatusCode == 200 != (c.outcome == "applied") {
				t.Fatalf("%v, %+v", got.err, got.Response)
			}
			if (got.err != nil) != c.broken || c.outcome == "applied" && got.body != c.body {
				t.Errorf("%v, %q", got.err, got.body)
			}
			if c.outcome == "applied" && !c.broken {
				want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
			}
		})
	}
}
