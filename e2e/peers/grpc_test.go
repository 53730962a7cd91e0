//go:build linux

package peers_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// grpcStage is gRPC's own interoperability client before the proxy, and its server behind it.
type grpcStage struct {
	*stage
	host, port string
	cert       string
}

// openGRPC speaks one of the protocols on both sides of the proxy.
func openGRPC(t *testing.T, p protocol) *grpcStage {
	t.Helper()
	g := &grpcStage{}
	args, settings := []string{"-port", "0"}, daemon.Settings{Route: []string{"upstream_protocol: h2c"}}
	if p.scheme == "https" {
		var key string
		g.cert, key = certificate(t)
		args = append(args, "-use_tls", "-tls_cert_file", g.cert, "-tls_key_file", key)
		settings.Top = []string{fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", g.cert, key)}
		settings.Route = []string{"upstream_protocol: h2", fmt.Sprintf("upstream_tls: {ca_file: %q}", g.cert)}
	}
	v := openValve(t, "tcp", serve(t, short(t), "grpc-server", args...))
	settings.Upstream = strings.Replace(v.URL(), "http", p.scheme, 1)
	g.stage = openWith(t, v, settings)
	var err error
	if g.host, g.port, err = net.SplitHostPort(g.proxy.DataAddr()); err != nil {
		t.Fatal(err)
	}
	return g
}

// call runs one case of the client with the fence of a lease. It checks what it gets, and says what is wrong.
func (g *grpcStage) call(l daemon.Lease, name string, more ...string) *process {
	g.Helper()
	args := []string{"-server_host", g.host, "-server_port", g.port, "-test_case", name}
	if l.Job != "" {
		args = append(args, "-additional_metadata", fmt.Sprintf("fence-job-id:%s;fence-generation:%d", l.Job, l.Generation))
	}
	if g.cert != "" {
		args = append(args, "-use_tls", "-use_test_ca", "-ca_file", g.cert, "-server_host_override", "localhost")
	}
	return g.start(nil, "grpc-client", append(args, more...)...)
}

// refused checks with which status a call ended. A client that is still sending hears first that the stream is over; this one
// then does not ask why.
func (g *grpcStage) refused(p *process, status string) {
	g.Helper()
	if out := p.fails(); !strings.Contains(out, "code = "+status) && !strings.Contains(out, "error EOF while sending") {
		g.Errorf("the call did not end with %s: %s", status, out[:min(len(out), 500)])
	}
}

// grpcCases are those of the client: all kinds of calls, with everything that a reply can carry.
func grpcCases() []string {
	return []string{
		"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "cancel_after_begin",
		"cancel_after_first_response", "timeout_on_sleeping_server", "status_code_and_message", "special_status_message", "custom_metadata",
		"unimplemented_method", "unimplemented_service",
	}
}

func TestGRPCWorksThroughTheFenceUntilTheTakeover(t *testing.T) {
	for _, p := range protocols()[1:] {
		t.Run(p.name, func(t *testing.T) {
			g := openGRPC(t, p)
			older := g.claim("reports", "a")
			for _, name := range grpcCases() {
				g.call(older, name).succeeds()
			}
			newer := g.takeOver("reports", "b")
			bytes := g.atRest()
			for _, name := range []string{"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong"} {
				g.refused(g.call(older, name), "FailedPrecondition")
			}
			if now := g.valve.passed(); now != bytes {
				t.Errorf("the server got %d bytes of older calls", now-bytes)
			}
			for _, name := range []string{"empty_unary", "client_streaming", "ping_pong"} {
				g.call(newer, name).succeeds()
			}
			g.refused(g.call(daemon.Lease{}, "empty_unary"), "FailedPrecondition")
		})
	}
}

func TestATakeoverCutsACallOfGRPC(t *testing.T) {
	// The server allows 64 KiB at first, and each of these calls sends more.
	for i, name := range []string{"client_streaming", "ping_pong", "large_unary"} {
		t.Run(name, func(t *testing.T) {
			g := openGRPC(t, protocols()[1+i%2])
			older := g.claim("reports", "a")
			h := g.valve.holdBytes(2000)
			call := g.call(older, name)
			h.wait(t)
			newer := g.takeOver("reports", "b")
			g.refused(call, "FailedPrecondition")
			g.call(newer, name).succeeds()
			open := g.valve.connections()
			h.open()
			g.until("what was on its way has arrived, and the reset behind it", func() bool { return g.valve.connections() < open })
			g.refused(g.call(older, name), "FailedPrecondition")
			if n := g.refusedStale(); n < 2 {
				t.Errorf("%v calls were refused as stale, want 2", n)
			}
		})
	}
}

func TestATakeoverWaitsForACallOfGRPCThatWasSentWhole(t *testing.T) {
	for _, name := range []string{"empty_unary", "server_streaming"} {
		t.Run(name, func(t *testing.T) {
			g := openGRPC(t, protocols()[1])
			older := g.claim("reports", "a")
			g.call(older, "empty_unary").succeeds() // so that there is a connection
			h := g.valve.holdBytesOfReply()
			call := g.call(older, name)
			h.wait(t)
			g.until("the call is in flight", func() bool { return g.metric(`fenceproxy_in_flight{route="test"}`) == 1 })
			newer := g.takeOver("reports", "b")
			bytes := g.valve.passed()
			next := g.call(newer, "empty_unary")
			g.standsStill(bytes)
			h.open()
			call.succeeds()
			next.succeeds()
		})
	}
}
