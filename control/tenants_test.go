package control_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// tenants are two who have chosen the same ids. What is in neither's words belongs to
// the other one.
func tenants(t *testing.T) (r, red, blue *rig) {
	t.Helper()
	r = newGuardedRig(t, principal("red", "r", auth.Operator), principal("blue", "b", auth.Operator))
	return r, r.as("red"), r.as("blue")
}

func TestTwoTenantsWithTheSameIdsNeitherMoveNorSeeEachOther(t *testing.T) {
	r, red, blue := tenants(t)
	first := red.claim("job", "crimson-owner", 30000)
	if c := blue.claim("job", "blue-owner", 30000); c.Generation != 1 || c.Predecessor != nil {
		t.Errorf("blue's first claim: %+v", c)
	}
	// Red's job goes on to generation 3, blue's stays.
	for range 2 {
		as[wire.JobView](red.post(wire.PathRevoke, wire.RevokeRequest{JobID: "job", Reason: "crimson-reason"}), 200)
		first = red.claim("job", "crimson-owner", 30000)
	}
	r.writeIn(tokens.Job{Namespace: "r", ID: "job"}, 3, "key", tokens.Settlement{Outcome: tokens.OutcomeUnknown, Status: 500, Location: "/crimson"})
	r.writeIn(tokens.Job{Namespace: "b", ID: "job"}, 1, "key", tokens.Settlement{Outcome: tokens.Applied, Status: 201, Location: "/blue"})
	as[wire.JobView](red.post(wire.PathFence, wire.FenceRequest{JobID: "crimson-only", Floor: 9}), 200)
	r.writeIn(tokens.Job{Namespace: "r", ID: "crimson-only"}, 9, "crimson-key", tokens.Settlement{Outcome: tokens.OutcomeUnknown})

	if v := blue.job("job"); v.Floor != 1 || v.Generation != 1 || v.Lease == nil || v.Lease.Owner != "blue-owner" || len(v.Past) != 0 || v.Namespace != "b" {
		t.Errorf("blue's job: %+v", v)
	}
	if v := red.job("job"); v.Floor != 3 || v.Namespace != "r" {
		t.Errorf("red's job: %+v", v)
	}
	if got := ids(as[wire.JobsResponse](blue.get(wire.PathJobs), 200).Jobs); !slices.Equal(got, []string{"job"}) {
		t.Errorf("blue's jobs: %v", got)
	}
	for query, want := range map[string][]string{"": {"job key applied"}, "?state=unknown": nil, "?job_id=job": {"job key applied"}, "?job_id=crimson-only": nil, "?state=applied": {"job key applied"}} {
		var got []string
		for _, w := range as[wire.WritesResponse](blue.get(wire.PathWrites+query), 200).Writes {
			got = append(got, fmt.Sprintf("%s %s %s", w.JobID, w.Key, w.State))
		}
		if !slices.Equal(got, want) {
			t.Errorf("blue's writes %s: %v", query, got)
		}
	}
	if got := as[wire.WritesResponse](red.get(wire.PathWrites+"?state=unknown"), 200).Writes; len(got) != 2 {
		t.Errorf("red's unknown writes: %+v", got)
	}

	// What blue does under red's names is done to blue's own, or to nothing.
	blue.get(wire.PathJob + "?id=crimson-only").problem(wire.CodeJobNotFound)
	blue.post(wire.PathRevoke, `{"job_id":"crimson-only"}`).problem(wire.CodeJobNotFound)
	blue.post(wire.PathReopen, `{"job_id":"crimson-only"}`).problem(wire.CodeJobNotFound)
	blue.post(wire.PathResolve, `{"job_id":"crimson-only","key":"crimson-key","outcome":"applied"}`).problem(wire.CodeWriteNotFound)
	blue.post(wire.PathResolve, `{"job_id":"job","key":"key","outcome":"not-applied"}`).problem(wire.CodeWriteSettled)
	blue.post(wire.PathRenew, renewal(first)).problem(wire.CodeLeaseLost)
	blue.post(wire.PathComplete, completion(first, `1`)).problem(wire.CodeLeaseLost)
	blue.post(wire.PathRelease, release(first)).problem(wire.CodeLeaseLost)
	as[wire.JobView](blue.post(wire.PathRevoke, wire.RevokeRequest{JobID: "job"}), 200)
	as[wire.JobView](blue.post(wire.PathFence, wire.FenceRequest{JobID: "job", Floor: 50}), 200)
	if v := red.job("job"); v.Floor != 3 || v.State != tokens.StateHeld {
		t.Errorf("red's job after blue's doings: %+v", v)
	}
	as[wire.RenewResponse](red.post(wire.PathRenew, renewal(first)), 200)
	if got := as[wire.WritesResponse](red.get(wire.PathWrites+"?job_id=job"), 200).Writes; len(got) != 1 || got[0].State != tokens.WriteUnknown {
		t.Errorf("red's write after blue's doings: %+v", got)
	}

	// Nothing that blue can ask has a word of red's in it.
	var shown strings.Builder
	for call, with := range calls() {
		a := blue.send(callOf(call, strings.ReplaceAll(strings.ReplaceAll(with, `"j"`, `"job"`), "=j", "=job")))
		fmt.Fprintf(&shown, "%s%v\n", a.body, a.header)
	}
	for _, word := range []string{"crimson", `"floor":3`, first.LeaseID} {
		if strings.Contains(shown.String(), word) {
			t.Errorf("blue reads %q in\n%s", word, shown.String())
		}
	}
}

func TestClaimsOfTwoTenantsDoNotStandInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, red, blue := tenants(t)
		red.claim("job", "o", 60000)
		done := make(chan answer)
		go func() {
			done <- red.post(wire.PathClaim, wire.ClaimRequest{JobID: "job", Owner: "second", TTL: 1000, Wait: 5000})
		}()
		synctest.Wait()
		start := time.Now()
		blue.claim("job", "o", 60000)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("blue waited %v", waited)
		}
		(<-done).problem(wire.CodeLeaseHeld)
	})
}

func TestWritesOfManyPrefixesAreListedUpToTheLimit(t *testing.T) {
	r := newGuardedRig(t, principal("p", "n", auth.Operator, "a/", "c/", "d"), principal("all", "n", auth.Operator))
	for _, id := range []string{"a/1", "a/2", "b/1", "c/1", "cc", "d", "e"} {
		as[wire.JobView](r.as("all").post(wire.PathFence, wire.FenceRequest{JobID: id, Floor: 1}), 200)
		for _, key := range []string{"k1", "k2"} {
			r.writeIn(tokens.Job{Namespace: "n", ID: id}, 1, key, tokens.Settlement{Outcome: tokens.OutcomeUnknown})
		}
	}
	all := []string{"a/1 k1", "a/1 k2", "a/2 k1", "a/2 k2", "c/1 k1", "c/1 k2", "d k1", "d k2"}
	for limit := 1; limit <= 10; limit++ {
		for _, state := range []string{"", "&state=unknown"} {
			var got []string
			for _, w := range as[wire.WritesResponse](r.as("p").get(fmt.Sprintf("%s?limit=%d%s", wire.PathWrites, limit, state)), http.StatusOK).Writes {
				got = append(got, w.JobID+" "+w.Key)
			}
			if want := all[:min(limit, len(all))]; !slices.Equal(got, want) {
				t.Errorf("%d of %s: %v", limit, state, got)
			}
		}
	}
}
