package leaseclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestARenewalThatHangsEndsTheContextBeforeTheLeaseCanPassOn(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken over %v", taken), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.line.set(func(c call, nth int) fault {
					if c.path == wire.PathRenewLeases && nth > 2 {
						return late(60 * time.Second)
					}
					return nil
				})
				c := r.client(leaseclient.Config{TTL: 15 * time.Second})
				var lost losses
				l := r.claim(c, "j", leaseclient.WithOnLost(lost.note))

				<-l.Context().Done()
				cause := context.Cause(l.Context())
				if !errors.Is(cause, leaseclient.ErrExpired) || !errors.Is(cause, leaseclient.ErrLost) {
					t.Fatalf("the context ended with %v", cause)
				}
				last := r.line.seen(wire.PathRenewLeases)[1].at
				if d := time.Since(last); d != 13500*time.Millisecond {
					t.Errorf("the context ended %v after the last good renewal was sent", d)
				}
				if _, err := r.rival("j"); !errors.Is(err, tokens.ErrLeaseHeld) {
					t.Errorf("the lease could pass on before its context had ended: %v", err)
				}
				time.Sleep(time.Until(last.Add(15 * time.Second)))
				if taken {
					r.free("j")
				}

				time.Sleep(2 * time.Minute) // every late answer has come
				if l.State() != leaseclient.Lost || l.Err() != cause {
					t.Errorf("afterwards: %v, %v", l.State(), l.Err())
				}
				if got := lost.all(); len(got) != 1 || got[0] != cause {
					t.Errorf("loss was reported as %v", got)
				}
				r.still()
			})
		})
	}
}

func TestTheDeadlineCountsFromTheSendingNotFromTheAnswer(t *testing.T) {
	slowly := func(_ context.Context, serve func() *http.Response) (*http.Response, error) {
		resp := serve()
		time.Sleep(2 * time.Second)
		return resp, nil
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.line.set(func(call, int) fault { return slowly })
		l := r.claim(r.client(leaseclient.Config{}), "j")
		if d := l.Deadline().Sub(r.line.seen(wire.PathClaim)[0].at); d != 27*time.Second {
			t.Errorf("after a claim the deadline is %v from its sending", d)
		}
		time.Sleep(12 * time.Second)
		if d := l.Deadline().Sub(r.line.seen(wire.PathRenewLeases)[0].at); d != 27*time.Second {
			t.Errorf("after a renewal the deadline is %v from its sending", d)
		}
	})
}

func TestTwoRenewalsLostInARowLoseNothing(t *testing.T) {
	for name, f := range map[string]fault{"dropped": drop, "reply dropped": dropReply, "hanging": hang} {
		for _, ttl := range []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 0} {
			t.Run(fmt.Sprintf("%s, ttl %v", name, ttl), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					r.line.set(func(c call, nth int) fault {
						if c.path == wire.PathRenewLeases && nth%3 != 0 {
							return f
						}
						return nil
					})
					l := r.claim(r.client(leaseclient.Config{TTL: ttl}), "j")
					select {
					case <-l.Context().Done():
						t.Fatal(l.Err())
					case <-time.After(10 * time.Minute):
					}
				})
			})
		}
	}
}

func TestAnOutageOfTenSeconds(t *testing.T) {
	t.Run("is survived with a ttl of 30 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			l := r.claim(r.client(leaseclient.Config{}), "j")
			// From just before a renewal is due, which is the worst time.
			time.Sleep(8900 * time.Millisecond)
			r.line.set(func(call, int) fault { return drop })
			time.Sleep(5 * time.Second)
			if l.State() != leaseclient.Uncertain || l.Err() != nil || l.Context().Err() != nil {
				t.Errorf("in the outage: %v, %v", l.State(), l.Err())
			}
			time.Sleep(5 * time.Second)
			r.line.set(nil)
			time.Sleep(5 * time.Second)
			if l.State() != leaseclient.Held || l.Generation() != 1 {
				t.Errorf("after the outage: %v", l)
			}
			if _, err := r.rival("j"); !errors.Is(err, tokens.ErrLeaseHeld) {
				t.Error(err)
			}
		})
	})
	t.Run("ends the work in time with a ttl of 5 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			l := r.claim(r.client(leaseclient.Config{TTL: 5 * time.Second}), "j")
			claimed := time.Now()
			r.line.set(func(call, int) fault { return drop })
			<-l.Context().Done()
			if d := time.Since(claimed); d != 4*time.Second || !errors.Is(l.Err(), leaseclient.ErrExpired) || !errors.Is(l.Err(), errLine) {
				t.Errorf("after %v: %v", d, l.Err())
			}
			time.Sleep(6 * time.Second)
			r.free("j")
		})
	})
}

func TestTheServersWordEndsALeaseAtOnceWithItsReason(t *testing.T) {
	job := tokens.Job{ID: "j"}
	for _, c := range []struct {
		name string
		end  func(r *rig, l *leaseclient.Lease)
		want error
	}{
		{"revoked", func(r *rig, _ *leaseclient.Lease) { _, _ = r.authority.Revoke(context.Background(), job, 0, "") }, leaseclient.ErrRevoked},
		{"superseded", func(r *rig, _ *leaseclient.Lease) {
			_, _ = r.authority.Revoke(context.Background(), job, 0, "")
			r.free("j")
		}, leaseclient.ErrRevoked},
		{"released by another with the lease id", func(r *rig, l *leaseclient.Lease) {
			h := http.Header{}
			l.Header(h)
			_, _ = r.authority.Release(context.Background(), tokens.LeaseRef{Job: job, Owner: "me", Generation: 1, LeaseID: h.Get(wire.HeaderLease)}, 0, "")
		}, leaseclient.ErrReleased},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				client := r.client(leaseclient.Config{Owner: "me"})
				var lost losses
				l := r.claim(client, "j", leaseclient.WithOnLost(lost.note))
				other := r.claim(client, "other")
				c.end(r, l)
				<-l.Context().Done()
				synctest.Wait()
				if err := l.Err(); !errors.Is(err, c.want) || !errors.Is(err, leaseclient.ErrLost) {
					t.Errorf("%v", err)
				}
				if got := lost.all(); len(got) != 1 {
					t.Errorf("reported %v", got)
				}
				if other.State() != leaseclient.Held {
					t.Errorf("the other lease of the process is %v", other)
				}
				if err := l.Release(context.Background()); !errors.Is(err, c.want) {
					t.Errorf("a release says %v", err)
				}
			})
		})
	}
}

func TestNoOtherRefusalOfARenewalIsALoss(t *testing.T) {
	problem := func(c wire.Code) string {
		return fmt.Sprintf(`{"type":"urn:fenceproxy:%s","status":%d,"code":%q,"retry":%q}`, c.Name, c.Status, c.Name, c.Retry)
	}
	typed := http.Header{"Content-Type": {wire.TypeProblem}}
	for name, f := range map[string]fault{
		"401":               answer(401, typed, problem(wire.CodeUnauthenticated)),
		"403":               answer(403, typed, problem(wire.CodeForbidden)),
		"400":               answer(400, typed, problem(wire.CodeInvalidRequest)),
		"503":               answer(503, http.Header{"Content-Type": {wire.TypeProblem}, "Retry-After": {"60"}}, problem(wire.CodeStoreUnavailable)),
		"409 of a balancer": answer(409, nil, "lease-lost"),
		"200 of a balancer": answer(200, nil, "<html>"),
		"fewer answers":     answer(200, nil, `{"leases":[]}`),
		"another lease's": answer(200, nil,
			`{"leases":[{"job_id":"k","generation":1,"status":409,"problem":{"code":"lease-lost","reason":"superseded"}}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				l := r.claim(r.client(leaseclient.Config{}), "j")
				r.line.set(always(wire.PathRenewLeases, f))
				time.Sleep(20 * time.Second)
				if l.State() != leaseclient.Uncertain {
					t.Fatalf("%v, %v", l.State(), l.Err())
				}
				r.line.set(nil)
				time.Sleep(6 * time.Second)
				if l.State() != leaseclient.Held {
					t.Fatalf("it was not renewed again: %v", l.State())
				}
			})
		})
	}
}
