//go:build linux

package proxy

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestWhatATunnelHasNotDeliveredIsDroppedBeforeItIsSettled(t *testing.T) {
	for name, idle := range map[string]time.Duration{"by a takeover": 10 * time.Second, "by time": time.Second} {
		t.Run(name, func(t *testing.T) {
			eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
				goOn, late := make(chan struct{}), make(chan error, 1)
				u := newSocketUpstream(t, listenTight(t), nil, func(c *socketConn) error {
					_ = c.Conn.(*net.TCPConn).CloseWrite()
					<-goOn
					_, err := io.Copy(io.Discard, c.br)
					late <- err
					return err
				})
				f := newFixture(t, u.url, sender, sockets, func(r *Route) { r.IdleTimeout = idle })
				c, br, _ := f.socket("1", nil)
				if _, err := br.ReadByte(); err != io.EOF {
					t.Fatalf("got %v, want the upstream's end", err)
				}
				// It fits our socket, and not the upstream's.
				if _, err := io.WriteString(c, strings.Repeat("x", 48<<10)); err != nil {
					t.Fatal(err)
				}
				_ = c.Close()
				if name == "by a takeover" {
					want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
				} else {
					f.outcomes("unknown", 1)
				}
				close(goOn)
				if err := <-late; err == nil {
					t.Error("the upstream got the end of the tunnel after it was settled")
				}
				f.outcomes("unknown", 1)
			})
		})
	}
}
