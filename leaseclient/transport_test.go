package leaseclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

func post(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://proxy/charge", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// roundTripper is a function as a RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestEveryRequestCarriesTheFenceAndTheCallersIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		var sent *http.Request
		tr := l.Transport(roundTripper(func(r *http.Request) (*http.Response, error) { sent = r; return ok(), nil }))
		for _, c := range []struct{ method, key, own, want string }{
			{http.MethodPost, "charge-1", "", "charge-1"},
			{http.MethodPost, "charge-1", "mine", "mine"},
			{http.MethodPost, "", "", ""},
			{http.MethodGet, "", "", ""},
		} {
			ctx := context.Background()
			if c.key != "" {
				ctx = leaseclient.WithKey(ctx, c.key)
			}
			req := post(t, ctx)
			req.Method = c.method
			if c.own != "" {
				req.Header.Set(wire.HeaderKey, c.own)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			h := sent.Header
			if h.Get(wire.HeaderJobID) != "j" || h.Get(wire.HeaderGeneration) != "1" || h.Get(wire.HeaderLease) == "" {
				t.Errorf("%+v: %d headers", c, len(h))
			}
			// Spelled so, http.Transport does not repeat the request.
			if got := strings.Join(h[strings.ToLower(wire.HeaderKey)], ","); got != c.want || h[wire.HeaderKey] != nil {
				t.Errorf("%+v: key %q", c, got)
			}
			if c.method == http.MethodPost && sent.GetBody != nil {
				t.Error("the body can be sent again")
			}
			if req.Header.Get(wire.HeaderLease) != "" || req.GetBody == nil {
				t.Error("the caller's request was changed")
			}
		}
	})
}

func TestHTTPTransportDoesNotSendAWriteTwice(t *testing.T) {
	r := newRig(t)
	l := r.claim(r.client(leaseclient.Config{}), "j")
	var posts atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if r.Header.Get(wire.HeaderKey) != "k" {
				t.Errorf("key %q", r.Header.Get(wire.HeaderKey))
			}
			posts.Add(1)
			panic(http.ErrAbortHandler) // the connection breaks after the upstream has acted
		}
	}))
	defer srv.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: l.Transport(base)}
	for i := range 20 {
		warm, err := client.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, warm.Body)
		_ = warm.Body.Close()
		// No body and a key: what http.Transport takes for repeatable.
		req, _ := http.NewRequestWithContext(leaseclient.WithKey(context.Background(), "k"), http.MethodPost, srv.URL, nil)
		if _, err := client.Do(req); err == nil {
			t.Fatal("no error")
		}
		if n := int(posts.Load()); n != i+1 {
			t.Fatalf("%d writes were sent for %d", n, i+1)
		}
	}
}

func TestAWriteIsRefusedWhenLittleTimeIsLeftAndAReadIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		r.line.set(func(call, int) fault { return drop })
		sent := 0
		tr := l.Transport(roundTripper(func(*http.Request) (*http.Response, error) { sent++; return ok(), nil }))
		time.Sleep(time.Until(l.Deadline()) - time.Second)
		if resp, err := tr.RoundTrip(post(t, context.Background())); err != nil {
			t.Errorf("with a second left: %v", err)
		} else {
			_ = resp.Body.Close()
		}
		time.Sleep(time.Millisecond)
		if _, err := tr.RoundTrip(post(t, context.Background())); !errors.Is(err, leaseclient.ErrTooLate) {
			t.Errorf("with less: %v", err)
		}
		get := post(t, context.Background())
		get.Method = http.MethodGet
		if resp, err := tr.RoundTrip(get); err != nil {
			t.Errorf("a read: %v", err)
		} else {
			_ = resp.Body.Close()
		}
		get.Header.Set("X-HTTP-Method-Override", "DELETE")
		if _, err := tr.RoundTrip(get); !errors.Is(err, leaseclient.ErrTooLate) {
			t.Errorf("a read that may be obeyed as a write: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := tr.RoundTrip(post(t, context.Background())); !errors.Is(err, leaseclient.ErrExpired) || sent != 2 {
			t.Errorf("after the deadline: %v, %d sent", err, sent)
		}
	})
}

func TestAWriteUnderWayEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u := newRig(t), newUpstream()
		l := r.claim(r.client(leaseclient.Config{}), "j")
		written := u.write(t, l)
		time.Sleep(10 * time.Minute) // renewals carry it
		r.line.set(func(call, int) fault { return drop })
		if err := <-written; !errors.Is(err, leaseclient.ErrExpired) || time.Until(l.Deadline()) > 0 {
			t.Errorf("%v with %v left", err, time.Until(l.Deadline()))
		}
	})
}

func TestOnlyTheProxysOwnRefusalEndsALease(t *testing.T) {
	refusal := func(code string, status int, ended string) *http.Response {
		body := fmt.Sprintf(`{"type":"urn:fenceproxy:%s","status":%d,"code":%q,"ended":%q,"retry":"never"}`, code, status, code, ended)
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{
			"Content-Type": {wire.TypeProblem}, wire.HeaderDecision: {wire.DecisionRefused}, wire.HeaderReason: {code},
		}}
	}
	upstreams := func(status int) *http.Response {
		resp := refusal("stale-generation", status, "superseded")
		resp.Header.Set(wire.HeaderDecision, wire.DecisionForwarded)
		resp.Header.Del(wire.HeaderReason)
		return resp
	}
	bare := func(status int) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	}
	for _, c := range []struct {
		name string
		resp *http.Response
		want error
	}{
		{"the upstream's 412", upstreams(412), nil},
		{"the upstream's 409", upstreams(409), nil},
		{"the upstream's 425", upstreams(425), nil},
		{"the upstream's 428", upstreams(428), nil},
		{"a 412 without any word of the proxy", bare(412), nil},
		{"write-in-progress", refusal("write-in-progress", 409, ""), nil},
		{"fence-required", refusal("fence-required", 428, ""), nil},
		{"lease-expired, which can be renewed", refusal("lease-expired", 412, ""), nil},
		{"takeover-pending", refusal("takeover-pending", 503, ""), nil},
		{"stale: superseded", refusal("stale-generation", 412, "superseded"), leaseclient.ErrSuperseded},
		{"stale: revoked", refusal("stale-generation", 412, "revoked"), leaseclient.ErrRevoked},
		{"stale: completed", refusal("stale-generation", 412, "completed"), leaseclient.ErrCompleted},
		{"stale, to a gRPC call", func() *http.Response {
			resp := refusal("stale-generation", 200, "")
			resp.Header.Set("Content-Type", "application/grpc")
			resp.Body = http.NoBody
			return resp
		}(), leaseclient.ErrSuperseded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var lost losses
				l := r.claim(r.client(leaseclient.Config{}), "j", leaseclient.WithOnLost(lost.note))
				tr := l.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return c.resp, nil }))
				resp, err := tr.RoundTrip(post(t, context.Background()))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.Body != http.NoBody && !strings.Contains(string(body), `"status"`) {
					t.Errorf("the answer reads %q, %v", body, err)
				}
				synctest.Wait()
				if c.want == nil {
					if l.State() != leaseclient.Held || len(lost.all()) != 0 {
						t.Errorf("%v: %v", l, l.Err())
					}
					return
				}
				if !errors.Is(l.Err(), c.want) || !errors.Is(l.Err(), leaseclient.ErrLost) || len(lost.all()) != 1 {
					t.Errorf("%v", l.Err())
				}
				if _, err := tr.RoundTrip(post(t, context.Background())); !errors.Is(err, c.want) {
					t.Errorf("the next write: %v", err)
				}
			})
		})
	}
}

func TestAReplyThatShowsANewerGenerationHasTheLeaseChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		if _, err := r.authority.Revoke(context.Background(), job("j"), 0, ""); err != nil {
			t.Fatal(err)
		}
		tr := l.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			resp := ok()
			resp.Header.Set(wire.HeaderDecision, wire.DecisionForwarded)
			resp.Header.Set(wire.HeaderGeneration, "2")
			return resp, nil
		}))
		time.Sleep(2 * time.Second)
		resp, err := tr.RoundTrip(post(t, context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		synctest.Wait()
		if !errors.Is(l.Err(), leaseclient.ErrRevoked) {
			t.Errorf("%v", l.Err())
		}
	})
}
