package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func TestARepeatedCallIsNotMadeAgain(t *testing.T) {
	s := &calls{}
	f := newCallFixture(t, s, keeping)
	c := f.client()
	key := []string{"idempotency-key", "k"}
	wantCall(t, call(fencedCall("j", "1", key...), c, "amount=1"), codes.OK, "forwarded", "", "applied")
	// The reply is not kept: it is nothing without its trailers.
	wantCall(t, call(fencedCall("j", "2", key...), c, "amount=1"), codes.Aborted, "refused", "already-applied", "")
	wantCall(t, call(fencedCall("j", "2", key...), c, "amount=2"), codes.InvalidArgument, "refused", "key-reused", "")
	stream, err := c.FullDuplexCall(fencedCall("j", "2", key...))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantCall(t, called{err: err, trailer: stream.Trailer()}, codes.InvalidArgument, "refused", "key-reused", "")
	if n := s.count.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
}

func TestARepeatedStreamIsToldWithoutBeingHeardOut(t *testing.T) {
	f := newCallFixture(t, &calls{}, keeping, func(r *Route) { r.IdleTimeout = time.Hour })
	c := f.client()
	for i := range 2 {
		stream, err := c.FullDuplexCall(fencedCall("j", "1", "idempotency-key", "k"))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pb.StreamingOutputCallRequest{})
		_, err = stream.Recv()
		if i == 1 {
			wantCall(t, called{err: err, trailer: stream.Trailer()}, codes.Aborted, "refused", "already-applied", "")
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
		if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
}

// eager is a client that repeats whatever a server leaves it to.
const eager = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s",
	"backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE", "UNKNOWN", "ABORTED", "FAILED_PRECONDITION", "INTERNAL"]}}]}`

func TestAnEagerClientDoesNotRepeatWhatMayHaveBeenDone(t *testing.T) {
	executed := make(chan struct{}, 10)
	url := newPeerUpstream(t, func(p *peer) {
		if _, ok := p.request(); ok {
			executed <- struct{}{}
		}
	})
	f := newFixture(t, url, overHTTP2)
	got := call(fencedCall("j", "1"), f.client(grpc.WithDefaultServiceConfig(eager)), "x")
	wantCall(t, got, codes.Unknown, "refused", "upstream-failed", "unknown")
	if len(executed) != 1 {
		t.Errorf("executed %d times", len(executed))
	}
}

func TestAnEagerClientComesBackWhenNothingWasDone(t *testing.T) {
	tries := 0
	url := newPeerUpstream(t, func(p *peer) {
		for {
			stream, ok := p.request()
			if !ok {
				return
			}
			if tries++; tries == 1 {
				_ = p.fr.WriteRSTStream(stream, 7) // REFUSED_STREAM
				return
			}
			p.reply(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
		}
	})
	f := newFixture(t, url, overHTTP2)
	c := f.client(grpc.WithDefaultServiceConfig(eager))
	got := call(fencedCall("j", "1"), c, "x")
	// It has a status and no message, which a unary client does not like.
	if tries != 2 || got.one("fence-outcome") != "applied" {
		t.Errorf("%d tries, %v, trailer %v", tries, got.err, got.trailer)
	}
}

func TestACallerThatHangsUpDoesNotCancelItsCall(t *testing.T) {
	arrived, release := make(chan string, 10), make(chan struct{})
	s := holding(arrived, release)
	f := newCallFixture(t, s)
	ctx, hangUp := context.WithCancel(fencedCall("j", "1"))
	a := startCall(ctx, f.client(), "slow")
	<-arrived
	hangUp()
	<-a
	<-(<-f.contexts).Done() // the server has noticed
	close(release)
	eventually(t, "the outcome is counted as applied", func() bool {
		return strings.Contains(f.scrape(), `fenceproxy_outcomes_total{outcome="applied",route="default"} 1`)
	})
}

func TestAStreamWithoutACallerEndsWithItsTimeout(t *testing.T) {
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		for {
			select {
			case <-stream.Context().Done():
				return stream.Context().Err()
			case <-time.After(time.Millisecond): // an upstream that talks for ever
				_ = stream.Send(&pb.StreamingOutputCallResponse{})
			}
		}
	}}, func(r *Route) { r.Timeout = time.Second })
	ctx, hangUp := context.WithCancel(fencedCall("j", "1"))
	stream, err := f.client().FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	hangUp()
	eventually(t, "the outcome is counted as unknown", func() bool {
		return strings.Contains(f.scrape(), `fenceproxy_outcomes_total{outcome="unknown",route="default"} 1`)
	})
}

func TestGRPCWebPassesAsOrdinaryHTTP(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	})
	f := newFixture(t, u.URL)
	r := f.request("j", "1", strings.NewReader("message"))
	r.Header.Set("Content-Type", "application/grpc-web+proto")
	got := f.send(r)
	want(t, got, 200, "forwarded", "", "applied")
	if got.body != "message" {
		t.Errorf("got %q", got.body)
	}
	stale := f.request("j", "0", nil)
	stale.Header.Set("Content-Type", "application/grpc-web")
	want(t, f.send(stale), 400, "refused", "fence-invalid", "")
}
