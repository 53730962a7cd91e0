//go:build linux

package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"golang.org/x/net/http2"
)

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
