package control_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestAFirstClaimIsGrantedWithGenerationOneAndNoPredecessor(t *testing.T) {
	r := newRig(t)
	a := r.post(wire.PathClaim, `{"job_id":"j","owner":"a","ttl_ms":30000}`)
	c := as[wire.ClaimResponse](a, http.StatusCreated)
	until, err := time.Parse("2006-01-02T15:04:05.000Z", c.LeaseUntil)
	if c.JobID != "j" || c.Owner != "a" || c.Generation != 1 || c.TTL != 30000 || c.Predecessor != nil ||
		!strings.HasPrefix(c.LeaseID, r.store.Info().ID+".") || c.ExpiresIn < 29000 || c.ExpiresIn > 30000 ||
		err != nil || time.Until(until) > 30*time.Second {
		t.Fatalf("%s (%v)", a.body, err)
	}
	if !strings.Contains(string(a.body), `"predecessor":null`) || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Type") != wire.TypeJSON {
		t.Errorf("%s with %v", a.body, a.header)
	}
}

func TestAHeldLeaseIsRefusedWithItsHolderAndHowLongItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.claim("j", "a", 30000)
		time.Sleep(1500 * time.Millisecond)
		a := r.post(wire.PathClaim, `{"job_id":"j","owner":"b","ttl_ms":30000}`)
		p := a.problem(wire.CodeLeaseHeld)
		if p.Owner != "a" || p.Generation != 1 || *p.ExpiresIn != 28500 || a.header.Get("Retry-After") != "29" || p.JobID != "j" || p.Floor != 1 {
			t.Fatalf("%s, Retry-After %s", a.body, a.header.Get("Retry-After"))
		}
	})
}

func TestTheSameClaimIDIsAnsweredWithTheSameLease(t *testing.T) {
	r := newRig(t)
	q := wire.ClaimRequest{JobID: "j", Owner: "a", TTL: 30000, ClaimID: "c1"}
	first := as[wire.ClaimResponse](r.post(wire.PathClaim, q), http.StatusCreated)
	again := as[wire.ClaimResponse](r.post(wire.PathClaim, q), http.StatusOK)
	if again.LeaseID != first.LeaseID || again.Generation != first.Generation {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	q.ClaimID = "c2"
	r.post(wire.PathClaim, q).problem(wire.CodeLeaseHeld)
}

func TestALapsedLeaseIsTakenOverAndTheTakeoverIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		old := r.claim("j", "a", 1000)
		time.Sleep(time.Second)
		c := r.claim("j", "b", 1000)
		p := c.Predecessor
		if c.Generation != 2 || p == nil || p.Generation != 1 || p.Owner != "a" || p.Ended != tokens.Superseded || p.InFlight != 0 || p.Unresolved == nil {
			t.Fatalf("%+v, predecessor %+v", c, p)
		}
		got := r.log.with(t, "takeover")
		if len(got) != 1 || got[0]["job_id"] != "j" || got[0]["generation"] != 2.0 || got[0]["old_generation"] != 1.0 ||
			got[0]["owner"] != "b" || got[0]["old_owner"] != "a" || got[0]["trace_id"] != traceID {
			t.Errorf("logged %v", got)
		}
		lost := r.post(wire.PathRenew, renewal(old)).problem(wire.CodeLeaseLost)
		if lost.Reason != "superseded" || lost.Generation != 1 || lost.Floor != 2 {
			t.Errorf("%+v", lost)
		}
	})
}

func TestALapsedLeaseThatNobodyTookIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.claim("j", "a", 1000)
		if n := as[wire.RenewResponse](r.post(wire.PathRenew, renewal(c)), 200); n.Lapsed || n.ExpiresIn != 1000 {
			t.Fatalf("in time: %+v", n)
		}
		time.Sleep(2 * time.Second)
		q := renewal(c)
		ttl := int64(5000)
		q.TTL = &ttl
		if n := as[wire.RenewResponse](r.post(wire.PathRenew, q), 200); !n.Lapsed || n.ExpiresIn != 5000 {
			t.Fatalf("late: %+v", n)
		}
	})
}

func TestALostLeaseSaysHowItWasLost(t *testing.T) {
	end := map[string]func(*rig, wire.ClaimResponse){
		"released":  func(r *rig, c wire.ClaimResponse) { r.post(wire.PathRelease, release(c)) },
		"completed": func(r *rig, c wire.ClaimResponse) { r.post(wire.PathComplete, completion(c, `1`)) },
		"revoked":   func(r *rig, c wire.ClaimResponse) { r.post(wire.PathRevoke, wire.RevokeRequest{JobID: c.JobID}) },
		"unknown":   func(*rig, wire.ClaimResponse) {},
	}
	for reason, f := range end {
		t.Run(reason, func(t *testing.T) {
			r := newRig(t)
			c := r.claim("j", "a", 30000)
			f(r, c)
			if reason == "unknown" {
				c.LeaseID += "x"
			}
			q := renewal(c)
			p := r.post(wire.PathRenew, q).problem(wire.CodeLeaseLost)
			if p.Reason != reason || p.JobID != "j" || p.Generation != 1 {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestRepeatingAnEndingThatTookEffectIsNoError(t *testing.T) {
	r := newRig(t)
	c := r.claim("j", "a", 30000)
	for i, repeated := range []bool{false, true} {
		e := as[wire.EndResponse](r.post(wire.PathRelease, release(c)), 200)
		if e.Repeated != repeated || e.Floor != 2 || e.Generation != 1 || e.InFlight != 0 {
			t.Errorf("release %d: %+v", i, e)
		}
	}
	c = r.claim("j", "a", 30000)
	for i, repeated := range []bool{false, true} {
		e := as[wire.EndResponse](r.post(wire.PathComplete, completion(c, `{"n":[1,null]}`)), 200)
		if e.Repeated != repeated || e.Floor != 3 {
			t.Errorf("complete %d: %+v", i, e)
		}
	}
	p := r.post(wire.PathClaim, `{"job_id":"j","owner":"b","ttl_ms":1000}`).problem(wire.CodeJobCompleted)
	if string(p.Result) != `{"n":[1,null]}` {
		t.Errorf("result %s", p.Result)
	}
}

func TestAWaitingClaimGetsTheLeaseWhenItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.claim("j", "a", 60000)
		var got answer
		var wg sync.WaitGroup
		wg.Go(func() { got = r.post(wire.PathClaim, `{"job_id":"j","owner":"b","ttl_ms":1000,"wait_ms":30000}`) })
		synctest.Wait()
		r.post(wire.PathRelease, release(a))
		wg.Wait()
		if c := as[wire.ClaimResponse](got, 201); c.Generation != 2 || c.Predecessor.Ended != tokens.Released {
			t.Fatalf("%+v", c)
		}
		if n := len(r.log.with(t, "takeover")); n != 0 {
			t.Errorf("a release counts as %d takeovers", n)
		}
	})
}

func TestAWaitThatIsOverIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.claim("j", "a", 60000)
		start := time.Now()
		p := r.post(wire.PathClaim, `{"job_id":"j","owner":"b","ttl_ms":1000,"wait_ms":30000}`).problem(wire.CodeLeaseHeld)
		if d := time.Since(start); d != 30*time.Second || *p.ExpiresIn != 30000 {
			t.Fatalf("after %v: %+v", d, p)
		}
	})
}

func TestACallerThatHangsUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.claim("j", "a", 60000)
		ctx, hangUp := context.WithCancel(context.Background())
		var gone, next answer
		var wg sync.WaitGroup
		wg.Go(func() {
			gone = r.send(request(wire.PathClaim, `{"job_id":"j","owner":"gone","ttl_ms":1000,"wait_ms":50000}`).WithContext(ctx))
		})
		synctest.Wait()
		wg.Go(func() { next = r.post(wire.PathClaim, `{"job_id":"j","owner":"next","ttl_ms":1000,"wait_ms":50000}`) })
		synctest.Wait()
		hangUp()
		synctest.Wait()
		gone.t = t
		gone.problem(wire.CodeOverloaded)
		r.post(wire.PathRelease, release(a))
		wg.Wait()
		if c := as[wire.ClaimResponse](next, 201); c.Owner != "next" || c.Generation != 2 {
			t.Fatalf("%+v", c)
		}
	})
}

func TestOfManyConcurrentClaimsOneIsGranted(t *testing.T) {
	r := newRig(t)
	const n = 50
	status := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			status[i] = r.post(wire.PathClaim, wire.ClaimRequest{JobID: "j", Owner: "same", TTL: 30000}).status
		})
	}
	wg.Wait()
	count := map[int]int{}
	for _, s := range status {
		count[s]++
	}
	if count[201] != 1 || count[409] != n-1 {
		t.Fatal(count)
	}
}

func TestABatchAnswersEachLeaseForItself(t *testing.T) {
	r := newRig(t)
	good, gone := r.claim("good", "a", 30000), r.claim("gone", "a", 30000)
	r.post(wire.PathRelease, release(gone))
	bad := renewal(good)
	zero := int64(0)
	bad.TTL = &zero
	q := wire.RenewLeasesRequest{Leases: []wire.RenewRequest{renewal(good), renewal(gone), bad}}
	for i := range 100 {
		q.Leases = append(q.Leases, renewal(r.claim(fmt.Sprintf("more-%d", i), "a", 30000)))
	}
	out := as[wire.RenewLeasesResponse](r.post(wire.PathRenewLeases, q), 200)
	if len(out.Leases) != 103 {
		t.Fatalf("%d answers", len(out.Leases))
	}
	if a := out.Leases[0]; a.Status != 200 || a.JobID != "good" || a.RenewResponse == nil || a.ExpiresIn < 29000 || a.Problem != nil {
		t.Errorf("good: %+v", a)
	}
	if a := out.Leases[1]; a.Status != 409 || a.Problem == nil || a.Problem.Code != "lease-lost" || a.Problem.Reason != "released" || a.RenewResponse != nil {
		t.Errorf("gone: %+v", a)
	}
	if a := out.Leases[2]; a.Status != 400 || a.Problem == nil || a.Problem.Field != "leases[2].ttl_ms" || !strings.HasPrefix(a.Problem.Detail, "leases[2].ttl_ms is 0") {
		t.Errorf("bad: %+v", a)
	}
	for i, a := range out.Leases[3:] {
		if a.Status != 200 || a.JobID != fmt.Sprintf("more-%d", i) {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if a := r.post(wire.PathRenewLeases, `{"leases":[]}`); a.status != 200 || strings.TrimSpace(string(a.body)) != `{"leases":[]}` {
		t.Errorf("empty: %d %s", a.status, a.body)
	}
	if p := r.post(wire.PathRenewLeases, `{"leases":[{"job_id":"a","owner":"o","generation":1,"lease_id":"l","ttl_ms":"30"}]}`).problem(wire.CodeInvalidRequest); p.Field != "leases[0].ttl_ms" {
		t.Errorf("%+v", p)
	}
}

func TestAPanicInABatchIsOneProblemAndTheProcessLives(t *testing.T) {
	r := newRig(t, func(o *control.Options) { o.Authority = nil; o.Ready = func() error { return nil } })
	q := wire.RenewLeasesRequest{Leases: []wire.RenewRequest{{JobID: "j", Owner: "a", Generation: 1, LeaseID: "l"}}}
	out := as[wire.RenewLeasesResponse](r.post(wire.PathRenewLeases, q), 200)
	if a := out.Leases[0]; a.Status != 500 || a.Problem == nil || a.Problem.Code != "internal" {
		t.Errorf("%+v", a)
	}
	r.post(wire.PathClaim, `{"job_id":"j","owner":"a","ttl_ms":1000}`).problem(wire.CodeInternal)
	if got := r.log.with(t, "panic in handler"); len(got) != 2 || got[1]["trace_id"] != traceID || got[1]["stack"] == "" {
		t.Errorf("logged %v", got)
	}
}

func TestTheNamespaceKeepsJobsApart(t *testing.T) {
	r := newRig(t, func(o *control.Options) { o.Namespace = "n" })
	r.claim("j", "a", 30000)
	if _, err := r.authority.Job(t.Context(), tokens.Job{ID: "j"}); err == nil {
		t.Error("the job is in the empty namespace")
	}
	if v := r.job("j"); v.Namespace != "n" || v.Generation != 1 {
		t.Errorf("%+v", v)
	}
}

func TestNoLeaseIDOrClaimIDIsEverLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		q := wire.ClaimRequest{JobID: "j", Owner: "a", TTL: 1000, ClaimID: "the-claim-id"}
		c := as[wire.ClaimResponse](r.post(wire.PathClaim, q), 201)
		time.Sleep(2 * time.Second)
		d := r.claim("j", "b", 1000)
		r.post(wire.PathRenew, renewal(c))
		r.post(wire.PathRevoke, wire.RevokeRequest{JobID: "j", Reason: "test"})
		r.store.SetErr(context.DeadlineExceeded)
		r.post(wire.PathRenew, renewal(d))
		log := r.log.String()
		if log == "" || strings.Contains(log, c.LeaseID) || strings.Contains(log, d.LeaseID) || strings.Contains(log, q.ClaimID) {
			t.Errorf("%s", log)
		}
		view := string(r.get(wire.PathJob + "?id=j").body)
		if strings.Contains(view, c.LeaseID) || strings.Contains(view, d.LeaseID) || strings.Contains(view, q.ClaimID) {
			t.Errorf("%s", view)
		}
	})
}
