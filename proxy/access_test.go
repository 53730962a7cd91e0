package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// certifier issues client certificates.
type certifier struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCertifier(t *testing.T) *certifier {
	t.Helper()
	c := &certifier{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c.cert, c.key = c.make(template, template, nil)
	return c
}

func (c *certifier) make(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return cert, key
}

// client returns a certificate with a common name.
func (c *certifier) client(name string) tls.Certificate {
	c.t.Helper()
	cert, key := c.make(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: c.cert.NotBefore, NotAfter: c.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, c.cert, c.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// doorFixture is a fixture whose callers come over TLS.
type doorFixture struct {
	*fixture
	ca  *certifier
	tls *httptest.Server
}

// newDoorFixture has principals a and b with the namespaces "a" and "b", c with the
// prefix "mine/", and v, which is no worker. Each is known by its name in a certificate.
func newDoorFixture(t *testing.T, upstreamURL string, certified bool, change ...func(*Route)) *doorFixture {
	t.Helper()
	ps, err := auth.New([]auth.Entry{
		{Name: "principal-a", Certificate: "a", Namespace: "a", Roles: auth.Worker, Jobs: []string{""}},
		{Name: "principal-b", Certificate: "b", Namespace: "b", Roles: auth.Worker, Jobs: []string{""}},
		{Name: "principal-c", Certificate: "c", Roles: auth.Worker, Jobs: []string{"mine/"}},
		{Name: "principal-v", Certificate: "v", Roles: auth.Viewer | auth.Issuer, Jobs: []string{""}},
	}, certified)
	if err != nil {
		t.Fatal(err)
	}
	f := &doorFixture{fixture: newFixture(t, upstreamURL, change...), ca: newCertifier(t)}
	f.proxy.table.Load().principals = ps
	pool := x509.NewCertPool()
	pool.AddCert(f.ca.cert)
	f.tls = httptest.NewUnstartedServer(f.proxy)
	f.tls.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	f.tls.Config.BaseContext = func(net.Listener) context.Context { return f.proxy.Base() }
	f.tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.tls.StartTLS()
	t.Cleanup(f.tls.Close)
	return f
}

// as is a client with a certificate, or with none if the name is empty.
func (f *doorFixture) as(name string) *http.Client {
	f.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(f.tls.Certificate())
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		config.Certificates = []tls.Certificate{f.ca.client(name)}
	}
	tr := &http.Transport{TLSClientConfig: config}
	f.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (f *doorFixture) do(c *http.Client, method, job, generation, key string) reply {
	f.t.Helper()
	r, err := http.NewRequest(method, f.tls.URL+"/charge", strings.NewReader("amount=1"))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer of-the-upstream")
	for name, value := range map[string]string{"Fence-Job-Id": job, "Fence-Generation": generation, "Idempotency-Key": key} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	res, err := c.Do(r)
	if err != nil {
		return reply{err: err}
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return reply{Response: res, body: string(b), err: err}
}

func TestWritersOfTwoTenantsWithTheSameIdsHaveFloorsAndRepliesOfTheirOwn(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		var n atomic.Int64
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.Header.Get("Authorization") != "Bearer of-the-upstream" {
				t.Errorf("Authorization %q reached the upstream", r.Header.Get("Authorization"))
			}
			fmt.Fprintf(w, "reply %d", n.Add(1))
		})
		f := newDoorFixture(t, u.URL, true, sender, func(r *Route) {
			r.Namespace, r.StoreReply, r.MaxReply, r.Retention = "of-the-route", true, 1<<10, time.Hour
		})
		a, b := f.as("a"), f.as("b")
		ra := f.do(a, "POST", "job", "9", "key")
		want(t, ra, 200, "forwarded", "", "applied")
		rb := f.do(b, "POST", "job", "1", "key")
		want(t, rb, 200, "forwarded", "", "applied")
		if ra.body != "reply 1" || rb.body != "reply 2" || ra.Header.Get("Fence-Generation") != "9" || rb.Header.Get("Fence-Generation") != "1" {
			t.Errorf("a got %q at floor %s, b got %q at floor %s", ra.body, ra.Header.Get("Fence-Generation"), rb.body, rb.Header.Get("Fence-Generation"))
		}
		for c, reply := range map[*http.Client]string{a: "reply 1", b: "reply 2"} {
			generation := map[*http.Client]string{a: "9", b: "1"}[c]
			r := f.do(c, "POST", "job", generation, "key")
			want(t, r, 200, "replayed", "", "applied")
			if r.body != reply {
				t.Errorf("replayed %q, want %q", r.body, reply)
			}
		}
		want(t, f.do(a, "POST", "job", "8", ""), 412, "refused", "stale-generation", "")
		want(t, f.do(b, "POST", "job", "8", ""), 200, "forwarded", "", "applied")
		for ns, floor := range map[string]tokens.Generation{"a": 9, "b": 8, "of-the-route": 0, "": 0} {
			if got := f.authority.Floor(tokens.Job{Namespace: ns, ID: "job"}); got != floor {
				t.Errorf("floor in namespace %q: %d, want %d", ns, got, floor)
			}
		}
		if logs := f.logs.String(); !strings.Contains(logs, `"namespace":"a","who":"principal-a"`) || strings.Contains(logs, "of-the-route") || strings.Contains(logs, "of-the-upstream") {
			t.Errorf("logs:\n%s", logs)
		}
	})
}

func TestAJobOutsideTheWritersPrefixesIsForbiddenAndTellsNoFloor(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true)
	f.claim("other")
	f.claim("mine/1")
	c := f.as("c")
	var bodies []string
	for _, job := range []string{"other", "nowhr"} {
		for _, generation := range []string{"1", "7"} {
			r := f.do(c, "POST", job, generation, "key")
			want(t, r, 403, "refused", "forbidden", "")
			if r.Header.Get("Fence-Generation") != "" || strings.Contains(r.body, `"floor"`) {
				t.Errorf("the answer tells a floor: %v %s", r.Header, r.body)
			}
			bodies = append(bodies, strings.ReplaceAll(r.body, "other", "nowhr"))
		}
	}
	if bodies[0] != bodies[2] || bodies[1] != bodies[3] {
		t.Errorf("a job that exists is answered differently: %q", bodies)
	}
	if u.conns.Load() != 0 {
		t.Error("the upstream was spoken to")
	}
	want(t, f.do(c, "POST", "mine/1", "1", ""), 200, "forwarded", "", "applied")
}

func TestAWriteOfNobodyIsForbiddenBeforeItIsJudged(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true)
	for _, name := range []string{"stranger", "v", "", "principal-a", "A"} {
		c := f.as(name)
		for _, job := range []string{"job", "", "in valid"} { // the first would be let through, the others are faulty
			r := f.do(c, "POST", job, "1", "")
			want(t, r, 403, "refused", "forbidden", "")
			if r.Header.Get("Fence-Generation") != "" {
				t.Errorf("%q: the answer tells a floor", name)
			}
		}
	}
	if u.conns.Load() != 0 {
		t.Error("the upstream was spoken to")
	}
	// A read is not fenced, and so is whatever the route lets through.
	if r := f.do(f.as("stranger"), "GET", "", "", ""); r.err != nil || r.StatusCode != 200 {
		t.Errorf("a read: %+v", r)
	}
}

func TestAnOptionalFenceDoesNotLetNobodysWritesThrough(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true, func(r *Route) { r.Fencing = FencingOptional })
	want(t, f.do(f.as("stranger"), "POST", "", "", ""), 403, "refused", "forbidden", "")
	if r := f.do(f.as("a"), "POST", "", "", ""); r.err != nil || r.StatusCode != 200 {
		t.Errorf("a known writer without a fence: %+v", r)
	}
}

func TestWhereWritersAreNotAskedForACertificateItMeansNothing(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, false, func(r *Route) { r.Namespace = "of-the-route" })
	for _, name := range []string{"a", "stranger", ""} {
		want(t, f.do(f.as(name), "POST", "job", "3", ""), 200, "forwarded", "", "applied")
	}
	if got := f.authority.Floor(tokens.Job{Namespace: "of-the-route", ID: "job"}); got != 3 {
		t.Errorf("floor %d", got)
	}
	f.proxy.table.Load().principals = nil
	want(t, f.do(f.as("a"), "POST", "job", "3", ""), 200, "forwarded", "", "applied")
}

func TestALeaseTiesACertifiedWriterToTheClaimOfItsNamespace(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true, func(r *Route) { r.RequireLease = true })
	g, err := f.authority.Claim(context.Background(), tokens.ClaimRequest{Job: tokens.Job{Namespace: "a", ID: "job"}, Owner: "o", TTL: 60_000}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	send := func(c *http.Client) reply {
		r, _ := http.NewRequest("POST", f.tls.URL+"/charge", strings.NewReader("x"))
		r.Header["Fence-Job-Id"], r.Header["Fence-Generation"], r.Header["Fence-Lease"] = []string{"job"}, []string{"1"}, []string{g.Lease.ID}
		res, err := c.Do(r)
		if err != nil {
			return reply{err: err}
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		return reply{Response: res, body: string(b), err: err}
	}
	want(t, send(f.as("a")), 200, "forwarded", "", "applied")
	want(t, send(f.as("b")), 412, "refused", "lease-mismatch", "")
}

// meanwhile is a context that calls f while a request is between its arrival and its judgement.
type meanwhile struct {
	context.Context
	f func()
}

func (m *meanwhile) Value(key any) any { m.f(); return m.Context.Value(key) }

// A route and who may write by it are one: a reload in the middle of a request opens no door.
func TestNoRequestMeetsARouteWithThePrincipalsOfAnotherConfiguration(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true)
	who := f.proxy.table.Load().principals
	r := httptest.NewRequest("POST", "/x", strings.NewReader("amount=1"))
	r.Header.Set("Fence-Job-Id", "job")
	r.Header.Set("Fence-Generation", "1")
	reloaded := false
	r = r.WithContext(&meanwhile{r.Context(), func() {
		if !reloaded {
			reloaded = true
			if err := f.proxy.SetRoutes([]Route{routeTo(t, "open", "/", u.URL)}, 0, nil); err != nil {
				t.Error(err)
			}
		}
	}})
	w := httptest.NewRecorder()
	f.proxy.ServeHTTP(w, r)
	if !reloaded || w.Code != 403 {
		t.Errorf("reloaded %v: %d %s", reloaded, w.Code, w.Body)
	}
	if err := f.proxy.SetRoutes([]Route{routeTo(t, "closed", "/", u.URL)}, 0, who); err != nil {
		t.Fatal(err)
	}
	want(t, f.do(f.as(""), "POST", "job", "3", ""), 403, "refused", "forbidden", "")
	want(t, f.do(f.as("a"), "POST", "job", "3", ""), 200, "forwarded", "", "applied")
}

func TestARefusalForLackOfRoomHasNoFloorOfAnotherTenant(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true)
	f.claim("job") // in the namespace of the route, which is also c's and v's
	want(t, f.do(f.as("a"), "POST", "job", "9", ""), 200, "forwarded", "", "applied")
	f.proxy.Drain(context.Background())
	for name, floor := range map[string]string{"a": "9", "b": "", "c": "", "v": "", "": ""} {
		got := f.do(f.as(name), "POST", "job", "9", "")
		want(t, got, 503, "refused", "overloaded", "")
		if h := got.Header.Get("Fence-Generation"); h != floor || (problemOf(t, got).Floor != 0) != (floor != "") {
			t.Errorf("%q is told the floor %q, want %q: %s", name, h, floor, got.body)
		}
	}
}
