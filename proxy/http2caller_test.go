package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// http2Caller returns a client that speaks HTTP/2 to the proxy.
func http2Caller(t *testing.T) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func TestACallWhoseUpstreamFallsSilentIsToldWhatIsKnown(t *testing.T) {
	f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		err = stream.Send(&pb.StreamingOutputCallResponse{Payload: in.Payload})
		<-stream.Context().Done()
		return err
	}}, func(r *Route) { r.IdleTimeout = time.Second })
	stream, err := f.client().FullDuplexCall(fencedCall("j", "1"))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{})
	_ = stream.CloseSend()
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	head, _ := stream.Header()
	// A reset would be INTERNAL, say nothing of the outcome, and be repeated by some clients.
	wantCall(t, called{err: err, head: head, trailer: stream.Trailer()}, codes.Unknown, "forwarded", "upstream-failed", "unknown")
}

func TestPausesBelowTheIdleTimeoutDoNotResetACallersStream(t *testing.T) {
	// On HTTP/2 a write deadline strikes while nothing is written.
	const idle = 2 * time.Second
	pause := func() { time.Sleep(idle * 6 / 10) } // it is the upstream's pace that is tested
	for name, say := range map[string]http.HandlerFunc{
		"after a 1xx": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			pause()
			pause()
			pause()
			_, _ = io.WriteString(w, "ab")
		},
		"in the body": func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.Flush()
			pause()
			_, _ = io.WriteString(w, "a")
			_ = rc.Flush()
			pause()
			_, _ = io.WriteString(w, "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachSender(t, func(t *testing.T, sender func(*Route)) {
				t.Parallel() // they mostly pause
				u := newUpstream(t, say)
				f := newFixture(t, u.URL, sender, func(r *Route) { r.IdleTimeout = idle })
				res, err := http2Caller(t).RoundTrip(f.request("j", "1", strings.NewReader("x")))
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				want(t, reply{Response: res, body: string(b), err: err}, 200, "forwarded", "", "applied")
				if string(b) != "ab" {
					t.Errorf("got %q", b)
				}
			})
		})
	}
}
