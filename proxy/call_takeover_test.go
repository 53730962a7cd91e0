package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// holding is a service whose unary calls wait if they say so.
func holding(arrived chan string, release <-chan struct{}) *calls {
	return &calls{unary: func(_ context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		arrived <- string(in.Payload.Body)
		if string(in.Payload.Body) == "slow" {
			<-release
		}
		return &pb.SimpleResponse{Payload: in.Payload}, nil
	}}
}

func TestANewerCallWaitsForAUnaryOneThatWasSentWhole(t *testing.T) {
	arrived, release := make(chan string, 10), make(chan struct{})
	f := newCallFixture(t, holding(arrived, release))
	f.claim("j")
	c := f.client()
	a := startCall(fencedCall("j", "1"), c, "slow")
	<-arrived
	f.takeOver("j")
	b := startCall(fencedCall("j", "2"), c, "quick")
	eventually(t, "B waits", func() bool { return len(f.contexts) == 2 })
	select {
	case what := <-arrived:
		t.Fatalf("%q reached the upstream before A was answered", what)
	case <-b:
		t.Fatal("B was answered before A")
	case <-time.After(50 * time.Millisecond): // long enough for a broken barrier to show
	}
	close(release)
	got := <-a
	wantCall(t, got, codes.OK, "forwarded", "", "applied")
	wantCall(t, <-b, codes.OK, "forwarded", "", "applied")
}

func TestACallThatWaitedTooLongIsUnavailable(t *testing.T) {
	arrived, release := make(chan string, 10), make(chan struct{})
	defer close(release)
	f := newCallFixture(t, holding(arrived, release), func(r *Route) { r.TakeoverWait = 20 * time.Millisecond })
	f.claim("j")
	c := f.client()
	startCall(fencedCall("j", "1"), c, "slow")
	<-arrived
	f.takeOver("j")
	got := call(fencedCall("j", "2"), c, "quick")
	wantCall(t, got, codes.Unavailable, "refused", "takeover-pending", "")
	if got.one("grpc-retry-pushback-ms") != "1000" {
		t.Errorf("trailer %v", got.trailer)
	}
}

func TestAStreamThatIsStillSendingIsCutAtTheTakeover(t *testing.T) {
	ended := make(chan error, 10)
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		err := (&calls{}).FullDuplexCall(stream)
		<-stream.Context().Done()
		ended <- err
		return err
	}})
	f.claim("j")
	c := f.client()
	stream, err := c.FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte("one")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	f.takeOver("j")
	// The head has gone out, so the refusal is in the trailers.
	_, err = stream.Recv()
	head, _ := stream.Header()
	wantCall(t, called{err: err, head: head, trailer: stream.Trailer()}, codes.FailedPrecondition, "forwarded", "stale-generation", "unknown")
	if err := <-ended; err == nil {
		t.Error("the upstream took the cut stream for a whole one")
	}
	wantCall(t, call(fencedCall("j", "2"), c, "x"), codes.OK, "forwarded", "", "applied")
	if metrics := f.scrape(); !strings.Contains(metrics, `fenceproxy_rejections_total{code="stale-generation",route="default"} 1`) {
		t.Error("the cut was not counted")
	}
}

func TestAClientStreamIsCutBeforeItWasAnswered(t *testing.T) {
	arrived := make(chan struct{}, 1)
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		_, err := stream.Recv()
		arrived <- struct{}{}
		for err == nil {
			_, err = stream.Recv()
		}
		return err
	}})
	f.claim("j")
	c := f.client()
	stream, err := c.FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{})
	<-arrived
	f.takeOver("j")
	_, err = stream.Recv()
	wantCall(t, called{err: err, trailer: stream.Trailer()}, codes.FailedPrecondition, "refused", "stale-generation", "unknown")
	wantCall(t, call(fencedCall("j", "2"), c, "x"), codes.OK, "forwarded", "", "applied")
}

func TestACallerThatDoesNotReadItsMessagesDoesNotHoldTheTakeoverBack(t *testing.T) {
	arrived := make(chan struct{})
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		close(arrived)
		for {
			if err := stream.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 64<<10)}}); err != nil {
				return err
			}
		}
	}}, func(r *Route) { r.TakeoverWait = 5 * time.Second })
	f.claim("j")
	c := f.client()
	stream, err := c.FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{})
	<-arrived
	f.takeOver("j")
	wantCall(t, call(fencedCall("j", "2"), f.client(), "x"), codes.OK, "forwarded", "", "applied")
}

func TestACallThatEndsWhileItsCallerSendsIsSettledByItsStatus(t *testing.T) {
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		return stream.Send(&pb.StreamingOutputCallResponse{Payload: in.Payload}) // has heard enough
	}})
	f.claim("j")
	c := f.client()
	stream, err := c.FullDuplexCall(fencedCall("j", "1", "idempotency-key", "k"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if !errors.Is(err, io.EOF) || stream.Trailer().Get("fence-outcome")[0] != "applied" {
		t.Errorf("%v, trailer %v", err, stream.Trailer())
	}
	f.takeOver("j")
	wantCall(t, call(fencedCall("j", "2"), c, "x"), codes.OK, "forwarded", "", "applied")
}

func TestADrainThatIsOverTellsAStream(t *testing.T) {
	f := newCallFixture(t, &calls{})
	stream, err := f.client().FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.proxy.Drain(ctx)
	_, err = stream.Recv()
	head, _ := stream.Header()
	wantCall(t, called{err: err, head: head, trailer: stream.Trailer()}, codes.Unknown, "forwarded", "upstream-failed", "unknown")
}

func TestAnUploadPastBothHTTP2SidesIsCutAtTheTakeover(t *testing.T) {
	// By a caller of HTTP/2 as well: its stream is refused, and its connection lives on.
	ended := make(chan error, 1)
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Slow") != "" {
			ended <- err
		}
	})
	f := newFixture(t, u.URL, overHTTP2, func(r *Route) { r.BodyBuffer = 1000 })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	caller := &http.Transport{Protocols: protocols}
	defer caller.CloseIdleConnections()
	f.claim("j")
	pr, pw := io.Pipe()
	defer func() { _ = pw.Close() }()
	r := f.request("j", "1", pr)
	r.Header.Set("X-Slow", "1")
	a := make(chan reply, 1)
	go func() {
		res, err := caller.RoundTrip(r)
		if err != nil {
			a <- reply{err: err}
			return
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		a <- reply{Response: res, body: string(b), err: err}
	}()
	if _, err := pw.Write(make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	<-u.arrived
	f.takeOver("j")
	want(t, <-a, 412, "refused", "stale-generation", "unknown")
	if err := <-ended; err == nil {
		t.Error("the upstream took the cut upload for a whole one")
	}
	for i := range 3 {
		var again bool
		r := f.request("j", "2", strings.NewReader(fmt.Sprint(i)))
		r = r.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { again = c.Reused }}))
		res, err := caller.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if !again {
			t.Error("the refusal cost the caller its connection")
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Errorf("got %s %d", res.Proto, res.StatusCode)
		}
	}
}

// lateCloser is a sender whose replies are closed only when the test says so.
type lateCloser struct {
	Sender
	open chan struct{}
}

func (l *lateCloser) Send(req *http.Request, s *Send) (*http.Response, error) {
	res, err := l.Sender.Send(req, s)
	if err == nil {
		res.Body = lateBody{res.Body, l.open}
	}
	return res, err
}

type lateBody struct {
	io.ReadCloser
	open chan struct{}
}

// Close implements io.Closer.
func (b lateBody) Close() error {
	<-b.open
	return b.ReadCloser.Close()
}

func TestACallThatWasAnsweredEarlyIsBrokenOffBeforeItIsSettled(t *testing.T) {
	closed := make(chan struct{}, 2)
	url := newPeerUpstream(t, func(p *peer) {
		if stream, _, ok := p.open(); ok {
			p.reply(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5")
			_, _ = io.Copy(io.Discard, readFrames{p.fr})
			closed <- struct{}{}
		}
	})
	l := &lateCloser{open: make(chan struct{})}
	f := newFixture(t, url, func(r *Route) { l.Sender = NewHTTP2Sender(r.Upstream, nil, 8); r.Sender = l })
	defer close(l.open)
	f.claim("j")
	stream, err := f.client().FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{}) // and goes on sending
	eventually(t, "the call is settled", func() bool {
		return strings.Contains(f.scrape(), `fenceproxy_outcomes_total{outcome="declined",route="default"} 1`)
	})
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("it is settled, and more of it can reach the upstream")
	}
}

func TestTheStatusInTheHeadOfACallThatGoesOnCountsForNothing(t *testing.T) {
	for status, outcome := range map[string]string{"13": "unknown", "5": "declined"} {
		url := saying(t, func(p *peer, stream uint32) {
			p.reply(stream, false, ":status", "200", "content-type", "application/grpc", "content-length", "0", "grpc-status", "0")
			p.reply(stream, true, "grpc-status", status)
		})
		f := newFixture(t, url, overHTTP2)
		call(fencedCall("j", "1"), f.client(), "x")
		eventually(t, "the outcome is counted", func() bool {
			return strings.Contains(f.scrape(), `fenceproxy_outcomes_total{outcome="`+outcome+`",route="default"} 1`)
		})
	}
}
