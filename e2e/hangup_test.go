package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

func TestACallerWhoHangsUpDoesNotCancelItsWrite(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	ctx, hangUp := context.WithCancel(s.soon())
	w := s.startIn(ctx, write(l, "w", "hang"))
	s.arrives("w")
	hangUp()
	<-w.done
	if w.err == nil {
		t.Fatalf("the caller had left and got %s", show(w.a))
	}
	// A cancelled upstream request would end here by itself.
	short, cancel := context.WithTimeout(t.Context(), glance)
	defer cancel()
	if r, err := s.up.WaitEnd(short, "w"); err == nil {
		t.Errorf("the upstream was cancelled: %+v", r)
	}
	s.up.Release("w")
	if r := s.ends("w"); r.Cancelled || !r.Executed {
		t.Errorf("the upstream saw %+v", r)
	}
	series := fmt.Sprintf(`fenceproxy_outcomes_total{outcome="applied",route="%s"}`, daemon.Route)
	s.until("the outcome is counted as applied", func() bool {
		n, err := s.control.Metric(s.soon(), series)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
}

// TestAWriteIsNeverSentTwice tempts the HTTP client inside the proxy: a connection that was good once dies after the
// upstream has executed the second request on it. net/http sends such a request again if its body is empty and an
// idempotency key is there, or if its method is idempotent.
func TestAWriteIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	dying, err := upstream.NewDying()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dying.Close)
	s := onStage(t, nil, daemon.Settings{Upstream: dying.URL()})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, body := range []string{"", "amount=1"} {
			name := fmt.Sprintf("%s-%d", method, len(body))
			l := s.claim(name, "A", long)
			reused := false
			for i := 0; i < 20 && !reused; i++ {
				id := fmt.Sprintf("%s-%d", name, i)
				got := s.send(daemon.Write{Method: method, Job: l.Job, Generation: l.Generation, ID: id, Key: id,
					Body: []byte(body)})
				seen := dying.Seen(id)
				if len(seen) != 1 {
					t.Fatalf("%s: executed %d times, want once; the caller got %s", id, len(seen), show(got))
				}
				if reused = seen[0] == 2; !reused {
					s.forwarded(got, 200, "applied")
					continue
				}
				s.refusedAfterSending(got, 502, "upstream-failed")
			}
			if !reused {
				t.Errorf("%s: the proxy never used a connection twice, so nothing was proved", name)
			}
		}
	}
}

// refusedAfterSending checks an answer of the proxy that admits not to know what the upstream did.
func (s *stage) refusedAfterSending(a daemon.Answer, status int, code string) {
	s.Helper()
	s.refused(a, status, code)
	if a.Outcome() != "unknown" {
		s.Fatalf("want outcome unknown, got %s", show(a))
	}
}

func TestAnUpstreamThatIsNotThereGotNothing(t *testing.T) {
	t.Parallel()
	s := onStage(t, nil, daemon.Settings{Upstream: nobody})
	l := s.claim("job", "A", long)
	got := s.send(write(l, "w", ""))
	s.refused(got, 502, "upstream-unreachable")
	if got.Outcome() != "not-sent" || got.Text("retry") != "same-key" {
		t.Errorf("want not-sent and same-key, got %s", show(got))
	}
}

func TestAnUpstreamThatIsTooSlowIsUnknown(t *testing.T) {
	t.Parallel()
	s := open(t, "timeout: 1s")
	l := s.claim("job", "A", long)
	s.refusedAfterSending(s.send(write(l, "w", "hang")), 504, "upstream-timeout")
	if r := s.ends("w"); !r.Cancelled {
		t.Error("the connection to the upstream was left open")
	}
}
