package control_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// tokenFor is the bearer token of a test's principal; no other text has it in it.
func tokenFor(name string) string { return "t0ken-of-" + name }

// principal is an entry whose token is tokenFor its name.
func principal(name, namespace string, roles auth.Role, jobs ...string) auth.Entry {
	hash := auth.Hash(sha256.Sum256([]byte(tokenFor(name))))
	if jobs == nil {
		jobs = []string{""}
	}
	return auth.Entry{Name: name, Token: &hash, Namespace: namespace, Roles: roles, Jobs: jobs}
}

func newGuardedRig(t *testing.T, entries ...auth.Entry) *rig {
	t.Helper()
	return newRig(t, func(opt *control.Options) { opt.Principals = current(t, entries...) })
}

func current(t *testing.T, entries ...auth.Entry) *auth.Current {
	t.Helper()
	ps, err := auth.New(entries, false)
	if err != nil {
		t.Fatal(err)
	}
	c := &auth.Current{}
	c.Swap(ps)
	return c
}

// as is the rig for calls with a principal's token.
func (r *rig) as(name string) *rig {
	out := *r
	out.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Set("Authorization", "Bearer "+tokenFor(name))
		r.handler.ServeHTTP(w, req)
	})
	return &out
}

// calls are all that the API can be asked, by method and path; the bodies are valid.
func calls() map[string]string {
	return map[string]string{
		"POST " + wire.PathClaim:       `{"job_id":"j","owner":"o","ttl_ms":30000}`,
		"POST " + wire.PathRenew:       `{"job_id":"j","owner":"o","generation":1,"lease_id":"l"}`,
		"POST " + wire.PathComplete:    `{"job_id":"j","owner":"o","generation":1,"lease_id":"l"}`,
		"POST " + wire.PathRelease:     `{"job_id":"j","owner":"o","generation":1,"lease_id":"l"}`,
		"POST " + wire.PathRenewLeases: `{"leases":[{"job_id":"j","owner":"o","generation":1,"lease_id":"l"}]}`,
		"POST " + wire.PathRevoke:      `{"job_id":"j"}`,
		"POST " + wire.PathFence:       `{"job_id":"j","floor":1}`,
		"POST " + wire.PathReopen:      `{"job_id":"j"}`,
		"POST " + wire.PathResolve:     `{"job_id":"j","key":"k","outcome":"applied"}`,
		"GET " + wire.PathJobs:         "",
		"GET " + wire.PathJob:          "?id=j",
		"GET " + wire.PathWrites:       "?job_id=j",
		"GET " + wire.PathMetrics:      "",
		"GET " + wire.PathHealth:       "",
		"GET " + wire.PathReady:        "",
	}
}

// callOf makes one of calls.
func callOf(call, with string) *http.Request {
	method, path, _ := strings.Cut(call, " ")
	if method == http.MethodGet {
		return httptest.NewRequest(method, path+with, nil)
	}
	return request(path, with)
}

func TestTheTableOfCallsHasEveryRoute(t *testing.T) {
	r := newRig(t)
	known := calls()
	err := chi.Walk(r.handler.(chi.Routes), func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if _, ok := known[method+" "+path]; !ok {
			t.Errorf("%s %s is not in the table: nobody has tested who may call it", method, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWithoutACredentialNothingButHealthIsAnswered(t *testing.T) {
	r := newGuardedRig(t, principal("op", "", auth.Operator))
	for call, with := range calls() {
		open := call == "GET "+wire.PathHealth || call == "GET "+wire.PathReady
		a := r.send(callOf(call, with))
		if open {
			if a.status != http.StatusOK {
				t.Errorf("%s: %d", call, a.status)
			}
			continue
		}
		a.problem(wire.CodeUnauthenticated)
		if got := a.header.Get("WWW-Authenticate"); got != "Bearer" {
			t.Errorf("%s: WWW-Authenticate %q", call, got)
		}
	}
	for _, path := range []string{"/", "/nothing", "/openapi.yaml", "/v1", "/%68ealthz", "/healthz/", "/healthz/x", "//healthz", "/debug/pprof/"} {
		r.get(path).problem(wire.CodeUnauthenticated)
	}
	r.send(httptest.NewRequest("DELETE", wire.PathJobs, nil)).problem(wire.CodeUnauthenticated)
	r.send(httptest.NewRequest("FOO", wire.PathHealth+"x", nil)).problem(wire.CodeUnauthenticated)
	if n := r.stored(); n != 0 {
		t.Errorf("%d records in the store", n)
	}
	r.as("op").get("/nothing").problem(wire.CodeNotFound)
	if got := r.as("op").metricsText(); !strings.Contains(got, `fenceproxy_lease_operations_total{operation="other",result="unauthenticated"}`) {
		t.Error("not counted")
	}
}

func TestAWrongCredentialIsRefusedLikeNone(t *testing.T) {
	r := newGuardedRig(t, principal("op", "", auth.Operator))
	none := string(r.get(wire.PathJobs).body)
	good := "Bearer " + tokenFor("op")
	for _, values := range [][]string{
		{""}, {"Bearer"}, {"Bearer "}, {"Bearer x"}, {"Bearer op"}, {good + "x"}, {good[:len(good)-1]}, {"Basic " + tokenFor("op")}, {tokenFor("op")},
		{good, good}, {good, ""}, {good, "Bearer x"}, {"Bearer " + strings.ToUpper(tokenFor("op"))}, {good + ", " + good},
	} {
		req := httptest.NewRequest(http.MethodGet, wire.PathJobs, nil)
		req.Header["Authorization"] = values
		a := r.send(req)
		a.problem(wire.CodeUnauthenticated)
		if string(a.body) != none {
			t.Errorf("%q is answered differently from no credential: %s", values, a.body)
		}
	}
	for _, values := range [][]string{{good}, {"bearer " + tokenFor("op")}} {
		req := httptest.NewRequest(http.MethodGet, wire.PathJobs, nil)
		req.Header["Authorization"] = values
		if a := r.send(req); a.status != http.StatusOK {
			t.Errorf("%q: %d", values, a.status)
		}
	}
}

func TestEachRoleMayDoWhatItIsForAndNothingElse(t *testing.T) {
	reads := []string{"GET " + wire.PathJobs, "GET " + wire.PathJob, "GET " + wire.PathWrites}
	leases := []string{"POST " + wire.PathClaim, "POST " + wire.PathRenew, "POST " + wire.PathComplete, "POST " + wire.PathRelease, "POST " + wire.PathRenewLeases}
	may := map[string][]string{
		"worker":   slices.Concat(reads, leases),
		"issuer":   {"POST " + wire.PathFence},
		"viewer":   slices.Concat(reads, []string{"GET " + wire.PathMetrics}),
		"operator": slices.Collect(maps.Keys(calls())),
		"nobody":   nil,
	}
	roles := map[string]auth.Role{"worker": auth.Worker, "issuer": auth.Issuer, "viewer": auth.Viewer, "operator": auth.Operator, "nobody": 0}
	for name, role := range roles {
		for call, with := range calls() {
			if call == "GET "+wire.PathHealth || call == "GET "+wire.PathReady {
				continue
			}
			r := newGuardedRig(t, principal(name, "", role))
			a := r.as(name).send(callOf(call, with))
			if slices.Contains(may[name], call) {
				if a.status == http.StatusForbidden || a.status == http.StatusUnauthorized {
					t.Errorf("%s may not %s: %s", name, call, a.body)
				}
				continue
			}
			a.problem(wire.CodeForbidden)
			if n := r.stored(); n != 0 {
				t.Errorf("%s, forbidden to %s: %d records", call, name, n)
			}
		}
	}
}

func TestAJobOutsideThePrefixesIsForbiddenWhetherItExistsOrNot(t *testing.T) {
	r := newGuardedRig(t, principal("all", "", auth.Operator), principal("some", "", auth.Operator, "mine/", "k"))
	held := r.as("all").claim("other", "owner-of-other", 30000)
	for call, with := range calls() {
		if !strings.Contains(with, "j") || call == "POST "+wire.PathRenewLeases {
			continue
		}
		ask := func(id string) answer {
			return r.as("some").send(callOf(call, strings.NewReplacer(`"j"`, `"`+id+`"`, "=j", "="+id).Replace(with)))
		}
		there, nowhere := ask("other"), ask("nowhr") // of the same length
		p := there.problem(wire.CodeForbidden)
		if p.Floor != 0 || p.Owner != "" || strings.ReplaceAll(string(there.body), "other", "nowhr") != string(nowhere.body) {
			t.Errorf("%s: a job that exists is answered by\n%sand one that does not by\n%s", call, there.body, nowhere.body)
		}
	}
	if v := r.as("all").job("other"); v.Floor != 1 || v.Lease == nil {
		t.Errorf("the job has changed: %+v", v)
	}
	// Each lease of many has an answer of its own.
	mine := r.as("some").claim("mine/1", "o", 30000)
	out := as[wire.RenewLeasesResponse](r.as("some").post(wire.PathRenewLeases, wire.RenewLeasesRequest{Leases: []wire.RenewRequest{renewal(held), renewal(mine)}}), 200)
	if out.Leases[0].Status != 403 || out.Leases[0].Problem.Code != wire.CodeForbidden.Name || out.Leases[1].Status != 200 {
		t.Errorf("%+v", out.Leases)
	}
}

func TestListsHaveTheOwnJobsOnlyOnEveryPage(t *testing.T) {
	r := newGuardedRig(t, principal("all", "", auth.Operator), principal("some", "", auth.Viewer, "b/", "a/", "a/2", "z"),
		principal("none", "", auth.Viewer, "nothing-has-this"), principal("other", "elsewhere", auth.Operator))
	for _, id := range []string{"!", "a", "a/1", "a/2", "a/3", "a0", "b", "b/1", "b/2", "b0", "y", "z", "z9", "~"} {
		r.as("all").claim(id, "o", 30000)
	}
	r.as("other").claim("a/1", "o", 30000)
	for _, c := range []struct {
		who, query string
		want       []string
	}{
		{"some", "", []string{"a/1", "a/2", "a/3", "b/1", "b/2", "z", "z9"}},
		{"some", "?prefix=a", []string{"a/1", "a/2", "a/3"}},
		{"some", "?prefix=a/2", []string{"a/2"}},
		{"some", "?prefix=y", []string{}},
		{"some", "?state=held&prefix=b", []string{"b/1", "b/2"}},
		{"some", "?cursor=a0", []string{"b/1", "b/2", "z", "z9"}},
		{"some", "?cursor=" + escape("~"), []string{}},
		{"none", "", []string{}},
		{"other", "", []string{"a/1"}},
	} {
		out := as[wire.JobsResponse](r.as(c.who).get(wire.PathJobs+c.query), 200)
		if got := ids(out.Jobs); !slices.Equal(got, c.want) || out.Cursor != "" || out.Jobs == nil {
			t.Errorf("%s %s: %v, cursor %q", c.who, c.query, got, out.Cursor)
		}
	}
	for limit := 1; limit <= 8; limit++ {
		var all []string
		for cursor, pages := "", 0; pages < 20; pages++ {
			out := as[wire.JobsResponse](r.as("some").get(fmt.Sprintf("%s?limit=%d&cursor=%s", wire.PathJobs, limit, escape(cursor))), 200)
			all = append(all, ids(out.Jobs)...)
			if cursor = out.Cursor; cursor == "" {
				break
			}
			if !slices.Contains(all, cursor) {
				t.Errorf("the cursor %q is no job that was shown", cursor)
			}
		}
		if want := []string{"a/1", "a/2", "a/3", "b/1", "b/2", "z", "z9"}; !slices.Equal(all, want) {
			t.Errorf("by %d: %v", limit, all)
		}
	}
}

func TestMetricsTellOfAllTenantsSoNoTenantReadsThem(t *testing.T) {
	r := newGuardedRig(t, principal("all", "", auth.Viewer), principal("some", "", auth.Viewer, "a/"), principal("other", "n", auth.Operator), principal("worker", "", auth.Worker))
	if a := r.as("all").get(wire.PathMetrics); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, name := range []string{"some", "other", "worker"} {
		r.as(name).get(wire.PathMetrics).problem(wire.CodeForbidden)
	}
}

func TestWhoOnlyRaisesFloorsIsNotToldWhoHoldsTheJob(t *testing.T) {
	r := newGuardedRig(t, principal("all", "", auth.Operator), principal("lock", "", auth.Issuer))
	r.as("all").claim("j", "owner-of-j", 30000)
	got := r.as("lock").post(wire.PathFence, wire.FenceRequest{JobID: "j", Floor: 1})
	if body := string(got.body); got.status != 200 || !strings.Contains(body, `"floor":1`) || strings.Contains(body, "owner-of-j") {
		t.Errorf("%d: %s", got.status, body)
	}
}

func TestAnOperatorActionSaysWho(t *testing.T) {
	r := newGuardedRig(t, principal("ann", "n", auth.Operator))
	c := r.as("ann").claim("j", "label", 30000)
	r.as("ann").post(wire.PathRevoke, wire.RevokeRequest{JobID: "j", Expected: c.Generation, Reason: "why"})
	r.as("ann").post(wire.PathResolve, wire.ResolveRequest{JobID: "j", Key: "k", Outcome: "applied"})
	got := r.log.with(t, "operator action")
	if len(got) != 2 {
		t.Fatalf("%v", got)
	}
	for _, l := range got {
		if l["who"] != "ann" || l["namespace"] != "n" || l["job_id"] != "j" {
			t.Errorf("%v", l)
		}
	}
	r.as("ann").send(httptest.NewRequest("GET", wire.PathMetrics, nil))
	if got := r.log.with(t, "access refused"); len(got) != 1 || got[0]["who"] != "ann" || got[0]["code"] != "forbidden" || got[0]["path"] != wire.PathMetrics {
		t.Errorf("%v", got)
	}
}

// withCertificate is a request over TLS with a verified certificate.
func withCertificate(req *http.Request, commonName string) *http.Request {
	leaf := &x509.Certificate{DNSNames: []string{commonName}}
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, {}}}}
	return req
}

func TestACertificateCountsWhereNoTokenIsSent(t *testing.T) {
	r := newGuardedRig(t, principal("op", "by-token", auth.Operator), auth.Entry{Name: "cert", Certificate: "c.example", Namespace: "by-certificate", Roles: auth.Operator, Jobs: []string{""}})
	get := func() *http.Request { return httptest.NewRequest(http.MethodGet, wire.PathJobs, nil) }
	if a := r.send(withCertificate(get(), "c.example")); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.send(withCertificate(get(), "d.example")).problem(wire.CodeUnauthenticated)
	unverified := withCertificate(get(), "c.example")
	unverified.TLS.VerifiedChains = nil
	r.send(unverified).problem(wire.CodeUnauthenticated)
	// A token that is sent has to be valid, and then it counts.
	both := withCertificate(get(), "c.example")
	both.Header.Set("Authorization", "Bearer wrong")
	r.send(both).problem(wire.CodeUnauthenticated)
	both = withCertificate(request(wire.PathClaim, `{"job_id":"j","owner":"o","ttl_ms":30000}`), "c.example")
	both.Header.Set("Authorization", "Bearer "+tokenFor("op"))
	if a := r.send(both); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if v := r.as("op").job("j"); v.Namespace != "by-token" {
		t.Errorf("%+v", v)
	}
}

func TestWhoIsTakenOutOfTheFileIsRefusedAtOnce(t *testing.T) {
	who := current(t, principal("a", "", auth.Operator))
	r := newRig(t, func(opt *control.Options) { opt.Principals = who })
	r.as("a").claim("j", "o", 30000)
	ps, err := auth.New([]auth.Entry{principal("b", "", auth.Operator)}, false)
	if err != nil {
		t.Fatal(err)
	}
	who.Swap(ps)
	r.as("a").get(wire.PathJobs).problem(wire.CodeUnauthenticated)
	r.as("b").job("j")
}

func TestWhyNothingIsServedIsToldToPrincipalsOnly(t *testing.T) {
	r := newRig(t, func(opt *control.Options) {
		opt.Principals = current(t, principal("v", "n", auth.Viewer))
		opt.Ready = func() error { return errors.New("open /srv/secret-place: no space") }
	})
	if p := r.get(wire.PathReady).problem(wire.CodeOverloaded); strings.Contains(p.Detail, "secret-place") {
		t.Errorf("told to anybody: %s", p.Detail)
	}
	if p := r.as("x").get(wire.PathReady).problem(wire.CodeOverloaded); strings.Contains(p.Detail, "secret-place") {
		t.Errorf("told to a stranger: %s", p.Detail)
	}
	if p := r.as("v").get(wire.PathReady).problem(wire.CodeOverloaded); !strings.Contains(p.Detail, "secret-place") {
		t.Errorf("not told: %s", p.Detail)
	}
}

func TestAPageOfAnotherOriginIsRefusedWithACredentialToo(t *testing.T) {
	r := newGuardedRig(t, principal("a", "", auth.Operator))
	req := request(wire.PathRevoke, `{"job_id":"j"}`)
	req.Header.Set("Origin", "https://elsewhere.example")
	r.as("a").send(req).problem(wire.CodeForbidden)
}

func TestNoTokenIsInAnyAnswerLogOrMetric(t *testing.T) {
	r := newGuardedRig(t, principal("op", "", auth.Operator), principal("w", "n", auth.Worker, "mine/"))
	var shown strings.Builder
	for _, name := range []string{"op", "w", "stranger"} {
		for call, with := range calls() {
			a := r.as(name).send(callOf(call, with))
			fmt.Fprintf(&shown, "%s%v\n", a.body, a.header)
		}
	}
	all := shown.String() + r.log.String() + r.as("op").metricsText()
	for _, name := range []string{"op", "w", "stranger"} {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(tokenFor(name))))
		if strings.Contains(all, tokenFor(name)) || strings.Contains(all, hash) {
			t.Errorf("the token of %s was shown", name)
		}
	}
}

// signalling tells when somebody begins to read it.
type signalling struct {
	io.Reader
	begun chan struct{}
	once  sync.Once
}

func (s *signalling) Read(p []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	return s.Reader.Read(p)
}

func TestAClaimThatWaitsEndsWhenItsCallerIsShutOut(t *testing.T) {
	stays, held := principal("stays", "", auth.Worker), principal("held", "", auth.Worker)
	gone := principal("gone", "", auth.Worker)
	for name, after := range map[string][]auth.Entry{
		"TakenOut": {stays, held}, "NoWorker": {stays, held, principal("gone", "", auth.Viewer)},
		"OtherPrefix": {stays, held, principal("gone", "", auth.Worker, "x/")}, "OtherNamespace": {stays, held, principal("gone", "n", auth.Worker)},
	} {
		t.Run(name, func(t *testing.T) {
			who := current(t, stays, held, gone)
			r := newRig(t, func(opt *control.Options) { opt.Principals = who })
			lease := r.as("held").claim("j", "a", 60000)
			ask := func(name string) chan answer {
				got := make(chan answer, 1)
				body := &signalling{Reader: strings.NewReader(`{"job_id":"j","owner":"` + name + `","ttl_ms":60000,"wait_ms":60000}`), begun: make(chan struct{})}
				req := httptest.NewRequest(http.MethodPost, wire.PathClaim, body)
				go func() { got <- r.as(name).send(req) }()
				<-body.begun // so it has been let in
				return got
			}
			shut, waits := ask("gone"), ask("stays")
			ps, err := auth.New(after, false)
			if err != nil {
				t.Fatal(err)
			}
			who.Swap(ps)
			(<-shut).problem(wire.CodeForbidden)
			r.as("held").post(wire.PathRelease, fmt.Sprintf(`{"job_id":"j","owner":"a","generation":%d,"lease_id":%q}`, lease.Generation, lease.LeaseID))
			if a := <-waits; a.status != http.StatusCreated {
				t.Errorf("who stays: %d %s", a.status, a.body)
			}
		})
	}
}
