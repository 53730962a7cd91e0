//go:build linux

package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"testing"
)

// unreadSize is more than an upstream of listenTight takes unread, and less than our kernel holds.
const unreadSize = 200 << 10

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
