package proxy

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// What an upstream says behind a reply is nobody's. It comes in one piece with the reply, and so
// does not show on the socket.
func TestWhatComesBehindAReplyAnswersNobody(t *testing.T) {
	was := log.Writer()
	log.SetOutput(io.Discard) // where net/http tells of it
	t.Cleanup(func() { log.SetOutput(was) })
	for name, behind := range map[string]string{
		"a reply":        "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nevil",
		"half a reply":   "HTTP/1.1 201 Created\r\n",
		"a 1xx reply":    "HTTP/1.1 103 Early Hints\r\n\r\n",
		"a line of text": "evil\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
				url := rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
					for {
						r, err := http.ReadRequest(br)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, r.Body)
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"+behind)
					}
				})
				f := newFixture(t, url, sender)
				f.contexts = nil
				var all sync.WaitGroup
				for i := range 8 {
					all.Go(func() {
						for range 100 {
							got := f.send(f.request(fmt.Sprint("j", i), "1", strings.NewReader("hello")))
							h := got.Header
							if got.err != nil || got.StatusCode != 200 && (got.StatusCode != 502 || h.Get("Fence-Outcome") != "not-sent") {
								t.Errorf("got %v %q, %v", got.StatusCode, got.body, got.err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// What comes while a connection is idle shows on its socket, to whoever looks before he reads.
func TestWhatCameWhileAConnectionWasIdleAnswersNobody(t *testing.T) {
	for name, size := range map[string]int{"small": 5, "in pieces": 3 * inlineSize} {
		t.Run(name, func(t *testing.T) {
			eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
				say, said := make(chan struct{}), make(chan struct{})
				url := rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
					for first := true; ; first = false {
						r, err := http.ReadRequest(br)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, r.Body)
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
						if first && r.Header.Get("X-First") != "" {
							<-say
							_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nevil")
							close(said)
						}
					}
				})
				f := newFixture(t, url, sender)
				r := f.request("j", "1", nil)
				r.Header.Set("X-First", "1")
				want(t, f.send(r), 200, "forwarded", "", "applied")
				close(say)
				<-said
				got := f.send(f.request("j", "1", strings.NewReader(strings.Repeat("x", size))))
				if got.err != nil || got.StatusCode != 200 && (got.StatusCode != 502 || got.Header.Get("Fence-Outcome") != "not-sent") {
					t.Errorf("got %v %q, %v", got.StatusCode, got.body, got.err)
				}
			})
		})
	}
}
