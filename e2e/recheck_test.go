package e2e_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// A WebSocket is open for as long as its caller likes. Who has lost the right to it must not keep it.
func TestAWebSocketEndsWhenAReloadTakesItsWritersAccessAway(t *testing.T) {
	t.Parallel()
	auth := func(name string) []byte {
		return []byte("principals:\n  - {name: " + name + ", certificate: " + name + ", roles: [worker]}\n")
	}
	for name, c := range map[string]struct {
		change func(p *pki, s *daemon.Settings)
		code   string // why it is cut; empty: it is not
	}{
		"the principal": {func(p *pki, _ *daemon.Settings) { file(p.t, p.dir, "auth.yaml", auth("other")) }, "forbidden"},
		"the authority": {func(p *pki, s *daemon.Settings) { s.Top[1] = strings.ReplaceAll(s.Top[1], p.ca, newPKI(p.t).ca) }, "unauthenticated"},
		"the route":     {func(_ *pki, s *daemon.Settings) { s.Route = append(s.Route, "hosts: [elsewhere]") }, "no-route"},
		"nothing":       {func(_ *pki, s *daemon.Settings) { s.Top = append(s.Top, "drain: 7s") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPKI(t)
			who := file(t, p.dir, "auth.yaml", auth("writer"))
			certFile, keyFile := p.issue("server")
			u := newSocketServer(t)
			s := onStage(t, nil, daemon.Settings{
				Upstream: "http://" + u.lis.Addr().String(), Route: []string{"websocket: true"},
				Top: []string{fmt.Sprintf("auth: {file: %q}", who), fmt.Sprintf("tls: {cert_file: %q, key_file: %q, client_ca_file: %q}", certFile, keyFile, p.ca)},
			})
			conn, err := tls.Dial("tcp", s.proxy.DataAddr(), p.client("writer"))
			if err != nil {
				t.Fatal(err)
			}
			br, res := s.socketOn(conn, daemon.Lease{Job: "job", Generation: 1}, "")
			if res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %d %v", res.StatusCode, res.Header)
			}
			s.reads(br, "\x81\x05hello")
			s.reload(func(d *daemon.Settings) { c.change(p, d) })
			if c.code == "" {
				s.say(conn, "\x81\x05later")
				s.reads(br, "\x81\x05later")
				return
			}
			if err := <-u.ended; err == nil {
				t.Error("the upstream saw a proper end")
			}
			if _, err := br.ReadByte(); err == nil {
				t.Error("the caller's connection is still open")
			}
			s.logged(`"msg":"tunnel ended"`, 1)
			for _, line := range []string{`"msg":"cut after a reload","code":"` + c.code + `"`, `"outcome":"unknown"`} {
				if !strings.Contains(s.proxy.Logs(), line) {
					t.Errorf("the log has not %s", line)
				}
			}
		})
	}
}

func TestACallThatIsStillSendingEndsWithItsRouteAndAWriteThatWasSentDoesNot(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.claim("one", "A", long), s.claim("two", "A", long)
	short := s.start(write(a, "short", "hang"))
	s.arrives("short")
	c := s.speak2()
	head := fenced2(b, "call").with("content-type", "application/grpc", "te", "trailers")
	call, err := c.open(head, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteData(call, false, []byte("\x00\x00\x00\x00\x01x")); err != nil {
		t.Fatal(err)
	}
	s.arrives("call")
	s.reload(func(d *daemon.Settings) { d.Route = []string{"hosts: [elsewhere]"} })
	if status, err := c.answer(call); err != nil || status != 200 { // a refusal in gRPC's form
		t.Errorf("the call got %d, %v", status, err)
	}
	if rec, err := s.up.WaitEnd(s.soon(), "call"); err != nil || rec.Complete {
		t.Errorf("the upstream took the cut call for a whole one: %+v, %v", rec, err)
	}
	s.metricIs(`fenceproxy_rejections_total{code="no-route",route="test"}`, 1)
	s.metricIs(`fenceproxy_outcomes_total{outcome="unknown",route="test"}`, 1)
	s.up.Release("short")
	s.forwarded(short.answer(), 200, "applied")
}
