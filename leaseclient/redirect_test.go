package leaseclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

func TestARedirectTakesNeitherAWriteNorTheLeaseIDElsewhere(t *testing.T) {
	r := newRig(t)
	l := r.claim(r.client(leaseclient.Config{}), "j")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get(wire.HeaderLease) != "" || r.Header.Get(wire.HeaderGeneration) != "" {
			t.Errorf("elsewhere got a %s with %d headers", r.Method, len(r.Header))
		}
	}))
	defer elsewhere.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusTemporaryRedirect
		if r.URL.Path == "/see-other" {
			status = http.StatusSeeOther
		}
		http.Redirect(w, r, elsewhere.URL, status)
	}))
	defer srv.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: l.Transport(base)}
	if _, err := client.Post(srv.URL, "text/plain", strings.NewReader("x")); !errors.Is(err, leaseclient.ErrRedirected) {
		t.Errorf("307: %v", err)
	}
	for _, path := range []string{"/see-other", ""} {
		resp, err := client.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	resp, err := client.Post(srv.URL+"/see-other", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestAnUpgradedConnectionCanBeWrittenToAndEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		conn := &pipe{closed: make(chan struct{})}
		tr := l.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 101, Header: http.Header{}, Body: conn}, nil
		}))
		resp, err := tr.RoundTrip(post(t, context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := resp.Body.(io.ReadWriteCloser); !ok {
			t.Fatalf("%T", resp.Body)
		}
		r.line.set(func(call, int) fault { return drop })
		<-conn.closed
		if !errors.Is(l.Err(), leaseclient.ErrExpired) {
			t.Error(l.Err())
		}
		_ = resp.Body.Close()
	})
}

// pipe is an upgraded connection.
type pipe struct {
	closed chan struct{}
	done   atomic.Bool
}

func (p *pipe) Read([]byte) (int, error)    { <-p.closed; return 0, io.EOF }
func (p *pipe) Write(b []byte) (int, error) { return len(b), nil }
func (p *pipe) Close() error {
	if p.done.CompareAndSwap(false, true) {
		close(p.closed)
	}
	return nil
}
