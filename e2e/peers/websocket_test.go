//go:build linux

package peers_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// socketStage is wsdump before the proxy, and a server that echoes behind it.
type socketStage struct{ *stage }

func openSockets(t *testing.T, route ...string) *socketStage {
	t.Helper()
	addr := serve(t, short(t), "websocket-server", "-addr", "127.0.0.1:0")
	return &socketStage{open(t, openValve(t, "tcp", addr), route...)}
}

// dialogue is wsdump with an open connection: it sends each line that it is told, and prints what it gets.
type dialogue struct {
	*process
	input *os.File
}

func (s *socketStage) dial(l daemon.Lease) *dialogue {
	s.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = in.Close() })
	args := []string{"-r", "--eof-wait", "1", "--headers", fmt.Sprintf("Fence-Job-Id: %s,Fence-Generation: %d", l.Job, l.Generation), "ws://" + s.proxy.DataAddr() + "/m"}
	d := &dialogue{launchReading(s.T, s.home, nil, out, "wsdump", args...), in}
	_ = out.Close() // the process has its own
	return d
}

func (d *dialogue) say(text string) {
	d.t.Helper()
	if _, err := d.input.WriteString(text + "\n"); err != nil {
		d.t.Fatalf("write to wsdump: %v", err)
	}
}

func (d *dialogue) hears(text string) {
	d.t.Helper()
	until(d.t, "wsdump gets "+text[:min(len(text), 20)], func() bool {
		if d.over() {
			d.t.Fatalf("wsdump ended: %s", d.said())
		}
		return strings.Contains(d.printed(), text+"\n")
	})
}

func TestATakeoverCutsAWebSocket(t *testing.T) {
	s := openSockets(t, "websocket: true")
	older := s.claim("chat", "a")
	a := s.dial(older)
	long := strings.Repeat("long ", 40_000)
	for _, text := range []string{"hello", long, "again"} {
		a.say(text)
		a.hears(text)
	}

	newer := s.takeOver("chat", "b")
	s.until("the older connection is cut", func() bool { return s.valve.connections() == 0 })
	before := s.valve.passed()
	a.say("late")
	if err := a.input.Close(); err != nil {
		t.Fatal(err)
	}
	if out := s.ends(a); strings.Contains(out, "late") {
		t.Errorf("the older worker went on: %s", out)
	}
	again := s.dial(older)
	if out := s.ends(again); !strings.Contains(out, "412") {
		t.Errorf("wsdump does not say why: %s", out)
	}
	if now := s.valve.passed(); now != before {
		t.Errorf("%d bytes of the older worker reached the server", now-before)
	}
	b := s.dial(newer)
	b.say("hello")
	b.hears("hello")
	if err := b.input.Close(); err != nil {
		t.Fatal(err)
	}
	b.succeeds()
	s.until("the connection has ended", func() bool { return s.metric(`fenceproxy_in_flight{route="test"}`) == 0 })
}

// ends waits for the end of a dialogue that failed. wsdump mostly prints an error and exits with 0.
func (s *socketStage) ends(d *dialogue) string {
	s.Helper()
	d.exit()
	return d.said()
}

func TestAWebSocketGoesThroughTheForwarderOfRun(t *testing.T) {
	s := openSockets(t, "websocket: true")
	p := s.start(nil, "fenceproxy", "run", "--job", "chat", "--", "sh", "-ec", `echo hello | wsdump -r --eof-wait 5 "ws://${FENCE_PROXY_URL#http://}/m"`)
	if out := p.succeeds(); !strings.Contains(out, "hello") {
		t.Errorf("nothing came back: %s", p.said())
	}
}

func TestAWebSocketGoesOnlyWhereTheRouteSaysSo(t *testing.T) {
	s := openSockets(t)
	if out := s.ends(s.dial(s.claim("chat", "a"))); !strings.Contains(out, "400") {
		t.Errorf("wsdump was let through: %s", out)
	}
	if n := s.valve.passed(); n != 0 {
		t.Errorf("the server got %d bytes", n)
	}
}
