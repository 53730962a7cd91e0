//go:build linux

package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"golang.org/x/net/http2"
)

// unreadSize is more than an upstream of listenTight takes unread, and less than our kernel holds.
const unreadSize = 200 << 10

// roomySender makes the sockets of a route's sender roomy.
func roomySender(r *Route) {
	switch s := r.Sender.(type) {
	case *directSender:
		s.dialer.net.Control = roomy
	case *transportSender:
		d := newDialer(nil)
		d.net.Control = roomy
		s.transport.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return asConn(d.dial(ctx, addr, false))
		}
	case *http2Sender:
		s.dialer.net.Control = roomy
	}
}

// earlyUpstream answers each request by its head when answer is closed, and reads the rest of it when
// goOn is. It tells whether it got all.
type earlyUpstream struct {
	url          string
	answer, goOn chan struct{}
	whole        chan bool
}

func newEarlyUpstream(t *testing.T, call bool) *earlyUpstream {
	t.Helper()
	ln := listenTight(t)
	u := &earlyUpstream{"http://" + ln.Addr().String(), make(chan struct{}), make(chan struct{}), make(chan bool, 1)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = c.Close() }()
				br := bufio.NewReader(c)
				if b, _ := br.Peek(3); string(b) == "PRI" {
					u.serve2(newPeer(c, br, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}), call)
				} else {
					u.serve1(c, br)
				}
			})
		}
	})
	var once sync.Once
	t.Cleanup(func() {
		_ = ln.Close()
		once.Do(func() {
			for _, c := range []chan struct{}{u.answer, u.goOn} {
				select {
				case <-c:
				default:
					close(c)
				}
			}
		})
		all.Wait()
	})
	return u
}

func (u *earlyUpstream) serve1(c net.Conn, br *bufio.Reader) {
	r, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	<-u.answer
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	<-u.goOn
	_, err = io.Copy(io.Discard, r.Body)
	u.whole <- err == nil
}

func (u *earlyUpstream) serve2(p *peer, call bool) {
	_ = p.fr.WriteWindowUpdate(0, 1<<20)
	stream, _, ok := p.open()
	if !ok {
		return
	}
	<-u.answer
	p.reply(stream, !call, ":status", "200")
	if call {
		p.reply(stream, true, "grpc-status", "0")
	}
	<-u.goOn
	var whole bool
	for ok && !whole {
		whole, ok = p.data()
	}
	u.whole <- whole
}

// answeredEarly runs a test, with each way to an upstream, behind a write of job j that was answered
// while our kernel held the end of it, and whose exchange is over.
func answeredEarly(t *testing.T, linger time.Duration, test func(*testing.T, *fixture, *earlyUpstream)) {
	t.Helper()
	check := func(call bool) func(*testing.T, func(*Route)) {
		return func(t *testing.T, sender func(*Route)) {
			u := newEarlyUpstream(t, call)
			f := newFixture(t, u.url, sender, roomySender, func(r *Route) { r.Linger = linger })
			f.claim("j")
			r := f.request("j", "1", strings.NewReader(strings.Repeat("x", unreadSize)))
			if call {
				r.Header.Set("Content-Type", "application/grpc")
			}
			a := f.start(r)
			eventually(t, "our kernel has all of it", func() bool {
				var found []*exchange
				for i := range f.proxy.underway.shards {
					found = append(found, f.proxy.underway.shards[i].find(func(ex *exchange) bool {
						ex.mu.Lock()
						defer ex.mu.Unlock()
						return ex.sent
					})...)
				}
				return len(found) == 1 && found[0].send.Rests(0)
			})
			close(u.answer)
			outcome := "applied"
			if call {
				outcome = "" // it stands in the trailers
			}
			want(t, <-a, 200, "forwarded", "", outcome)
			eventually(t, "the exchange ends", func() bool {
				return strings.Contains(f.scrape(), `fenceproxy_in_flight{route="default"} 0`)
			})
			test(t, f, u)
		}
	}
	t.Run("a write", func(t *testing.T) { eachSender(t, check(false)) })
	t.Run("a call", func(t *testing.T) { check(true)(t, overHTTP2) })
}

// underway is how many attempts of job j are not settled.
func underway(t *testing.T, f *fixture) int {
	t.Helper()
	job, err := f.authority.Job(context.Background(), tokens.Job{ID: "j"})
	if err != nil {
		t.Fatal(err)
	}
	return job.InFlight
}

func TestAnAnsweredWriteIsSettledWhenOurKernelHoldsNothingOfIt(t *testing.T) {
	answeredEarly(t, 0, func(t *testing.T, f *fixture, u *earlyUpstream) {
		if n := underway(t, f); n != 0 {
			t.Errorf("%d attempts are under way", n)
		}
		close(u.goOn)
		if <-u.whole {
			t.Error("the upstream got the rest of a write that was settled")
		}
	})
}

func TestAnAnsweredWriteOfWhichOurKernelDroppedAPartLingers(t *testing.T) {
	answeredEarly(t, time.Hour, func(t *testing.T, f *fixture, _ *earlyUpstream) {
		if n := underway(t, f); n != 1 {
			t.Errorf("%d attempts are under way, want the one that lingers", n)
		}
	})
}

// eachHolding runs a test, with and without TLS, with a connection of which our kernel holds a part of
// a request, and with its other end.
func eachHolding(t *testing.T, test func(t *testing.T, c *gateConn, s *Send, peer net.Conn)) {
	t.Helper()
	lend := httptest.NewUnstartedServer(nil)
	lend.StartTLS()
	defer lend.Close()
	for name, secure := range map[string]bool{"tcp": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			ln := listenTight(t)
			defer func() { _ = ln.Close() }()
			accepted := make(chan net.Conn, 1)
			go func() {
				peer, err := ln.Accept()
				if err == nil && secure {
					err = tls.Server(peer, &tls.Config{Certificates: lend.TLS.Certificates}).Handshake()
				}
				if err != nil {
					t.Error(err)
				}
				accepted <- peer
			}()
			d := newDialer(&tls.Config{InsecureSkipVerify: true})
			d.net.Control = roomy
			c, err := d.dial(t.Context(), ln.Addr().String(), secure)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.abandon() }()
			peer := <-accepted
			defer func() { _ = peer.Close() }()
			s := &Send{Watcher: open{}, Once: true}
			s.moveTo(c)
			if _, err := c.Write(make([]byte, unreadSize)); err != nil {
				t.Fatal(err)
			}
			test(t, c, s, peer)
		})
	}
}

// wantReset reads what the other end can get of the request.
func wantReset(t *testing.T, peer net.Conn) {
	t.Helper()
	if n, err := io.ReadFull(peer, make([]byte, unreadSize)); err == nil {
		t.Errorf("the upstream got all of it, want a reset; %d bytes", n)
	}
}

// Whoever takes a connection over from a request is the only one who can close it: an Abort of that
// request leaves alone what is not its own any more.
func TestAConnectionOfWhichOurKernelHoldsARequestCarriesNoOther(t *testing.T) {
	for name, end := range map[string]func(*Send){"that is under way": func(*Send) {}, "that is over": (*Send).Done} {
		t.Run(name, func(t *testing.T) {
			eachHolding(t, func(t *testing.T, c *gateConn, s *Send, peer net.Conn) {
				end(s)
				next := &Send{Watcher: open{}, Once: true}
				next.moveTo(c)
				s.Abort()
				if n, err := c.Write([]byte("next")); n != 0 || err == nil || next.Touched() {
					t.Errorf("Write = %d, %v", n, err)
				}
				wantReset(t, peer)
			})
		})
	}
}

func TestARequestThatTheUpstreamHasLeavesItsConnectionToTheNext(t *testing.T) {
	eachHolding(t, func(t *testing.T, c *gateConn, s *Send, peer net.Conn) {
		all := make(chan struct{})
		go func() {
			defer close(all)
			_, _ = io.Copy(io.Discard, peer)
		}()
		eventually(t, "the upstream has it", s.Arrived)
		next := &Send{Watcher: open{}, Once: true}
		next.moveTo(c)
		if _, err := c.Write(make([]byte, unreadSize)); err != nil {
			t.Error(err)
		}
		if !s.Arrived() {
			t.Error("what is written of the next request counts for the one before")
		}
		eventually(t, "the upstream has that too", next.Arrived)
		_ = c.abandon()
		if !next.Arrived() {
			t.Error("what had arrived when its connection was closed is lost")
		}
		<-all
	})
}

// A connection that is closed still tells whether a part of a request was lost with it.
func TestARequestThatWasLostWithItsConnectionHasNotArrived(t *testing.T) {
	for name, end := range map[string]func(*gateConn, *Send){
		"closed by its sender":  func(c *gateConn, _ *Send) { _ = c.abandon() },
		"closed by its client":  func(c *gateConn, _ *Send) { _ = c.Close() },
		"aborted":               func(_ *gateConn, s *Send) { s.Abort() },
		"taken by another":      func(c *gateConn, _ *Send) { (&Send{Watcher: open{}}).moveTo(c) },
		"closed more than once": func(c *gateConn, s *Send) { _ = c.Close(); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			eachHolding(t, func(t *testing.T, c *gateConn, s *Send, _ net.Conn) {
				end(c, s)
				if s.Arrived() {
					t.Error("it has arrived")
				}
			})
		})
	}
	t.Run("reset by its upstream", func(t *testing.T) {
		eachHolding(t, func(t *testing.T, c *gateConn, s *Send, peer net.Conn) {
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
			_, _ = c.Conn.Read(make([]byte, 1)) // until the reset is there
			if s.Arrived() {
				t.Error("it has arrived")
			}
		})
	})
}

// What the kernel did not take has not arrived, though it holds nothing.
func TestARequestOfWhichAWriteFailedHasNotArrived(t *testing.T) {
	c, s, p := taped(t)
	p.fail = io.ErrShortWrite
	if err := c.writePiece(s, make([]byte, 2*lastSize)); err == nil {
		t.Fatal("the write was taken")
	}
	if s.Arrived() {
		t.Error("it has arrived")
	}
}

// looking is a connection that looks at itself while it is written to.
type looking struct {
	net.Conn
	look func()
}

// Write implements net.Conn.
func (l looking) Write(b []byte) (int, error) {
	l.look()
	return l.Conn.Write(b)
}

func TestFramesBehindARequestNeitherHideItNorCountForIt(t *testing.T) {
	eachHolding(t, func(t *testing.T, c *gateConn, s *Send, _ net.Conn) {
		f := newFrameConn(c)
		behind := make([]byte, 2*unreadSize) // more than there is of the request
		conn := c.Conn
		c.Conn = looking{conn, func() {
			if s.Arrived() {
				t.Error("a frame that is only being written hides the request")
			}
		}}
		if err := f.writeControl(behind); err != nil {
			t.Fatal(err)
		}
		c.Conn = conn
		if s.Arrived() {
			t.Error("a frame behind the request hides it")
		}
		left, _, _, err := unread(c.tcp)
		if err != nil {
			t.Fatal(err)
		}
		c.end.Store(c.written() - int64(left)) // as if the rest were frames
		if err := f.writeControl(behind[:1000]); err != nil {
			t.Fatal(err)
		}
		if !s.Arrived() {
			t.Error("a frame behind the request counts for it")
		}
	})
}

// The count is taken before the kernel is asked: what is written between the two is no part of
// what was acknowledged.
func TestWhatIsWrittenWhileTheKernelIsAskedDoesNotHideARequest(t *testing.T) {
	eachHolding(t, func(t *testing.T, c *gateConn, _ *Send, _ net.Conn) {
		f := newFrameConn(c)
		acknowledged := func() int64 {
			left, _, _, err := unread(c.tcp)
			if err != nil {
				t.Fatal(err)
			}
			return c.written() - int64(left)
		}
		for range 100 {
			end := acknowledged() + 1 // the request ends with the first byte that is not
			c.end.Store(end)
			written := make(chan error, 1)
			go func() {
				var err error
				for i := 0; i < 200 && err == nil; i++ {
					err = f.writeControl(make([]byte, 64))
				}
				written <- err
			}()
			hidden := false
			for done := false; !done; {
				select {
				case err := <-written:
					if done = true; err != nil {
						t.Fatal(err)
					}
				default:
					hidden = hidden || c.delivered()
				}
			}
			if hidden && acknowledged() < end {
				t.Fatal("the request counts as delivered, and is not")
			}
		}
	})
}

// An upstream that ends the connection with its reply has the write all the same.
func TestAWriteThatArrivedDoesNotLingerBecauseItsConnectionEnds(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Connection", "close")
		})
		f := newFixture(t, u.URL, sender, func(r *Route) { r.Linger, r.TakeoverWait = time.Hour, 2*time.Second })
		for i := range 20 {
			job := fmt.Sprint("j", i)
			f.claim(job)
			want(t, f.send(f.request(job, "1", strings.NewReader(strings.Repeat("x", unreadSize)))), 200, "forwarded", "", "applied")
			f.takeOver(job)
			want(t, f.post(job, "2"), 200, "forwarded", "", "applied")
		}
	})
}
