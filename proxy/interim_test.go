package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
)

// net/http writes the headers of a 1xx reply in a goroutine of its own, and no longer waits for it
// when the stream was reset.
func TestACallerThatResetsItsStreamDuringInterimRepliesHurtsNobody(t *testing.T) {
	hints := "HTTP/1.1 103 Early Hints\r\n" + strings.Repeat("Link: </"+strings.Repeat("x", 200)+">\r\n", 20) + "\r\n"
	eachHTTP1Sender(t, func(t *testing.T, sender func(*Route)) {
		url := rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
			for {
				r, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(c, strings.Repeat(hints, 10)+"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nLast: 1\r\n\r\n")
			}
		})
		f := newFixture(t, url, sender)
		f.contexts = nil
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 50 {
					ctx, cancel := context.WithCancel(context.Background())
					trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { cancel(); return nil }}
					r := f.request("j", "1", strings.NewReader("x")).WithContext(httptrace.WithClientTrace(ctx, trace))
					if res, err := tr.RoundTrip(r); err == nil {
						_ = res.Body.Close()
					}
					cancel()
				}
			})
		}
		all.Wait()
	})
}
