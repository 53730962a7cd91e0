package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Whoever names a job can send bodies as slowly as it likes. Together they must not take all memory, and honest writes
// go on beside them.
func TestSlowBodiesKeepABoundedMemoryAndOthersAreStreamed(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL, func(r *Route) { r.StoreReply, r.MaxReply, r.Retention = true, 1<<10, time.Hour })
	f.proxy.mostKept = 256 << 10
	const callers, announced = 20, 100 << 10
	var conns []net.Conn
	for i := range callers {
		c, err := net.Dial("tcp", f.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "POST /slow HTTP/1.1\r\nHost: h\r\nFence-Job-Id: slow-%d\r\nFence-Generation: 1\r\nContent-Length: %d\r\n\r\n%s",
			i, announced, strings.Repeat("s", announced-1)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	// Those that found room wait for their last byte, the others have gone on to the upstream.
	eventually(t, "some are streamed", func() bool { return u.count() >= 5 })
	if kept := f.proxy.kept.Load(); kept > f.proxy.mostKept {
		t.Errorf("%d bytes are kept, more than %d", kept, f.proxy.mostKept)
	}
	body := bytes.Repeat([]byte("honest"), 20<<10)
	req, err := http.NewRequest(http.MethodPost, f.server.URL+"/honest", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Fence-Job-Id", "honest")
	req.Header.Set("Fence-Generation", "1")
	req.Header.Set("Idempotency-Key", "k")
	for _, decision := range []string{"forwarded", "replayed"} {
		req.Body, _ = req.GetBody()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("Fence-Decision") != decision {
			t.Errorf("%d %v, want %s", res.StatusCode, res.Header, decision)
		}
	}
	u.mu.Lock()
	whole := 0
	for _, b := range u.bodies {
		if bytes.Equal(b, body) {
			whole++
		}
	}
	u.mu.Unlock()
	if whole != 1 {
		t.Errorf("the body of the honest write came %d times, want once", whole)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "nothing is kept any more", func() bool { return f.proxy.kept.Load() == 0 })
}
