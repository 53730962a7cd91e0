package listen

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestABoundedListenerEndsIdleConnectionsAndNoneThatIsServed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := "Plain"
		if secure {
			name = "TLS"
		}
		t.Run(name, func(t *testing.T) {
			const most = 5
			entered, goOn := make(chan struct{}), make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					close(entered)
					<-goOn
				}
			}))
			b := Bound(s.Listener, most).(*bounded)
			s.Listener, s.Config.ConnState = b, Follow
			dial := func() (net.Conn, error) { return net.Dial("tcp", b.Addr().String()) }
			if secure {
				s.StartTLS()
				roots := x509.NewCertPool()
				roots.AddCert(s.Certificate())
				dial = func() (net.Conn, error) {
					return tls.Dial("tcp", b.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com"})
				}
			} else {
				s.Start()
			}
			defer s.Close()
			open := func(path string) net.Conn {
				c, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
				return c
			}
			answered := func(c net.Conn) {
				t.Helper()
				if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
					t.Errorf("no answer: %v", err)
				}
			}
			waiting := open("/wait") // the oldest of all
			<-entered
			for range 4 * most {
				answered(open("/"))
			}
			if n := b.conns.count(); n > most {
				t.Errorf("%d connections are open, at most %d may be", n, most)
			}
			close(goOn)
			answered(waiting)
		})
	}
}
