package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// serve serves the rig on a real listener.
func (r *rig) serve() *httptest.Server {
	s := httptest.NewServer(r.handler)
	r.t.Cleanup(s.Close)
	return s
}

func TestABodyThatNeverEndsIsGivenUp(t *testing.T) {
	r := newRig(t, func(o *control.Options) { o.BodyTimeout = 50 * time.Millisecond })
	s := r.serve()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"job_id\":", wire.PathClaim); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if p, ok := wire.ReadProblem(resp); !ok || p.Code != "invalid-request" || !strings.Contains(p.Detail, "in time") {
		t.Errorf("%d %+v", resp.StatusCode, p)
	}
}

func TestABodyThatNeverEndsIsGivenUpBehindARefusalToo(t *testing.T) {
	r := newRig(t, func(o *control.Options) { o.BodyTimeout = 50 * time.Millisecond })
	s := r.serve()
	for _, head := range []string{"Host: elsewhere.example\r\nAccept-Encoding: gzip\r\n", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\n%sContent-Length: 100\r\n\r\n{", wire.PathClaim, head); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%q: %d", head, resp.StatusCode)
		}
	}
}

func TestACallerThatReadsNoAnswersIsGivenUp(t *testing.T) {
	r := newRig(t, func(o *control.Options) { o.AnswerTimeout = 100 * time.Millisecond })
	s := httptest.NewUnstartedServer(r.handler)
	var open atomic.Int32
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10) // best effort: more is only slower to fill
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	// More answers than both kernels keep.
	_ = conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
	ask := []byte(strings.Repeat("GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000))
	for {
		if _, err := conn.Write(ask); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("the connection was kept")
			}
			break
		}
	}
	for deadline := time.Now().Add(30 * time.Second); open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server still serves the connection")
		}
	}
}

func TestAConnectionIsServedOnAfterTheTimeForAnAnswerHasPassed(t *testing.T) {
	for _, secure := range []bool{false, true} { // HTTP/1 and HTTP/2
		r := newRig(t, func(o *control.Options) { o.AnswerTimeout = time.Second })
		s := httptest.NewUnstartedServer(r.handler)
		s.EnableHTTP2 = secure
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		defer s.Close()
		r.claim("j", "a", 30000)
		client := s.Client()
		client.Transport.(*http.Transport).ExpectContinueTimeout = 30 * time.Second
		other := &http.Client{Transport: client.Transport.(*http.Transport).Clone()}
		// The other one has a connection of its own, and takes longer than an answer may.
		for _, c := range []*http.Client{client, other, client} {
			wait := 0
			if c == other {
				wait = 1500
			}
			body := strings.NewReader(fmt.Sprintf(`{"job_id":"j","owner":"b","ttl_ms":1000,"wait_ms":%d}`, wait))
			req, err := http.NewRequest(http.MethodPost, s.URL+wire.PathClaim, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Expect", "100-continue")
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := wire.ReadProblem(resp); !ok || p.Code != "lease-held" {
				t.Errorf("%d %+v", resp.StatusCode, p)
			}
			_, _ = io.Copy(io.Discard, resp.Body) // or the connection is not used again
			_ = resp.Body.Close()
		}
		other.CloseIdleConnections()
	}
}

func TestAClaimMayWaitForLongerThanABodyMayTake(t *testing.T) {
	r := newRig(t, func(o *control.Options) { o.BodyTimeout = 50 * time.Millisecond })
	s := r.serve()
	r.claim("j", "a", 30000)
	resp, err := s.Client().Post(s.URL+wire.PathClaim, wire.TypeJSON, strings.NewReader(`{"job_id":"j","owner":"b","ttl_ms":1000,"wait_ms":300}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if p, ok := wire.ReadProblem(resp); !ok || p.Code != "lease-held" {
		t.Errorf("%d %+v", resp.StatusCode, p)
	}
}

func TestACallerThatClosesItsConnectionLeavesTheQueue(t *testing.T) {
	r := newRig(t)
	s := r.serve()
	held := r.claim("j", "a", 60000)
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error)
	loads, _ := r.store.Counts()
	go func() {
		body := strings.NewReader(`{"job_id":"j","owner":"gone","ttl_ms":60000,"wait_ms":60000}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+wire.PathClaim, body)
		if err == nil {
			var resp *http.Response
			if resp, err = s.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		gone <- err
	}()
	eventually(t, func() bool { n, _ := r.store.Counts(); return n > loads }) // it has looked, and waits
	hangUp()
	if err := <-gone; err == nil {
		t.Fatal("the waiting claim was answered")
	}
	eventually(t, func() bool { return strings.Count(r.metricsText(), `operation="claim",result="unavailable"} 1`) == 1 })
	as[wire.EndResponse](r.post(wire.PathRelease, release(held)), 200)
	r.claim("j", "next", 60000)
	v, err := r.authority.Job(t.Context(), tokens.Job{ID: "j"})
	if err != nil || v.Record.Lease.Owner != "next" {
		t.Errorf("%+v, %v", v, err)
	}
}

// eventually polls for what another goroutine does.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen in time")
		}
		time.Sleep(time.Millisecond)
	}
}
