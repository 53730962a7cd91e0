package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/certs/certstest"
)

// held is a daemon before an upstream whose answers wait until they are let go.
func held(t *testing.T, top ...string) (r *rig, arrived <-chan struct{}, let func()) {
	t.Helper()
	began, release := make(chan struct{}), make(chan struct{})
	let = sync.OnceFunc(func() { close(release) })
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it is short
		began <- struct{}{}
		<-release
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(let)
	r = newRig(t)
	r.slow = slow.URL
	r.configure("  - name: slow\n    upstream: "+slow.URL+"\n", top...)
	return r, began, let
}

// drain begins to stop the daemon, and returns when that shows. The channel tells
// whether nothing was broken off.
func (r *rig) drain() <-chan bool {
	stopped := make(chan bool, 1)
	go func() { stopped <- r.stop() }()
	for !r.d.proxy.Draining() {
		runtime.Gosched() // it is set at once
	}
	return stopped
}

func TestARefusalOfADrainingProxySendsItsCallerAway(t *testing.T) {
	r, arrived, let := held(t)
	r.start()
	const request = "POST /x HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 1\r\n\r\nx"
	under, err := net.Dial("tcp", r.d.dataAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer under.Close()
	late, err := net.Dial("tcp", r.d.dataAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if _, err := io.WriteString(under, request); err != nil {
		t.Fatal(err)
	}
	<-arrived
	stopped := r.drain()
	if _, err := io.WriteString(late, request); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(late) // to the end of the connection, though the drain goes on
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503 ") || !strings.Contains(string(got), "\r\nConnection: close\r\n") ||
		!strings.Contains(string(got), "\r\nFence-Reason: overloaded\r\n") {
		t.Errorf("%v, got\n%s", err, got)
	}
	let()
	if got, err = io.ReadAll(under); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || !strings.HasSuffix(string(got), "done") {
		t.Errorf("%v, got\n%s", err, got)
	}
	if clean := <-stopped; !clean {
		t.Error("the drain broke something off")
	}
}

// On HTTP/2 all of a caller's requests share a connection: closing it, as a refusal on
// HTTP/1 does, would end those that are under way.
func TestStreamsOfOneHTTP2ConnectionEndBeforeTheProxyDoes(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	r, arrived, let := held(t, "tls: {cert_file: DIR/server.pem, key_file: DIR/server.key}")
	r.secure(ca, "server", nil)
	r.start()
	client, url := r.client(ca, true), "https://"+r.d.dataAddr()
	var under sync.WaitGroup
	for i := range 5 {
		under.Go(func() {
			if got := r.post(client, url, fmt.Sprintf("j%d", i)); got.StatusCode != 200 || got.body != "done" || got.ProtoMajor != 2 {
				t.Errorf("stream %d: %s %d %q", i, got.Proto, got.StatusCode, got.body)
			}
		})
		<-arrived
	}
	stopped := r.drain()
	for range 3 { // on the connection, or on another: each is refused, and none is cut
		if got := r.post(client, url, "late"); got.StatusCode != 503 || got.Header.Get("Fence-Reason") != "overloaded" {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
	let()
	under.Wait()
	if clean := <-stopped; !clean {
		t.Error("the drain broke something off")
	}
}

func TestAReloadChangesTheLimitsOfWritesInFlight(t *testing.T) {
	r, arrived, let := held(t)
	r.start()
	var under sync.WaitGroup
	under.Go(func() { r.post(http.DefaultClient, r.dataURL(), "j") })
	<-arrived
	refused := func(job, say string) {
		t.Helper()
		if got := r.post(http.DefaultClient, r.dataURL(), job); got.StatusCode != 503 || !strings.Contains(got.body, say) {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
	routes := strings.Replace(r.route("slow"), r.up.URL+"/slow", r.slow, 1)
	r.configure(routes, "limits: {max_in_flight_per_job: 1}")
	r.reload()
	refused("j", "too many writes of this job")
	r.configure(routes, "limits: {max_in_flight: 1}")
	r.reload()
	refused("k", "1 requests are being served already")
	r.configure(routes)
	r.reload()
	for _, job := range []string{"j", "k"} {
		under.Go(func() {
			if got := r.post(http.DefaultClient, r.dataURL(), job); got.StatusCode != 200 {
				t.Errorf("got %d %s", got.StatusCode, got.body)
			}
		})
		<-arrived
	}
	let()
	under.Wait()
}

// With nothing under way the drain is over at once. Were the idle connections closed at
// once as well, a caller whose request is on its way would have no answer, and could not
// tell whether it was taken.
func TestACallerWithAnIdleConnectionIsRefusedAndNotCutOff(t *testing.T) {
	r := newRig(t).start()
	r.d.away = time.Minute // or a busy machine would be too late
	c, err := net.Dial("tcp", r.d.dataAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	send := func() *http.Response {
		t.Helper()
		if _, err := io.WriteString(c, "POST /x HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 1\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		return res
	}
	if got := send(); got.StatusCode != 200 {
		t.Fatalf("got %d", got.StatusCode)
	}
	stopped := r.drain()
	if got := send(); got.StatusCode != 503 || !got.Close {
		t.Errorf("got %d, and the connection stays: %v", got.StatusCode, !got.Close)
	}
	if clean := <-stopped; !clean {
		t.Error("the drain broke something off")
	}
}
