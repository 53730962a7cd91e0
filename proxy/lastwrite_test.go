package proxy

import (
	"context"
	"net/http"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// stuckSender has its answer while its last write stands still, until it is let go.
type stuckSender struct {
	writing, letGo chan struct{}
	answer         http.Header
}

// Send implements Sender.
func (k stuckSender) Send(_ *http.Request, s *Send) (*http.Response, error) {
	if !s.Watcher.Gate() {
		return nil, errVetoed
	}
	s.mu.Lock()
	s.passed, s.writing = true, true
	s.mu.Unlock()
	s.Watcher.SentWhole()
	go func() {
		<-k.letGo
		s.wrote(true)
	}()
	close(k.writing)
	return &http.Response{StatusCode: 200, Header: k.answer, Body: http.NoBody}, nil
}

// CloseIdle implements Sender.
func (stuckSender) CloseIdle() {}

func TestAWriteWhoseLastBytesStandStillIsNotSettledByItsReply(t *testing.T) {
	for name, call := range map[string]bool{"a write": false, "a gRPC call": true} {
		t.Run(name, func(t *testing.T) {
			k := stuckSender{make(chan struct{}), make(chan struct{}), http.Header{}}
			if call {
				k.answer["Grpc-Status"] = []string{"0"}
			}
			f := newFixture(t, newUpstream(t, nil).URL, func(r *Route) { r.Sender = k })
			f.claim("j")
			r := f.request("j", "1", nil)
			if call {
				r.Header.Set("Content-Type", "application/grpc")
			}
			a := f.start(r)
			<-k.writing
			if _, err := f.authority.Revoke(context.Background(), tokens.Job{ID: "j"}, 0, ""); err != nil {
				t.Fatal(err)
			}
			g, err := f.authority.Claim(context.Background(), tokens.ClaimRequest{Job: tokens.Job{ID: "j"}, Owner: "b", TTL: 60_000}, 0, 5*lastWriteTime)
			if err != nil {
				t.Fatal(err)
			}
			if g.Predecessor == nil || g.Predecessor.InFlight != 1 {
				t.Errorf("the successor was told of %+v, while bytes of the older write could still go out", g.Predecessor)
			}
			close(k.letGo)
			want(t, <-a, 200, "forwarded", "", "applied")
		})
	}
}
