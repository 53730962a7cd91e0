package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	rpc "google.golang.org/grpc/status"
)

// calls is a gRPC service that does what a test tells it to.
type calls struct {
	pb.UnimplementedTestServiceServer
	url   string
	count atomic.Int64

	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	duplex func(pb.TestService_FullDuplexCallServer) error
}

// UnaryCall implements pb.TestServiceServer.
func (s *calls) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.count.Add(1)
	if s.unary != nil {
		return s.unary(ctx, in)
	}
	return &pb.SimpleResponse{Payload: in.Payload}, nil
}

// FullDuplexCall implements pb.TestServiceServer.
func (s *calls) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	s.count.Add(1)
	if s.duplex != nil {
		return s.duplex(stream)
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}

// newCalls serves s as gRPC's own server does.
func newCalls(t *testing.T, s *calls) *calls {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	pb.RegisterTestServiceServer(srv, s)
	var served sync.WaitGroup
	served.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() { srv.Stop(); served.Wait() })
	s.url = "http://" + ln.Addr().String()
	return s
}

// newCallFixture is a proxy in front of s.
func newCallFixture(t *testing.T, s *calls, change ...func(*Route)) *fixture {
	t.Helper()
	return newFixture(t, newCalls(t, s).url, append([]func(*Route){overHTTP2}, change...)...)
}

// client is gRPC's own client of the proxy.
func (f *fixture) client(opt ...grpc.DialOption) pb.TestServiceClient {
	f.t.Helper()
	c, err := grpc.NewClient(f.server.Listener.Addr().String(), append(opt, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return pb.NewTestServiceClient(c)
}

// fencedCall is a context whose calls carry a fence, and more metadata in pairs.
func fencedCall(job, generation string, more ...string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), append([]string{"fence-job-id", job, "fence-generation", generation}, more...)...)
}

// called is what a call came to.
type called struct {
	err           error
	head, trailer metadata.MD
	body          string
}

func (c called) one(name string) string {
	return strings.Join(append(c.head.Get(name), c.trailer.Get(name)...), ",")
}

func call(ctx context.Context, c pb.TestServiceClient, body string) (out called) {
	got, err := c.UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(body)}}, grpc.Header(&out.head), grpc.Trailer(&out.trailer))
	out.err = err
	if err == nil {
		out.body = string(got.Payload.GetBody())
	}
	return out
}

func startCall(ctx context.Context, c pb.TestServiceClient, body string) <-chan called {
	done := make(chan called, 1)
	go func() { done <- call(ctx, c, body) }()
	return done
}

// wantCall checks a call's status and what the proxy said beside it.
func wantCall(t *testing.T, c called, code codes.Code, decision, reason, outcome string) {
	t.Helper()
	if rpc.Code(c.err) != code || c.one("fence-decision") != decision || c.one("fence-reason") != reason || c.one("fence-outcome") != outcome {
		t.Fatalf("got %v decision=%q reason=%q outcome=%q, want %v %q %q %q\nhead %v\ntrailer %v",
			c.err, c.one("fence-decision"), c.one("fence-reason"), c.one("fence-outcome"), code, decision, reason, outcome, c.head, c.trailer)
	}
}

func TestWhatIsAGRPCCall(t *testing.T) {
	for media, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc;x=y": true, "Application/gRPC": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/json": false, "": false, "application/grp": false,
	} {
		r := &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {media}}}
		if got := isGRPC(r); got != want {
			t.Errorf("%q: %v", media, got)
		}
		if r.Method = http.MethodGet; isGRPC(r) {
			t.Errorf("a GET of %q is one", media)
		}
	}
}

func TestAUnaryCallIsSettledByItsStatus(t *testing.T) {
	outcomes := map[codes.Code]string{codes.OK: "applied"}
	for _, c := range []codes.Code{3, 5, 6, 7, 8, 9, 10, 11, 12, 16} {
		outcomes[c] = "declined"
	}
	for _, c := range []codes.Code{1, 2, 4, 13, 14, 15} {
		outcomes[c] = "unknown"
	}
	s := &calls{unary: func(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		var code codes.Code
		_, _ = fmt.Sscan(string(in.Payload.Body), &code)
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-sum", "1", "fence-outcome", "made-up"))
		return &pb.SimpleResponse{Payload: in.Payload}, rpc.Error(code, "told so")
	}, duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		// The status after a message, and so in trailers.
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		var code codes.Code
		_, _ = fmt.Sscan(string(in.Payload.Body), &code)
		_ = stream.Send(&pb.StreamingOutputCallResponse{Payload: in.Payload})
		return rpc.Error(code, "told so")
	}}
	f := newCallFixture(t, s)
	c := f.client()
	for code := range codes.Code(17) {
		got := call(fencedCall("j", "1"), c, fmt.Sprint(uint32(code)))
		wantCall(t, got, code, "forwarded", "", outcomes[code])
		if got.one("x-sum") != "1" || got.one("fence-generation") != "1" {
			t.Errorf("%v: head %v, trailer %v", code, got.head, got.trailer)
		}
		if code == codes.OK {
			continue
		}
		if rpc.Convert(got.err).Message() != "told so" {
			t.Errorf("%v: message %q", code, rpc.Convert(got.err).Message())
		}
		stream, err := c.FullDuplexCall(fencedCall("j", "1"))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: fmt.Append(nil, uint32(code))}})
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("%v: no message: %v", code, err)
		}
		_, err = stream.Recv()
		head, _ := stream.Header()
		wantCall(t, called{err: err, head: head, trailer: stream.Trailer()}, code, "forwarded", "", outcomes[code])
	}
}

func TestACallWithoutAStatusIsUnknown(t *testing.T) {
	for name, reply := range map[string]func(*peer, uint32){
		"no trailers": func(p *peer, stream uint32) {
			p.reply(stream, false, ":status", "200", "content-type", "application/grpc")
			_ = p.fr.WriteData(stream, true, nil)
		},
		"a status that is none": func(p *peer, stream uint32) {
			p.reply(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "+0")
		},
		"two of them": func(p *peer, stream uint32) {
			p.reply(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0", "grpc-status", "5")
		},
		"an unknown one": func(p *peer, stream uint32) {
			p.reply(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "17")
		},
		"the connection ends after the head": func(p *peer, stream uint32) {
			p.reply(stream, false, ":status", "200", "content-type", "application/grpc")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newPeerUpstream(t, func(p *peer) {
				if stream, ok := p.request(); ok {
					reply(p, stream)
				}
			}), overHTTP2)
			got := call(fencedCall("j", "1"), f.client(), "x")
			if got.err == nil || got.one("fence-outcome") != "unknown" {
				t.Errorf("got %v with %v %v", got.err, got.head, got.trailer)
			}
		})
	}
}

func TestAnHTTPStatusOfACallIsClassifiedAsEver(t *testing.T) {
	for code, outcome := range map[string]string{"404": "declined", "500": "unknown", "429": "declined"} {
		f := newFixture(t, newPeerUpstream(t, func(p *peer) {
			if stream, ok := p.request(); ok {
				p.reply(stream, true, ":status", code, "content-type", "text/plain")
			}
		}), overHTTP2)
		r := f.request("j", "1", strings.NewReader("\x00\x00\x00\x00\x00"))
		r.Header.Set("Content-Type", "application/grpc")
		got := f.send(r)
		if fmt.Sprint(got.StatusCode) != code || got.Header.Get("Fence-Outcome") != outcome {
			t.Errorf("%s: got %d %v", code, got.StatusCode, got.Header)
		}
	}
}

func TestARoutesOutcomesHoldForCallsToo(t *testing.T) {
	s := &calls{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return nil, rpc.Error(codes.Internal, "always")
	}}
	f := newCallFixture(t, s, func(r *Route) { r.Outcomes = map[int]tokens.Outcome{200: tokens.Declined} })
	wantCall(t, call(fencedCall("j", "1"), f.client(), "x"), codes.Internal, "forwarded", "", "declined")
}

func TestRefusalsOfCallsAreInTheirOwnForm(t *testing.T) {
	s := &calls{}
	f := newCallFixture(t, s, func(r *Route) { r.Path = "/grpc.testing.TestService/UnaryCall"; r.BodyMax = 1000 })
	f.claim("j")
	f.takeOver("j")
	c := f.client()
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		body   string
		code   codes.Code
		reason string
	}{
		{"stale", fencedCall("j", "1"), "x", codes.FailedPrecondition, "stale-generation"},
		{"unissued", fencedCall("j", "9"), "x", codes.FailedPrecondition, "unissued-generation"},
		{"without a fence", context.Background(), "x", codes.FailedPrecondition, "fence-required"},
		{"malformed", fencedCall("j", "01"), "x", codes.InvalidArgument, "fence-invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := call(tt.ctx, c, tt.body)
			wantCall(t, got, tt.code, "refused", tt.reason, "")
			if m := rpc.Convert(got.err).Message(); m == "" || got.one(strings.ToLower(wire.HeaderGRPCPushback)) != "-1" {
				t.Errorf("message %q, pushback %q", m, got.one(strings.ToLower(wire.HeaderGRPCPushback)))
			}
		})
	}
	stream, err := c.FullDuplexCall(fencedCall("j", "2"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantCall(t, called{err: err, trailer: stream.Trailer()}, codes.Unimplemented, "refused", "no-route", "")
	if n := s.count.Load(); n != 0 {
		t.Errorf("the upstream saw %d calls", n)
	}
	wantCall(t, call(fencedCall("j", "2"), c, strings.Repeat("x", 2000)), codes.InvalidArgument, "refused", "body-too-large", "unknown")
}

func TestMessagesOfAStreamPassAtOnce(t *testing.T) {
	for _, fencing := range []Fencing{FencingRequired, FencingOff} {
		f := newCallFixture(t, &calls{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
			if err := stream.SendHeader(metadata.Pairs("x-hello", "1")); err != nil {
				return err
			}
			return (&calls{}).FullDuplexCall(stream)
		}}, func(r *Route) { r.Fencing = fencing })
		ctx, cancel := context.WithTimeout(fencedCall("j", "1"), 10*time.Second)
		defer cancel()
		stream, err := f.client().FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// The head comes before the first message in either direction.
		if head, err := stream.Header(); err != nil || len(head.Get("x-hello")) != 1 {
			t.Fatalf("head %v, %v", head, err)
		}
		for i := range 10 {
			if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: fmt.Append(nil, i)}}); err != nil {
				t.Fatal(err)
			}
			if got, err := stream.Recv(); err != nil || string(got.Payload.Body) != fmt.Sprint(i) {
				t.Fatalf("message %d: %v, %v", i, got, err)
			}
		}
		_ = stream.CloseSend()
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v", err)
		}
		want := ""
		if fencing == FencingRequired {
			want = "applied"
		}
		if got := strings.Join(stream.Trailer().Get("fence-outcome"), ","); got != want {
			t.Errorf("outcome %q, want %q", got, want)
		}
	}
}
