package upstream_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *upstream.Server {
	t.Helper()
	s, err := upstream.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func request(t *testing.T, base, id, do string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/charge?x=%2F", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(upstream.HeaderID, id)
	r.Header.Set(upstream.HeaderJob, "job")
	r.Header.Set(upstream.HeaderGeneration, "7")
	r.Header.Set(upstream.HeaderDo, do)
	return r
}

func send(t *testing.T, r *http.Request) (*http.Response, error) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(tr.CloseIdleConnections)
	res, err := tr.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res, nil
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestARequestIsRecordedWithItsMarksAndItsBody(t *testing.T) {
	s := open(t)
	if _, err := send(t, request(t, s.URL(), "w1", "", strings.NewReader("hello"))); err != nil {
		t.Fatal(err)
	}
	r, err := s.WaitEnd(within(t), "w1")
	if err != nil {
		t.Fatal(err)
	}
	if r.Job != "job" || r.Generation != 7 || r.Method != "POST" || r.Path != "/charge?x=%2F" {
		t.Errorf("marks: %+v", r)
	}
	if !r.Complete || !r.Executed || r.Bytes != 5 || r.Sum != sha256.Sum256([]byte("hello")) {
		t.Errorf("body: %+v", r)
	}
	if r.Begin != 1 || r.End != 2 || r.Conn != 1 || s.Accepted() != 1 || s.Received() == 0 {
		t.Errorf("order and connections: %+v, accepted %d, received %d", r, s.Accepted(), s.Received())
	}
}

func TestABehaviourIsChosenByHeader(t *testing.T) {
	for _, tt := range []struct {
		do       string
		status   int // 0: the connection ends without an answer
		executed bool
		complete bool
	}{
		{"", 200, true, true},
		{"status=500", 500, true, true},
		{"status=503 delay=1ms", 503, true, true},
		{"status=404", 404, false, true},
		{"early=413", 413, false, false},
		{"reset", 0, false, true},
		{"reset-after-execute", 0, true, true},
		{"reset-midway=2", 0, false, false},
		{"dance", 501, false, false},
		{"status=99", 501, false, false},
	} {
		t.Run(tt.do, func(t *testing.T) {
			s := open(t)
			res, err := send(t, request(t, s.URL(), "w", tt.do, strings.NewReader("hello")))
			switch {
			case tt.status == 0 && err == nil:
				t.Errorf("got status %d, want a broken connection", res.StatusCode)
			case tt.status != 0 && err != nil:
				t.Errorf("got %v, want status %d", err, tt.status)
			case tt.status != 0 && res.StatusCode != tt.status:
				t.Errorf("got status %d, want %d", res.StatusCode, tt.status)
			}
			r, err := s.WaitEnd(within(t), "w")
			if err != nil {
				t.Fatal(err)
			}
			if r.Executed != tt.executed || r.Complete != tt.complete {
				t.Errorf("got executed %v complete %v, want %v %v", r.Executed, r.Complete, tt.executed, tt.complete)
			}
		})
	}
}

func TestAHangingRequestWaitsForItsRelease(t *testing.T) {
	s := open(t)
	done := make(chan error, 1)
	r := request(t, s.URL(), "w", "hang", nil)
	go func() {
		_, err := send(t, r)
		done <- err
	}()
	if _, err := s.WaitBegin(within(t), "w"); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.WaitEnd(short, "w"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended before its release: %v", err)
	}
	s.Release("w")
	s.Release("w") // twice is once
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestABrokenUploadIsNotComplete(t *testing.T) {
	s := open(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Test-Id: w\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitBody(within(t), "w", 5); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := s.WaitEnd(within(t), "w")
	if err != nil {
		t.Fatal(err)
	}
	if r.Complete || r.Executed || r.Bytes != 5 || !r.Chunked {
		t.Errorf("got %+v", r)
	}
}

func TestACallerWhoLeavesIsNoticed(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := request(t, s.URL(), "w", "hang", nil).WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := send(t, r); err == nil {
			t.Error("an abandoned request was answered")
		}
	}()
	if _, err := s.WaitBegin(within(t), "w"); err != nil {
		t.Fatal(err)
	}
	cancel()
	rec, err := s.WaitEnd(within(t), "w")
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if !rec.Cancelled {
		t.Error("the record does not say that the caller left")
	}
}

func TestADialToADeafUpstreamHangsUntilItIsReleased(t *testing.T) {
	d, err := upstream.NewDeaf()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if c, err := net.DialTimeout("tcp", d.Addr(), 100*time.Millisecond); err == nil {
		_ = c.Close()
		t.Fatal("the dial went through")
	}
	d.Release()
	if _, err := send(t, request(t, d.URL(), "w", "", nil)); err != nil {
		t.Fatal(err)
	}
	if d.Executed("w") != 1 || d.Fillers() == 0 {
		t.Errorf("executed %d, fillers %d", d.Executed("w"), d.Fillers())
	}
}

func TestADyingUpstreamExecutesTheSecondRequestAndSaysNothing(t *testing.T) {
	d, err := upstream.NewDying()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for nth, id := range []string{"a", "b"} {
		if err := request(t, d.URL(), id, "", strings.NewReader("x")).Write(c); err != nil {
			t.Fatal(err)
		}
		_, err := http.ReadResponse(in, nil)
		if (nth == 0) != (err == nil) {
			t.Errorf("request %d: %v", nth+1, err)
		}
		if nth == 0 {
			if _, err := in.Discard(2); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.Seen(id); len(got) != 1 || got[0] != nth+1 {
			t.Errorf("request %d was seen as %v", nth+1, got)
		}
	}
}

func TestAMuteUpstreamHearsTheBytesAndNeverAnswers(t *testing.T) {
	m, err := upstream.NewMute()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(m.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hi"); err != nil {
		t.Fatal(err)
	}
	<-m.Arrivals()
	if m.Received() != 2 {
		t.Errorf("received %d bytes, want 2", m.Received())
	}
}
