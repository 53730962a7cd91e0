package leaseclient_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestAClaimWhoseReplyIsLostGetsTheSameLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.line.set(func(c call, nth int) fault {
			if c.path == wire.PathClaim && nth <= 2 {
				return dropReply
			}
			return nil
		})
		l := r.claim(r.client(leaseclient.Config{}), "j")
		calls := r.line.seen(wire.PathClaim)
		if l.Generation() != 1 || len(calls) != 3 || claimID(t, calls[0]) != claimID(t, calls[2]) {
			t.Fatalf("%v after %d calls", l, len(calls))
		}
		// The lease is as old as its grant, whatever the answer says.
		if left := time.Until(l.Deadline()); left > 27*time.Second {
			t.Errorf("%v are left", left)
		}
		again, err := r.client(leaseclient.Config{}).Claim(context.Background(), "j")
		var held *leaseclient.HeldError
		if !errors.As(err, &held) || !errors.Is(err, leaseclient.ErrHeld) || held.Generation != 1 || held.ExpiresIn <= 0 || held.Owner == "" {
			t.Errorf("another claim: %v, %v", again, err)
		}
	})
}

func claimID(t *testing.T, c call) string {
	t.Helper()
	var q wire.ClaimRequest
	if err := json.Unmarshal([]byte(c.body), &q); err != nil || q.ClaimID == "" {
		t.Fatalf("%q: %v", c.body, err)
	}
	return q.ClaimID
}

func TestAClaimGivenUpLeavesNothingHeld(t *testing.T) {
	silent := func(ctx context.Context, serve func() *http.Response) (*http.Response, error) {
		serve()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, f := range map[string]fault{"its reply is dropped": dropReply, "its reply never comes": silent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.line.set(func(c call, nth int) fault {
					if nth == 1 {
						return f
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				defer cancel()
				if _, err := r.client(leaseclient.Config{}).Claim(ctx, "j"); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				r.free("j")
			})
		})
	}
}

func TestAClaimThatNeverReachedTheServerIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		refused := func(context.Context, func() *http.Response) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		r.line.set(func(call, int) fault { return refused })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := r.client(leaseclient.Config{}).Claim(ctx, "j"); err == nil {
			t.Fatal("claimed")
		}
		r.line.set(nil)
		time.Sleep(time.Minute)
		if g := r.free("j"); g != 1 {
			t.Errorf("the next generation is %d", g)
		}
		ended, stop := context.WithCancel(context.Background())
		stop()
		n := len(r.line.seen(wire.PathClaim))
		if _, err := r.client(leaseclient.Config{}).Claim(ended, "k"); !errors.Is(err, context.Canceled) || len(r.line.seen(wire.PathClaim)) != n {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

func TestAClaimWithoutAnAnswerEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.line.set(func(call, int) fault { return drop })
		start := time.Now()
		_, err := r.client(leaseclient.Config{}).Claim(context.Background(), "j")
		if !errors.Is(err, leaseclient.ErrUnavailable) || !errors.Is(err, errLine) || time.Since(start) > 35*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestARefusedClaimIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.client(leaseclient.Config{TTL: 48 * time.Hour}).Claim(context.Background(), "j")
		var refused *leaseclient.RefusedError
		if !errors.As(err, &refused) || refused.Code != "invalid-request" || len(r.line.seen(wire.PathClaim)) != 1 {
			t.Errorf("%v", err)
		}
	})
}

func TestACompletedJobAnswersWithItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(leaseclient.Config{})
		l := r.claim(c, "j")
		if err := l.Complete(context.Background(), map[string]int{"sent": 3}); err != nil {
			t.Fatal(err)
		}
		_, err := c.Claim(context.Background(), "j")
		var done *leaseclient.CompletedError
		if !errors.As(err, &done) || !errors.Is(err, leaseclient.ErrCompleted) || string(done.Result) != `{"sent":3}` {
			t.Errorf("%v", err)
		}
	})
}

func TestClaimsThatWaitAreServedInTurnAndGetAWholeLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(leaseclient.Config{TTL: 15 * time.Second})
		holder := r.claim(c, "j")
		got := make(chan int)
		for i := range 3 {
			go func() {
				l, err := c.Claim(context.Background(), "j", leaseclient.WithWait(time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				// It waited for longer than a ttl, so its grant alone would say that it is over.
				if left := time.Until(l.Deadline()); left != 13500*time.Millisecond {
					t.Errorf("%v are left", left)
				}
				got <- i
				time.Sleep(time.Minute)
				_ = l.Release(context.Background())
			}()
			time.Sleep(time.Second)
		}
		time.Sleep(7 * time.Minute)
		if err := holder.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for range 3 {
			seen[<-got] = true
		}
		if len(seen) != 3 {
			t.Error(seen)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestSettleKeepsTheLeaseAliveUntilTheReportIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		claims := 0
		api := r.line.handler
		r.line.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != wire.PathClaim {
				api.ServeHTTP(w, req)
				return
			}
			claims++
			var q wire.ClaimRequest
			if err := json.NewDecoder(req.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			g, err := r.authority.Claim(req.Context(), tokens.ClaimRequest{Job: tokens.Job{ID: "j"}, Owner: q.Owner, TTL: q.TTL, ClaimID: q.ClaimID}, 0, 0)
			if err != nil {
				t.Error(err)
				return
			}
			p := &wire.Predecessor{
				Generation: 1, Owner: "old", Ended: tokens.Superseded, InFlight: 1,
				Unresolved: []wire.Write{{Key: "k", Method: "POST", State: "unknown", Started: "2024-05-06T07:08:09.000Z"}},
			}
			if q.Settle > 0 {
				time.Sleep(time.Minute) // twice the ttl
				p.InFlight, p.Writes.Applied = 0, 4
			}
			wire.WriteJSON(w, http.StatusCreated, wire.TypeJSON, wire.ClaimResponse{
				JobID: "j", Generation: g.Lease.Generation, LeaseID: g.Lease.ID, TTL: g.Lease.TTL, ExpiresIn: g.ExpiresIn, Predecessor: p,
			})
		})
		l := r.claim(r.client(leaseclient.Config{}), "j", leaseclient.WithSettle(2*time.Minute))
		p := l.Predecessor()
		if claims != 2 || l.State() != leaseclient.Held || p.InFlight != 0 || p.Applied != 4 || p.Ended != tokens.Superseded ||
			len(p.Unresolved) != 1 || p.Unresolved[0].Key != "k" || p.Unresolved[0].Started.Year() != 2024 {
			t.Errorf("%d claims, %v, %+v", claims, l, p)
		}
	})
}

func TestASettleThatTurnsOutToBeANewClaimLeavesNothingHeld(t *testing.T) {
	busy := func(_ context.Context, serve func() *http.Response) (*http.Response, error) {
		resp := serve()
		body, err := io.ReadAll(resp.Body)
		report := strings.Replace(string(body), `"in_flight":0`, `"in_flight":1`, 1)
		resp.Body = io.NopCloser(strings.NewReader(report))
		return resp, err
	}
	for _, name := range []string{"answered", "not answered"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				g, err := r.authority.Claim(context.Background(), tokens.ClaimRequest{Job: job("j"), Owner: "old", TTL: 1000}, 0, 0)
				if err != nil {
					t.Fatal(g, err)
				}
				time.Sleep(time.Second)
				r.line.set(func(c call, nth int) fault {
					switch {
					case c.path == wire.PathRenewLeases:
						return hang
					case c.path == wire.PathClaim && nth == 1:
						return busy
					case c.path == wire.PathClaim && nth == 2 && name == "answered":
						return late(40 * time.Second)
					case c.path == wire.PathClaim && nth == 2:
						return func(ctx context.Context, serve func() *http.Response) (*http.Response, error) {
							<-ctx.Done()
							time.Sleep(4 * time.Second) // on the wire until the lease has run out
							serve()
							return nil, ctx.Err()
						}
					}
					return nil
				})
				if l, err := r.client(leaseclient.Config{}).Claim(context.Background(), "j", leaseclient.WithSettle(time.Minute)); !errors.Is(err, leaseclient.ErrLost) {
					t.Errorf("%v, %v", l, err)
				}
				time.Sleep(time.Second)
				if g := r.free("j"); g != 4 {
					t.Errorf("the next generation is %d", g)
				}
			})
		})
	}
}

func TestConfigurationsThatCanNotWorkAreRefused(t *testing.T) {
	for want, cfg := range map[string]leaseclient.Config{
		"endpoint":   {Endpoint: "localhost:8081"},
		"credential": {Endpoint: "http://user:secret@host"},
		"HTTPClient": {HTTPClient: &http.Client{}, TLS: &tls.Config{}},
		"ttl":        {TTL: time.Millisecond},
		"margin":     {TTL: 30 * time.Second, Margin: 11 * time.Second},
		"minimum":    {TTL: 30 * time.Second, MinLeft: 10 * time.Second},
		"owner":      {Owner: "a\nb"},
		"drain":      {Drain: -1},
	} {
		_, err := leaseclient.New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
