package listen

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
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

func TestABoundedListenerSparesAStreamOfHTTP2(t *testing.T) {
	const most = 5
	entered, goOn := make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(entered)
			<-goOn
		}
	}))
	b := Bound(s.Listener, most).(*bounded)
	s.Listener, s.Config.ConnState, s.EnableHTTP2 = b, Follow, true
	s.StartTLS()
	defer s.Close()
	waiting := make(chan error, 1)
	go func() {
		res, err := s.Client().Get(s.URL + "/wait")
		if err == nil {
			_ = res.Body.Close()
			if res.ProtoMajor != 2 {
				err = errors.New(res.Proto)
			}
		}
		waiting <- err
	}()
	<-entered
	for range 4 * most {
		c, err := net.Dial("tcp", b.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	eventually(t, "the flood is bounded", func() bool { return b.conns.count() <= most })
	close(goOn)
	if err := <-waiting; err != nil {
		t.Errorf("the stream was ended: %v", err)
	}
}
