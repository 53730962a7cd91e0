package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/listen"
)

// An HTTP/1.0 caller knows the end of a reply without a length by the end of its connection.
func TestHalfAReplyIsNotAWholeOneToHTTP10(t *testing.T) {
	lend := httptest.NewUnstartedServer(nil)
	lend.StartTLS()
	lend.Close()
	for name, end := range map[string]string{"half": "", "whole": "0\r\n\r\n"} {
		for over, secure := range map[string]*tls.Config{"tcp": nil, "tls": {Certificates: lend.TLS.Certificates}} {
			t.Run(name+" over "+over, func(t *testing.T) {
				url := rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
					if r, err := http.ReadRequest(br); err == nil {
						_, _ = io.Copy(io.Discard, r.Body)
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"+end)
					}
				})
				f := newFixture(t, url)
				under, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				opt := listen.Options{MaxHead: 64 << 10, Logger: slog.New(slog.DiscardHandler), TLS: secure}
				srv := listen.NewServer(f.proxy, opt)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = srv.Serve(listen.New(under, opt)) // ends when it is closed
				}()
				t.Cleanup(func() { _ = srv.Close(); <-done })
				c, err := net.Dial("tcp", under.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if secure != nil {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				_, _ = io.WriteString(c, "POST /x HTTP/1.0\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 2\r\n\r\nhi")
				b, err := io.ReadAll(c)
				if (err == nil) != (name == "whole") {
					t.Errorf("%s reply ended with %v: %q", name, err, b)
				}
			})
		}
	}
}
