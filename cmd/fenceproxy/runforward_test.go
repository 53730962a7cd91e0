package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

// forwardTo starts a forwarder of a new lease to a proxy.
func forwardTo(t *testing.T, proxy string) (*forwarder, *leaseclient.Lease) {
	t.Helper()
	_, control := startControl(t)
	c, err := leaseclient.New(leaseclient.Config{Endpoint: control, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l, err := c.Claim(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	f, err := startForwarder(l, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f, l
}

func TestAPageThatSomebodyVisitsDoesNotWriteUnderTheLease(t *testing.T) {
	came := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came++ }))
	defer proxy.Close()
	f, _ := forwardTo(t, proxy.URL)
	for site, want := range map[string]int{"cross-site": 400, "same-site": 400, "same-origin": 200, "none": 200, "": 200} {
		before := came
		req, err := http.NewRequest(http.MethodPost, f.url+"/x", strings.NewReader("a"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://api.example") // as programs send it to APIs that want it
		if site != "" {
			req.Header.Set("Sec-Fetch-Site", site)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want || came-before != map[int]int{200: 1, 400: 0}[want] {
			t.Errorf("Sec-Fetch-Site %q: %d, %d came through", site, res.StatusCode, came-before)
		}
	}
}

func TestTheForwarderChangesNothingButTheFence(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusSeeOther)
		fmt.Fprintf(w, "%s %s host=%s job=%s gen=%s lease=%v ua=%q xff=%s key=%s enc=%q body=%s", r.Method, r.RequestURI, r.Host, h.Get("Fence-Job-Id"),
			h.Get("Fence-Generation"), h.Get("Fence-Lease") != "", h.Get("User-Agent"), h.Get("X-Forwarded-For"), h.Get("Idempotency-Key"), h.Get("Accept-Encoding"), body)
	}))
	defer proxy.Close()
	f, _ := forwardTo(t, proxy.URL)
	own := strings.TrimPrefix(f.url, "http://")
	behind := strings.TrimPrefix(proxy.URL, "http://")
	for _, c := range []struct{ host, want string }{{own, behind}, {"api.example", "api.example"}} {
		conn, err := net.Dial("tcp", own)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /a%%2Fb//c?x=1;y=%%zz HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nX-Forwarded-For: 10.0.0.1\r\nIdempotency-Key: k\r\n"+
			"Fence-Generation: 99\r\nFence-Job-Id: other\r\n\r\nhi", c.host)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if want := `POST /a%2Fb//c?x=1;y=%zz host=` + c.want + ` job=job gen=1 lease=true ua="" xff=10.0.0.1 key=k enc="" body=hi`; err != nil || string(got) != want {
			t.Errorf("got  %s\nwant %s, %v", got, want, err)
		}
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/elsewhere" {
			t.Errorf("a redirect came back as %s", resp.Status)
		}
		_ = conn.Close()
	}
}

func TestTheForwarderStreamsBothBodies(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "got "+line)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer proxy.Close()
	f, _ := forwardTo(t, proxy.URL)
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, body)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(feed, "one\n") }()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := bufio.NewReader(resp.Body)
	for _, want := range []string{"got one\n", "got two\n"} { // the second is sent when the first has come back
		if got, err := out.ReadString('\n'); got != want || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		if want == "got one\n" {
			_, _ = io.WriteString(feed, "two\n")
		}
	}
	_ = feed.Close()
}

// A proxy that takes a request on a kept connection and dies has perhaps acted.
func TestTheForwarderSendsNoWriteTwice(t *testing.T) {
	var posts atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost && posts.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer proxy.Close()
	f, _ := forwardTo(t, proxy.URL)
	for i, want := range []string{"200 ", "502 unknown"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["idempotency-key"] = []string{"k"} // in this spelling our own client does not repeat it either
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Fence-Outcome")); got != want {
			t.Errorf("answer %d: %q, want %q", i+1, got, want)
		}
	}
	if n := posts.Load(); n != 2 {
		t.Errorf("the proxy got %d writes of 2", n)
	}
}

func TestTheForwarderSaysWhyItDoesNotSend(t *testing.T) {
	var reached atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached.Add(1) }))
	f, l := forwardTo(t, proxy.URL)
	ask := func(method string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, f.url+"/x", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	proxy.Close()
	if resp := ask("POST"); resp.StatusCode != 502 || resp.Header.Get("Fence-Outcome") != "not-sent" {
		t.Errorf("an absent proxy: %s %v", resp.Status, resp.Header)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if resp := ask("POST"); resp.StatusCode != 412 || resp.Header.Get("Fence-Reason") != "stale-generation" || resp.Header.Get("Fence-Decision") != "refused" {
		t.Errorf("a released lease: %s %v", resp.Status, resp.Header)
	}
	if reached.Load() != 0 {
		t.Error("something was sent")
	}
}
