package control_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func escape(s string) string { return url.QueryEscape(s) }

func TestARevocationKillsTheGenerationAndIsAudited(t *testing.T) {
	r := newRig(t)
	c := r.claim("j", "a", 30000)
	p := r.post(wire.PathRevoke, wire.RevokeRequest{JobID: "j", Expected: 7, Reason: "wrong"}).problem(wire.CodeGenerationMismatch)
	if p.Generation != 1 || p.Owner != "a" || p.Floor != 1 {
		t.Errorf("%+v", p)
	}
	for range 2 {
		v := as[wire.JobView](r.post(wire.PathRevoke, wire.RevokeRequest{JobID: "j", Expected: 1, Reason: "a died"}), 200)
		if v.Floor != 2 || v.Generation != 1 || v.Lease != nil || v.State != tokens.StateFree || v.RaisedBy != traceParent ||
			len(v.Past) != 1 || v.Past[0] != (wire.PastView{Generation: 1, Owner: "a", Ended: tokens.Revoked}) {
			t.Errorf("%+v", v)
		}
	}
	r.post(wire.PathRenew, renewal(c)).problem(wire.CodeLeaseLost)
	got := r.log.with(t, "operator action")
	if len(got) != 3 {
		t.Fatalf("logged %v", got)
	}
	if l := got[0]; l["result"] != "generation-mismatch" || l["generation"] != 7.0 || l["reason"] != "wrong" {
		t.Errorf("refused: %v", l)
	}
	if l := got[1]; l["action"] != "revoke" || l["result"] != "ok" || l["job_id"] != "j" || l["generation"] != 1.0 || l["floor"] != 2.0 ||
		l["reason"] != "a died" || l["remote"] != "192.0.2.1:1234" || l["trace_id"] != traceID {
		t.Errorf("done: %v", l)
	}
}

func TestAFenceRaisesTheFloorAndNeverLowersIt(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ floor, want tokens.Generation }{{7, 7}, {3, 7}, {8, 8}} {
		v := as[wire.JobView](r.post(wire.PathFence, wire.FenceRequest{JobID: "out", Floor: c.floor}), 200)
		if v.Floor != c.want || v.State != tokens.StateExternal {
			t.Errorf("fence %d: %+v", c.floor, v)
		}
	}
}

func TestACompletedJobIsClaimedAgainOnlyWhenItIsReopened(t *testing.T) {
	r := newRig(t)
	r.post(wire.PathComplete, completion(r.claim("j", "a", 30000), `"done"`))
	if v := r.job("j"); v.State != tokens.StateCompleted || string(v.Result) != `"done"` {
		t.Errorf("%+v", v)
	}
	if v := as[wire.JobView](r.post(wire.PathReopen, wire.ReopenRequest{JobID: "j", Reason: "again"}), 200); v.State != tokens.StateFree {
		t.Errorf("%+v", v)
	}
	if c := r.claim("j", "b", 30000); c.Generation != 2 || c.Predecessor.Ended != tokens.Completed {
		t.Errorf("%+v", c)
	}
}

func TestAJobThatIsNotKnownIsNotFound(t *testing.T) {
	r := newRig(t)
	r.get(wire.PathJob + "?id=nope").problem(wire.CodeJobNotFound)
	r.post(wire.PathRevoke, `{"job_id":"nope"}`).problem(wire.CodeJobNotFound)
	r.post(wire.PathReopen, `{"job_id":"nope"}`).problem(wire.CodeJobNotFound)
	if n := r.stored(); n != 0 {
		t.Errorf("%d records in the store", n)
	}
}

func TestAJobIsShownWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.claim("j", "a", 30000)
		time.Sleep(10 * time.Second)
		as[wire.RenewResponse](r.post(wire.PathRenew, renewal(c)), 200)
		time.Sleep(time.Second)
		v := r.job("j")
		want := wire.LeaseView{
			Owner: "a", TTL: 30000, ExpiresIn: 29000, LeaseUntil: "2000-01-01T00:00:40.000Z",
			Granted: "2000-01-01T00:00:00.000Z", Renewed: "2000-01-01T00:00:10.000Z",
		}
		if v.State != tokens.StateHeld || v.Lease == nil || *v.Lease != want || v.RaisedAt != "2000-01-01T00:00:00.000Z" {
			t.Errorf("%+v, lease %+v", v, v.Lease)
		}
		time.Sleep(time.Minute)
		if v := r.job("j"); v.State != tokens.StateLapsed || v.Lease.ExpiresIn != -31000 {
			t.Errorf("%+v, lease %+v", v, v.Lease)
		}
	})
}

func TestJobsAreListedByPrefixStateAndPage(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a/1", "a/2", "a/3", "b/1"} {
		c := r.claim(id, "o", 30000)
		if id == "a/2" {
			r.post(wire.PathRelease, release(c))
		}
	}
	r.post(wire.PathFence, wire.FenceRequest{JobID: "a/9", Floor: 3})
	for query, want := range map[string][]string{
		"":                            {"a/1", "a/2", "a/3", "a/9", "b/1"},
		"?prefix=a/":                  {"a/1", "a/2", "a/3", "a/9"},
		"?prefix=c":                   {},
		"?state=held":                 {"a/1", "a/3", "b/1"},
		"?state=free":                 {"a/2"},
		"?state=external&prefix=a%2F": {"a/9"},
	} {
		out := as[wire.JobsResponse](r.get(wire.PathJobs+query), 200)
		if got := ids(out.Jobs); !slices.Equal(got, want) || out.Jobs == nil || out.Cursor != "" {
			t.Errorf("%s: %v, cursor %q", query, got, out.Cursor)
		}
	}
	if out := as[wire.JobsResponse](r.get(wire.PathJobs+"?limit=5"), 200); len(out.Jobs) != 5 || out.Cursor != "" {
		t.Errorf("a page that is just full: %d jobs, cursor %q", len(out.Jobs), out.Cursor)
	}
	var all []string
	cursor, pages := "", 0
	for range 10 {
		pages++
		out := as[wire.JobsResponse](r.get(wire.PathJobs+"?state=held&limit=2&cursor="+escape(cursor)), 200)
		all = append(all, ids(out.Jobs)...)
		if cursor = out.Cursor; cursor == "" {
			break
		}
	}
	if !slices.Equal(all, []string{"a/1", "a/3", "b/1"}) || pages != 2 {
		t.Errorf("by %d pages: %v", pages, all)
	}
}

func ids(views []wire.JobView) []string {
	out := []string{}
	for _, v := range views {
		out = append(out, v.JobID)
	}
	return out
}

func TestABadParameterIsRefusedByName(t *testing.T) {
	r := newRig(t)
	for target, field := range map[string]string{
		wire.PathJob: "id", wire.PathJob + "?id=": "id", wire.PathJob + "?id=a%20b": "id", wire.PathJob + "?id=a&id=b": "id", wire.PathJob + "?job=a": "job",
		wire.PathJobs + "?state=gone": "state", wire.PathJobs + "?limit=0": "limit", wire.PathJobs + "?limit=1001": "limit", wire.PathJobs + "?limit=x": "limit",
		wire.PathJobs + "?prefix=a,b": "prefix", wire.PathJobs + "?cursor=%00": "cursor", wire.PathJobs + "?a=%zz": "query", wire.PathJobs + "?page=2": "page",
	} {
		if p := r.get(target).problem(wire.CodeInvalidRequest); p.Field != field || !strings.HasPrefix(p.Detail, field+" ") {
			t.Errorf("%s: %+v", target, p)
		}
	}
}

func TestOnlyAValidTraceIsKept(t *testing.T) {
	r := newRig(t)
	for header, want := range map[string]string{
		traceParent:     traceParent,
		"":              "",
		"00-" + traceID: "",
		"cc" + traceParent[2:] + "-" + strings.Repeat("x", 5000): "cc" + traceParent[2:],
	} {
		req := request(wire.PathFence, `{"job_id":"j`+escape(want)+`","floor":1}`)
		req.Header.Set("Traceparent", header)
		if v := as[wire.JobView](r.send(req), 200); v.RaisedBy != want {
			t.Errorf("%.60q: kept %q", header, v.RaisedBy)
		}
	}
}

func TestEveryCallIsCounted(t *testing.T) {
	r := newRig(t)
	c := r.claim("j", "a", 30000)
	r.post(wire.PathClaim, `{"job_id":"j","owner":"b","ttl_ms":1000}`)
	r.post(wire.PathClaim, `{}`)
	r.post(wire.PathRenew, renewal(c))
	r.post(wire.PathRenewLeases, wire.RenewLeasesRequest{Leases: []wire.RenewRequest{renewal(c), {JobID: "k", Owner: "a", Generation: 1, LeaseID: "l"}}})
	r.post(wire.PathComplete, completion(c, `1`))
	r.post(wire.PathRevoke, `{"job_id":"nope"}`)
	r.post(wire.PathRevoke, `{"job_id":"j","expected_generation":9}`)
	r.post(wire.PathReopen, `{"job_id":"j"}`)
	r.post(wire.PathFence, `{"job_id":"j","floor":9}`)
	r.store.SetErr(http.ErrServerClosed)
	r.post(wire.PathRelease, release(c))
	text := r.metricsText()
	for series, want := range map[string]string{
		"claim granted": "1", "claim held": "1", "claim invalid": "1", "renew ok": "2", "renew lost": "1", "complete ok": "1",
		"revoke not-found": "1", "revoke conflict": "1", "reopen ok": "1", "fence ok": "1", "release unavailable": "1", "claim other": "0",
	} {
		operation, result, _ := strings.Cut(series, " ")
		line := `fenceproxy_lease_operations_total{operation="` + operation + `",result="` + result + `"} ` + want + "\n"
		if !strings.Contains(text, line) {
			t.Errorf("no line %s", line)
		}
	}
}

// FuzzControl holds that no body makes the API fail or grant what it should not: every
// answer is JSON, and 200 and 201 come only with what was asked for.
func FuzzControl(f *testing.F) {
	f.Add(wire.PathClaim, `{"job_id":"j","owner":"o","ttl_ms":1000}`)
	f.Add(wire.PathRenew, `{"job_id":"j","owner":"o","generation":1,"lease_id":"l","ttl_ms":5000}`)
	f.Add(wire.PathRenewLeases, `{"leases":[{"job_id":"j","owner":"o","generation":1,"lease_id":"l"}]}`)
	f.Add(wire.PathFence, `{"job_id":"j","floor":3,"reason":"x"}`)
	f.Add(wire.PathComplete, `{"job_id":"j","owner":"o","generation":1,"lease_id":"l","result":[{}]}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/v1/") || strings.Contains(body, "wait_ms") || strings.Contains(body, "settle_ms") || strings.ContainsAny(path, " \t\r\n%?#\x7f") {
			return
		}
		if _, err := url.ParseRequestURI(path); err != nil {
			return
		}
		r := newRig(t)
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, request(path, body))
		if !json.Valid(w.Body.Bytes()) || w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if _, commits := r.store.Counts(); commits > 0 && w.Code >= 300 {
			t.Fatalf("%d commits after %d %s", commits, w.Code, w.Body)
		}
	})
}
