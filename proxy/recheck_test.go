package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// reload goes over to other routes and principals as the program does.
func (f *fixture) reload(who *auth.Principals, routes ...Route) {
	f.t.Helper()
	if err := f.proxy.SetRoutes(routes, 0, who); err != nil {
		f.t.Fatal(err)
	}
	f.proxy.Recheck()
}

// workers are principals that certificates name. Each has a namespace and one prefix.
func workers(t *testing.T, role auth.Role, namespace, prefix string, names ...string) *auth.Principals {
	t.Helper()
	var all []auth.Entry
	for _, name := range names {
		all = append(all, auth.Entry{Name: "principal-" + name, Certificate: name, Namespace: namespace, Roles: role, Jobs: []string{prefix}})
	}
	ps, err := auth.New(all, true)
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// socketAs opens a WebSocket over TLS, with a certificate.
func (f *doorFixture) socketAs(name string) *bufio.Reader {
	f.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(f.tls.Certificate())
	c, err := tls.Dial("tcp", f.tls.Listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "example.com", Certificates: []tls.Certificate{f.ca.client(name)}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, handshake("1")); err != nil {
		f.t.Fatal(err)
	}
	br := bufio.NewReader(c)
	if res := head(f.t, br); res.StatusCode != http.StatusSwitchingProtocols {
		f.t.Fatalf("got %d %q", res.StatusCode, res.Header.Get("Fence-Reason"))
	}
	return br
}

func TestATunnelEndsWhenAReloadShutsItsWriterOut(t *testing.T) {
	all := func(t *testing.T) *auth.Principals { return workers(t, auth.Worker, "a", "", "a") }
	same := func(t *testing.T, url string, change ...func(*Route)) Route {
		return routeTo(t, "default", "/", url, append([]func(*Route){sockets}, change...)...)
	}
	for name, c := range map[string]struct {
		who    func(t *testing.T) *auth.Principals
		routes func(t *testing.T, url string) []Route
		admits bool
		code   string // empty: it stays
	}{
		"all is as it was": {all, nil, true, ""},
		"the principal is gone": {
			func(t *testing.T) *auth.Principals { return workers(t, auth.Worker, "a", "", "b") }, nil, true, "forbidden"},
		"it is no worker any more": {
			func(t *testing.T) *auth.Principals { return workers(t, auth.Viewer, "a", "", "a") }, nil, true, "forbidden"},
		"the job is not its own any more": {
			func(t *testing.T) *auth.Principals { return workers(t, auth.Worker, "a", "other/", "a") }, nil, true, "forbidden"},
		"it has another namespace": {
			func(t *testing.T) *auth.Principals { return workers(t, auth.Worker, "b", "", "a") }, nil, true, "forbidden"},
		"its authority is gone": {all, nil, false, "unauthenticated"},
		"its route is gone": {all, func(t *testing.T, url string) []Route {
			return []Route{routeTo(t, "default", "/other", url, sockets)}
		}, true, "no-route"},
		"another route is there for it": {all, func(t *testing.T, url string) []Route {
			return []Route{same(t, url), routeTo(t, "live", "/live", url, sockets)}
		}, true, "no-route"},
		"its route takes no WebSocket any more": {all, func(t *testing.T, url string) []Route {
			return []Route{routeTo(t, "default", "/", url)}
		}, true, "request-invalid"},
		"its route does not fence any more": {nil, func(t *testing.T, url string) []Route {
			return []Route{same(t, url, func(r *Route) { r.Fencing = FencingOff })}
		}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := newSocketUpstream(t, nil, frame(opText, "hello", false), nil)
			f := newDoorFixture(t, u.url, true, sockets)
			var admits atomic.Bool
			admits.Store(true)
			f.proxy.admits = func(*tls.ConnectionState) bool { return admits.Load() }
			br := f.socketAs("a")
			wantFrame(t, br, opText, "hello")
			upstream := <-u.opened
			var who *auth.Principals
			if c.who != nil {
				who = c.who(t)
			}
			routes := []Route{same(t, u.url)}
			if c.routes != nil {
				routes = c.routes(t, u.url)
			}
			admits.Store(c.admits)
			f.reload(who, routes...)
			if c.code == "" {
				eventually(t, "it was looked at", func() bool { return f.proxy.looked() })
				if _, err := upstream.Write(frame(opText, "still", false)); err != nil {
					t.Fatal(err)
				}
				wantFrame(t, br, opText, "still")
				return
			}
			if err := <-u.ended; err == nil {
				t.Error("the upstream saw a proper end")
			}
			if _, err := br.ReadByte(); err == nil {
				t.Error("the caller's connection is still open")
			}
			f.outcomes("unknown", 1)
			if logs := f.logs.String(); !strings.Contains(logs, `"msg":"cut after a reload","code":"`+c.code+`"`) {
				t.Errorf("the log says %s", logs)
			}
		})
	}
}

// looked reports whether all that lasts was held against the doors of now.
func (p *Proxy) looked() bool {
	for i := range p.underway.shards {
		if len(p.underway.shards[i].find((*exchange).unchecked)) > 0 {
			return false
		}
	}
	return true
}

func TestAnUnfencedTunnelEndsWhenItsRouteBeginsToFence(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	off := func(r *Route) { r.Fencing = FencingOff }
	f := newFixture(t, u.url, sockets, off)
	_, br, _ := f.socket("", nil)
	f.reload(nil, routeTo(t, "default", "/", u.url, sockets))
	if err := <-u.ended; err == nil {
		t.Error("the upstream saw a proper end")
	}
	if _, err := br.ReadByte(); err == nil {
		t.Error("the caller's connection is still open")
	}
}

func TestAWriteThatWasSentWholeEndsThoughItsRouteIsGone(t *testing.T) {
	arrived, release := make(chan string, 10), make(chan struct{})
	slow, let := held(t)
	for name, f := range map[string]*fixture{"HTTP": newFixture(t, slow.URL), "gRPC": newCallFixture(t, holding(arrived, release))} {
		f.claim("j")
		switch name {
		case "HTTP":
			a := f.start(f.request("j", "1", strings.NewReader("a")))
			<-slow.arrived
			f.reload(nil, routeTo(t, "other", "/other", slow.URL))
			f.proxy.underway.look()
			let()
			want(t, <-a, 200, "forwarded", "", "applied")
		case "gRPC":
			a := startCall(fencedCall("j", "1"), f.client(), "slow")
			<-arrived
			f.reload(nil, routeTo(t, "other", "/other", slow.URL))
			f.proxy.underway.look()
			close(release)
			wantCall(t, <-a, codes.OK, "forwarded", "", "applied")
		}
	}
}

func TestACallThatIsStillSendingIsCutWhenItsRouteIsGone(t *testing.T) {
	ended := make(chan error, 1)
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		err := (&calls{}).FullDuplexCall(stream)
		<-stream.Context().Done()
		ended <- err
		return err
	}})
	f.claim("j")
	stream, err := f.client().FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte("one")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	f.reload(nil, routeTo(t, "other", "/other", "http://127.0.0.1:1"))
	_, err = stream.Recv()
	head, _ := stream.Header()
	wantCall(t, called{err: err, head: head, trailer: stream.Trailer()}, codes.Unimplemented, "forwarded", "no-route", "unknown")
	if err := <-ended; err == nil {
		t.Error("the upstream took the cut stream for a whole one")
	}
	f.outcomes("unknown", 1)
}

func TestACallThatGoesOnAnsweringIsCutWhenItsRouteIsGone(t *testing.T) {
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				break // the caller has said all
			}
		}
		if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}})
	f.claim("j")
	stream, err := f.client().FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	f.reload(nil, routeTo(t, "other", "/other", "http://127.0.0.1:1"))
	_, err = stream.Recv()
	head, _ := stream.Header()
	wantCall(t, called{err: err, head: head, trailer: stream.Trailer()}, codes.Unimplemented, "forwarded", "no-route", "unknown")
}

func TestAnUploadIsCutWhenItsRouteIsGone(t *testing.T) {
	ended := make(chan error, 1)
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
	})
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		f := newFixture(t, u.URL, sender, func(r *Route) { r.BodyBuffer = 10 })
		f.claim("j")
		pr, pw := io.Pipe()
		defer func() { _ = pw.Close() }()
		a := f.start(f.request("j", "1", pr))
		if _, err := pw.Write(make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		<-u.arrived
		f.reload(nil, routeTo(t, "other", "/other", u.URL))
		got := <-a
		want(t, got, 404, "refused", "no-route", "unknown")
		if !strings.Contains(got.body, "cut while it was under way") {
			t.Errorf("got %s", got.body)
		}
		if err := <-ended; err == nil {
			t.Error("the upstream took the cut upload for a whole one")
		}
	})
}

func TestAReplyWithoutALengthIsCutAndOneWithALengthIsNot(t *testing.T) {
	const events, counted = "/events", "/counted"
	gate := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == counted {
			w.Header().Set("Content-Length", "2")
		}
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-gate:
			_, _ = io.WriteString(w, "b")
		case <-r.Context().Done():
		}
	})
	f := newFixture(t, u.URL)
	open := func(path string) *http.Response {
		res, err := f.server.Client().Get(f.server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return res
	}
	stream, finite := open(events), open(counted)
	f.reload(nil, routeTo(t, "other", "/other", u.URL))
	if b, err := io.ReadAll(stream.Body); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %q as if it were whole", b)
	}
	close(gate)
	if b, err := io.ReadAll(finite.Body); err != nil || string(b) != "b" {
		t.Errorf("got %q, %v", b, err)
	}
	_, _ = stream.Body.Close(), finite.Body.Close()
}

// A caller may be let in by the doors of before and begin to last when all is over.
func TestWhatBeginsToLastAfterAReloadIsLookedAtToo(t *testing.T) {
	u := newSocketUpstream(t, nil, nil, nil)
	f := newFixture(t, u.url, sockets)
	var admits atomic.Int64
	f.proxy.admits = func(*tls.ConnectionState) bool { admits.Add(1); return false }
	f.claim("j")
	_, br, _ := f.socket("1", nil)
	if _, err := br.ReadByte(); err == nil || admits.Load() == 0 {
		t.Error("the caller's connection is still open")
	}
}
