package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestEachSideOfATunnelEndsByItself(t *testing.T) {
	eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
		t.Run("the caller first", func(t *testing.T) {
			u := newSocketUpstream(t, nil, nil, func(c *socketConn) error {
				b, err := io.ReadAll(c.br)
				if err == nil {
					_, err = c.Write(frame(opText, "got "+string(b), false))
				}
				return err
			})
			f := newFixture(t, u.url, sender, sockets)
			c, br, _ := f.socket("1", nil)
			_, _ = io.WriteString(c, "all")
			_ = c.(*net.TCPConn).CloseWrite()
			wantFrame(t, br, opText, "got all")
			if _, err := br.ReadByte(); err != io.EOF {
				t.Errorf("then came %v", err)
			}
			f.outcomes("applied", 1)
		})
		t.Run("the upstream first", func(t *testing.T) {
			said := make(chan string, 1)
			u := newSocketUpstream(t, nil, []byte("bye"), func(c *socketConn) error {
				_ = c.Conn.(*net.TCPConn).CloseWrite()
				b, err := io.ReadAll(c.br)
				said <- string(b)
				return err
			})
			f := newFixture(t, u.url, sender, sockets)
			c, br, _ := f.socket("1", nil)
			if b, err := io.ReadAll(br); string(b) != "bye" || err != nil {
				t.Fatalf("got %q, %v", b, err)
			}
			long := strings.Repeat("x", 1<<20)
			_, _ = io.WriteString(c, long)
			_ = c.Close()
			if b := <-said; b != long {
				t.Errorf("the upstream got %d bytes, want all %d", len(b), len(long))
			}
			f.outcomes("applied", 1)
		})
	})
}

func TestATunnelThatBreaksOffIsUnknown(t *testing.T) {
	for name, breakOff := range map[string]func(caller, upstream net.Conn){
		"at the caller":   func(c, _ net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
		"at the upstream": func(_, u net.Conn) { _ = u.(*net.TCPConn).SetLinger(0); _ = u.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
				u := newSocketUpstream(t, nil, nil, nil)
				f := newFixture(t, u.url, sender, sockets)
				c, br, _ := f.socket("1", nil)
				breakOff(c, (<-u.opened).Conn)
				if err := <-u.ended; err == nil {
					t.Error("the upstream saw a proper end")
				}
				if name == "at the upstream" {
					if _, err := br.ReadByte(); err == nil {
						t.Error("the caller's connection is still open")
					}
				}
				f.outcomes("unknown", 1)
			})
		})
	}
}

func TestASilentTunnelEndsAndATalkingOneDoesNot(t *testing.T) {
	const idle = 1600 * time.Millisecond
	for name, side := range map[string]string{"neither talks": "", "the caller talks": "caller", "the upstream talks": "upstream"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			u := newSocketUpstream(t, nil, nil, func(c *socketConn) error {
				_, err := io.Copy(io.Discard, c.br)
				return err
			})
			f := newFixture(t, u.url, sockets, func(r *Route) { r.IdleTimeout = idle })
			c, _, _ := f.socket("1", nil)
			talker := net.Conn(nil)
			switch side {
			case "caller":
				talker = c
			case "upstream":
				talker = (<-u.opened).Conn
			}
			if talker != nil {
				tick := time.NewTicker(idle / 8) // the timeout is what is tested
				defer tick.Stop()
				for range 16 {
					<-tick.C
					if _, err := talker.Write(frame(opPing, "", false)); err != nil {
						t.Fatalf("the tunnel has ended: %v", err)
					}
				}
			}
			if err := <-u.ended; err == nil {
				t.Error("the upstream saw a proper end")
			}
			f.outcomes("unknown", 1)
			if !strings.Contains(f.logs.String(), "silent for too long") {
				t.Errorf("logged %s", f.logs)
			}
		})
	}
}

func TestACutIsNotHeldUpByWhoDoesNotRead(t *testing.T) {
	for _, deaf := range []string{"caller", "upstream"} {
		t.Run(deaf, func(t *testing.T) {
			release := make(chan struct{})
			u := newSocketUpstream(t, nil, nil, func(c *socketConn) error {
				if deaf == "caller" {
					return flood(c)
				}
				<-release
				return nil
			})
			f := newFixture(t, u.url, sockets)
			f.claim("j")
			c, _, _ := f.socket("1", nil)
			stuck := make(chan struct{})
			go func() {
				defer close(stuck)
				if deaf == "upstream" {
					_ = flood(c)
				}
			}()
			<-time.After(100 * time.Millisecond) // the buffers fill meanwhile
			f.takeOver("j")
			want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
			f.outcomes("unknown", 1)
			close(release)
			<-stuck
		})
	}
}

// flood writes until it can not.
func flood(c net.Conn) error {
	b := make([]byte, 64<<10)
	for {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

func TestATunnelIsInFlightForADrainAndCutAtItsEnd(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	f := newFixture(t, u.url, sockets)
	c, br, _ := f.socket("1", nil)
	ctx, over := context.WithCancel(context.Background())
	clean := make(chan bool, 1)
	go func() { clean <- f.proxy.Drain(ctx) }()
	eventually(t, "draining", f.proxy.Draining)
	_, _ = c.Write(frame(opText, "still there", true))
	wantFrame(t, br, opText, "still there")
	over()
	if <-clean {
		t.Error("the drain was clean")
	}
	if _, err := br.ReadByte(); err == nil {
		t.Error("the caller's connection is still open")
	}
	f.outcomes("unknown", 1)
}

func TestADrainWaitsForATunnelThatEnds(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	f := newFixture(t, u.url, sockets)
	c, _, _ := f.socket("1", nil)
	clean := make(chan bool, 1)
	go func() { clean <- f.proxy.Drain(context.Background()) }()
	eventually(t, "draining", f.proxy.Draining)
	_, _ = c.Write(frame(opClose, "", true))
	_ = c.(*net.TCPConn).CloseWrite()
	if !<-clean {
		t.Error("the drain was not clean")
	}
	f.outcomes("applied", 1)
}

func TestATunnelWithoutAFence(t *testing.T) {
	for name, fencing := range map[string]Fencing{"off": FencingOff, "optional": FencingOptional} {
		t.Run(name, func(t *testing.T) {
			u := newSocketUpstream(t, nil, nil, nil)
			f := newFixture(t, u.url, sockets, func(r *Route) { r.Fencing = fencing })
			c, br, _ := f.socket("", frame(opText, "x", true))
			wantFrame(t, br, opText, "x")
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			if err := <-u.ended; err == nil {
				t.Error("the upstream saw a proper end")
			}
			eventually(t, "the exchange ends", func() bool { return f.proxy.active.Load() == 0 })
		})
	}
}

func TestAnObservedUpgradeGoesThrough(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	f := newFixture(t, u.url, sockets, func(r *Route) { r.Observe = true })
	f.claim("j")
	f.takeOver("j")
	_, br, res := f.socket("1", frame(opText, "x", true))
	wantFrame(t, br, opText, "x")
	if would := res.Header.Get("Fence-Would-Refuse"); would != "stale-generation" {
		t.Errorf("Fence-Would-Refuse is %q", would)
	}
	// And one that is valid is not cut.
	c, br, _ := f.socket("2", frame(opText, "y", true))
	wantFrame(t, br, opText, "y")
	f.takeOver("j")
	_, _ = c.Write(frame(opText, "z", true))
	wantFrame(t, br, opText, "z")
}

func TestAnUpgradeIsTheOneWriteOfItsGeneration(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	f := newFixture(t, u.url, sockets, func(r *Route) { r.OncePerGeneration = true })
	c, br, _ := f.socket("1", nil)
	_, second := f.raw(handshake("1"))
	wantNo100(t, second, 409, "write-in-progress")
	_, _ = c.Write(frame(opClose, "", true))
	wantFrame(t, br, opClose, "")
	_ = c.Close()
	f.outcomes("applied", 1)
	_, second = f.raw(handshake("1"))
	wantNo100(t, second, 409, "already-applied")
}

func TestATunnelOverTLS(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cert.TLS)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert.Certificate())
	config := &tls.Config{RootCAs: pool, ServerName: "example.com"}
	u := &url.URL{Scheme: "https", Host: ln.Addr().String()}
	up := newSocketUpstream(t, ln, frame(opText, "greeting", false), nil)
	for name, sender := range map[string]Sender{"direct": NewSender(u, config, 8), "transport": NewTransportSender(config, 8)} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, u.String(), sockets, func(r *Route) { r.Sender = sender })
			f.claim("j")
			c, br, _ := f.socket("1", frame(opText, "first", true))
			wantFrame(t, br, opText, "greeting")
			wantFrame(t, br, opText, "first")
			_, _ = c.Write(frame(opClose, "", true))
			wantFrame(t, br, opClose, "")
			_ = c.Close()
			if err := <-up.ended; err != nil {
				t.Errorf("the upstream saw %v", err)
			}
			f.outcomes("applied", 1)
			f.socket("1", nil)
			f.takeOver("j")
			if err := <-up.ended; err == nil || err == io.EOF {
				t.Errorf("the upstream saw a proper end: %v", err)
			}
			f.outcomes("unknown", 1)
		})
	}
}

// open lets everything through and waits for nothing.
type open struct{}

func (open) Gate() bool                                    { return true }
func (open) SentWhole()                                    {}
func (open) Informational(int, textproto.MIMEHeader) error { return nil }

func TestNoByteOfATunnelGetsPastAnAbort(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	target, _ := url.Parse(u.url)
	for name, sender := range map[string]Sender{"direct": NewSender(target, nil, 8), "transport": NewTransportSender(nil, 8)} {
		t.Run(name, func(t *testing.T) {
			defer sender.CloseIdle()
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(handshake(""))))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			req := &http.Request{Method: "GET", URL: target, Host: target.Host, Header: r.Header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
			s := &Send{Watcher: open{}, Cancel: cancel, Once: true}
			res, err := sender.Send(req.WithContext(ctx), s)
			if err != nil {
				t.Fatal(err)
			}
			up, ok := res.Body.(duplex)
			if !ok {
				t.Fatalf("the body is %T", res.Body)
			}
			if _, err := up.Write(frame(opText, "before", true)); err != nil {
				t.Fatal(err)
			}
			wantFrame(t, bufio.NewReader(up), opText, "before")
			s.Abort()
			if n, err := up.Write(frame(opText, "after", true)); n != 0 || !errors.Is(err, errVetoed) {
				t.Errorf("Write = %d, %v", n, err)
			}
			_ = up.Close()
			cancel(nil)
		})
	}
}
