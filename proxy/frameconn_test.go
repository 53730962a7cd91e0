package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"golang.org/x/net/http2"
)

// tape is a connection, and the watcher of the request on it, that write down in which
// order they are called.
type tape struct {
	net.Conn
	events []string
	veto   bool
	fail   error
}

// Write implements net.Conn.
func (p *tape) Write(b []byte) (int, error) {
	if p.fail != nil {
		return 0, p.fail
	}
	p.events = append(p.events, fmt.Sprint("write ", len(b)))
	return len(b), nil
}

// SetWriteDeadline implements net.Conn.
func (p *tape) SetWriteDeadline(time.Time) error { return nil }

// Gate implements Watcher.
func (p *tape) Gate() bool { p.events = append(p.events, "gate"); return !p.veto }

// SentWhole implements Watcher.
func (p *tape) SentWhole() { p.events = append(p.events, "whole") }

// Informational implements Watcher.
func (p *tape) Informational(int, textproto.MIMEHeader) error { return nil }

// taped returns a connection whose preface was written, a request on it, and the tape.
func taped(t *testing.T) (*frameConn, *Send, *tape) {
	t.Helper()
	p := &tape{}
	c := newFrameConn(&gateConn{Conn: p})
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	p.events = nil
	s := &Send{Watcher: p, Once: true}
	s.moveTo(c.gateConn)
	return c, s, p
}

func TestTheLastByteIsWrittenAfterTheRequestCountsAsSentWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(*http2.Framer)
		want []string
	}{
		{"a head alone", func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true})
		}, []string{"gate", "whole", "write 9"}},
		{"a head in two frames", func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true})
			_ = fr.WriteContinuation(1, true, nil)
		}, []string{"gate", "write 9", "whole", "write 9"}},
		{"a small body", func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
			_ = fr.WriteData(1, true, make([]byte, 2000))
		}, []string{"gate", "write 9", "whole", "write 2009"}},
		{"trailers", func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
			_ = fr.WriteData(1, false, make([]byte, 20))
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true})
		}, []string{"gate", "write 9", "write 29", "whole", "write 9"}},
		{"the end of a large body, by itself", func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
			_ = fr.WriteData(1, false, make([]byte, 65_000))
			_ = fr.WriteData(1, true, make([]byte, 10_000))
		}, []string{"gate", "write 9", "write 65009", fmt.Sprint("write ", 10_009-lastSize), "whole", fmt.Sprint("write ", lastSize)}},
		{"what is not of the request", func(fr *http2.Framer) {
			_ = fr.WriteSettingsAck()
			_ = fr.WritePing(true, [8]byte{})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true})
			_ = fr.WriteWindowUpdate(0, 1)
		}, []string{"write 9", "write 17", "gate", "whole", "write 9", "write 13"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, s, p := taped(t)
			c.say(http2.NewFramer(conn, nil))
			// A frame is written in one piece by this framer, and its gate is asked
			// once only.
			if !slices.Equal(p.events, c.want) {
				t.Errorf("got  %q\nwant %q", p.events, c.want)
			}
			if !s.Touched() {
				t.Error("nothing was sent")
			}
		})
	}
}

func TestAVetoedRequestLetsNoneOfItsFramesThrough(t *testing.T) {
	conn, s, p := taped(t)
	p.veto = true
	var both bytes.Buffer
	fr := http2.NewFramer(&both, nil)
	_ = fr.WriteWindowUpdate(0, 1)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true})
	if _, err := conn.Write(both.Bytes()); !errors.Is(err, errVetoed) {
		t.Errorf("got %v", err)
	}
	if want := []string{"write 13", "gate"}; !slices.Equal(p.events, want) || s.Touched() || !s.Vetoed() {
		t.Errorf("%q, touched %v, vetoed %v", p.events, s.Touched(), s.Vetoed())
	}
	// Nor does a request that belongs to nobody.
	conn, s, p = taped(t)
	s.Done()
	conn.release(s)
	if err := http2.NewFramer(conn, nil).WriteData(1, false, []byte("x")); !errors.Is(err, errVetoed) || len(p.events) != 0 {
		t.Errorf("%v, %q", err, p.events)
	}
}

func TestARefusalCountsForTheRequestThatItWasMeantFor(t *testing.T) {
	head := func(c *frameConn, stream uint32) {
		_ = http2.NewFramer(c, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: true, EndHeaders: true})
	}
	for _, c := range []struct {
		name string
		say  func(*frameConn)
		want bool
	}{
		{"its stream refused", func(c *frameConn) { c.reset(1, refusedStream) }, true},
		{"its stream cancelled", func(c *frameConn) { c.reset(1, 8) }, false},
		{"another stream refused", func(c *frameConn) { c.reset(3, refusedStream) }, false},
		{"goodbye below it", func(c *frameConn) { c.goAway(0) }, true},
		{"goodbye above it", func(c *frameConn) { c.goAway(1) }, false},
		{"refused after a part of the reply", func(c *frameConn) { c.heard(1); c.reset(1, refusedStream) }, false},
		{"goodbye after a part of the reply", func(c *frameConn) { c.heard(1); c.goAway(0) }, false},
	} {
		conn, s, _ := taped(t)
		head(conn, 1)
		if c.say(conn); s.Refused() != c.want {
			t.Errorf("%s: refused %v, want %v", c.name, s.Refused(), c.want)
		}
	}
	// A write that could not be sent on one connection goes out on another.
	old, s, _ := taped(t)
	old.gateConn.Conn.(*tape).fail = io.ErrClosedPipe
	head(old, 1)
	old.reset(1, refusedStream)
	next := newFrameConn(&gateConn{Conn: &tape{}})
	_, _ = io.WriteString(next, http2.ClientPreface)
	s.moveTo(next.gateConn)
	head(next, 1)
	old.goAway(0)
	if s.Refused() {
		t.Error("what one upstream connection said counts for another")
	}
}

func TestAnHTTP2WriteHeldInTheDialIsVetoed(t *testing.T) {
	u := newUpstream(t, nil)
	h := &holdSender{held: make(chan *Send, 1), open: make(chan struct{})}
	f := newFixture(t, u.URL, func(r *Route) { h.Sender = NewHTTP2Sender(r.Upstream, nil, 8); r.Sender = h })
	f.claim("j")
	a := f.start(f.slow("j", "1"))
	<-h.held
	f.takeOver("j")
	want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
	close(h.open)
	want(t, <-a, 412, "refused", "stale-generation", "not-sent")
	if u.count() != 1 {
		t.Errorf("the upstream saw %d writes, want B's only", u.count())
	}
}

func TestTheGateAloneKeepsAVetoedRequestOffHTTP2(t *testing.T) {
	u := newUpstream(t, nil)
	var sender Sender
	f := newFixture(t, u.URL, overHTTP2, func(r *Route) { sender = r.Sender })
	f.claim("j")
	at := &tokens.Attempt{Write: tokens.Write{Job: tokens.Job{ID: "j"}, Generation: 1}, Cutter: nobody{}}
	if err := f.authority.Admit(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	f.takeOver("j")
	s := &Send{Watcher: gateOnly{at}, Once: true, Cancel: func(error) {}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Send(r, s); err == nil || s.Touched() || !s.Vetoed() || u.count() != 0 {
		t.Errorf("%v, touched %v, vetoed %v, upstream saw %d", err, s.Touched(), s.Vetoed(), u.count())
	}
}

func TestAnEarlyReplyToAnUnfencedUploadEndsItsExchange(t *testing.T) {
	// Its caller goes on sending nothing: only the reply's end can end it.
	url := newPeerUpstream(t, func(p *peer) {
		if stream, _, ok := p.open(); ok {
			p.reply(stream, false, ":status", "200", "content-length", "2")
			_ = p.fr.WriteData(stream, true, []byte("ok"))
			_, _ = io.Copy(io.Discard, readFrames{p.fr})
		}
	})
	f := newFixture(t, url, overHTTP2, func(r *Route) { r.Fencing, r.IdleTimeout = FencingOff, time.Hour })
	_, br := f.raw("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf")
	if got := status(t, br); got != 200 {
		t.Errorf("got %d", got)
	}
	eventually(t, "the exchange ends", func() bool { return f.proxy.active.Load() == 0 })
}
