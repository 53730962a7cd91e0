package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func hashOf(token string) *Hash {
	h := Hash(sha256.Sum256([]byte(token)))
	return &h
}

func mustNew(t testing.TB, entries ...Entry) *Principals {
	t.Helper()
	ps, err := New(entries, false)
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func nameOf(p *Principal) string {
	if p == nil {
		return ""
	}
	return p.Name()
}

func TestATokenFindsItsPrincipalAndNoOther(t *testing.T) {
	ps := mustNew(t, Entry{Name: "a", Token: hashOf("alpha")}, Entry{Name: "b", Token: hashOf("beta")}, Entry{Name: "c", Certificate: "c.example"})
	for token, want := range map[string]string{"alpha": "a", "beta": "b", "": "", "alph": "", "alphaa": "", "Alpha": "", "a": "", "c.example": ""} {
		if got := nameOf(ps.Bearer(token)); got != want {
			t.Errorf("token %q is %q's, want %q", token, got, want)
		}
	}
	if got := mustNew(t, Entry{Name: "c", Certificate: "c"}).Bearer(""); got != nil {
		t.Errorf("without tokens the empty one is %q's", got.Name())
	}
}

func TestATokenIsComparedWithEveryHash(t *testing.T) {
	var entries []Entry
	for i := range 5 {
		entries = append(entries, Entry{Name: fmt.Sprint(i), Token: hashOf(fmt.Sprint("token ", i))})
	}
	ps := mustNew(t, entries...)
	for _, token := range []string{"token 0", "token 2", "token 4", "none"} {
		var seen []Hash
		ps.same = func(a, b []byte) int {
			if len(a) != sha256.Size {
				t.Errorf("%d bytes are compared: no hash", len(a))
			}
			seen = append(seen, Hash(b))
			return subtle.ConstantTimeCompare(a, b)
		}
		ps.Bearer(token)
		if len(seen) != len(entries) {
			t.Errorf("%s: compared with %d hashes of %d", token, len(seen), len(entries))
		}
		for i, e := range entries[:min(len(seen), len(entries))] {
			if seen[i] != *e.Token {
				t.Errorf("%s: comparison %d is with another hash", token, i)
			}
		}
	}
}

func TestTwoPrincipalsNeverShareANameOrACredential(t *testing.T) {
	for name, entries := range map[string][]Entry{
		"name":        {{Name: "a", Token: hashOf("1")}, {Name: "a", Token: hashOf("2")}},
		"token":       {{Name: "a", Token: hashOf("1")}, {Name: "b", Token: hashOf("1")}},
		"certificate": {{Name: "a", Certificate: "x"}, {Name: "b", Certificate: "x"}},
	} {
		if ps, err := New(entries, false); ps != nil || !errors.Is(err, ErrTwice) {
			t.Errorf("%s: %v, %v", name, ps, err)
		}
	}
}

func certificate(commonNames []string, dns, email []string, uris ...string) *x509.Certificate {
	c := &x509.Certificate{DNSNames: dns, EmailAddresses: email}
	for _, n := range commonNames {
		c.Subject.Names = append(c.Subject.Names, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: n})
		c.Subject.CommonName = n // the last one, as the library has it
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			panic(err)
		}
		c.URIs = append(c.URIs, parsed)
	}
	return c
}

func TestACertificateFindsThePrincipalWithOneOfItsWholeNames(t *testing.T) {
	ps := mustNew(t, Entry{Name: "a", Certificate: "a.example"}, Entry{Name: "s", Certificate: "spiffe://example/batch"},
		Entry{Name: "m", Certificate: "m@example"}, Entry{Name: "t", Token: hashOf("t.example")}, Entry{Name: "w", Certificate: "*.wild.example"})
	for _, c := range []struct {
		name string
		cert *x509.Certificate
		want string
	}{
		{"the common name", certificate([]string{"a.example"}, nil, nil), "a"},
		{"a DNS name", certificate([]string{"other"}, []string{"x", "a.example"}, nil), "a"},
		{"a URI", certificate(nil, nil, nil, "spiffe://example/batch"), "s"},
		{"an email", certificate(nil, nil, []string{"m@example"}), "m"},
		{"the same name twice", certificate([]string{"a.example"}, []string{"a.example"}, nil), "a"},
		{"no name", certificate(nil, nil, nil), ""},
		{"an empty name", certificate([]string{""}, []string{""}, nil), ""},
		{"a longer name", certificate([]string{"a.example.evil"}, []string{"xa.example"}, nil), ""},
		{"a shorter name", certificate([]string{"a.exampl"}, nil, nil), ""},
		{"another case", certificate([]string{"A.example"}, []string{"A.EXAMPLE"}, nil), ""},
		{"a name with a NUL", certificate([]string{"a.example\x00.evil"}, nil, nil), ""},
		{"under a wildcard", certificate([]string{"x.wild.example"}, nil, nil), ""},
		{"a longer URI", certificate(nil, nil, nil, "spiffe://example/batch/2"), ""},
		{"the name of a principal, which is no credential", certificate([]string{"a"}, nil, nil), ""},
		{"a token of one, which is no certificate", certificate([]string{"t.example"}, nil, nil), ""},
		{"two principals", certificate([]string{"a.example"}, nil, []string{"m@example"}), ""},
		{"two principals, and one of them again", certificate([]string{"a.example"}, []string{"a.example"}, []string{"m@example"}), ""},
		{"two common names", certificate([]string{"b.example", "a.example"}, nil, nil), ""},
	} {
		if got := nameOf(ps.Certificate(c.cert)); got != c.want {
			t.Errorf("%s: is %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRolesAllowWhatTheyAreFor(t *testing.T) {
	for _, c := range []struct {
		has  Role
		want []Role
	}{
		{Worker, []Role{Worker}},
		{Issuer, []Role{Issuer}},
		{Viewer, []Role{Viewer}},
		{Worker | Viewer, []Role{Worker, Viewer}},
		{Operator, []Role{Worker, Issuer, Operator, Viewer}},
		{0, nil},
	} {
		p := newPrincipal(Entry{Roles: c.has})
		for _, r := range []Role{Worker, Issuer, Operator, Viewer} {
			if got := p.Has(r); got != slices.Contains(c.want, r) {
				t.Errorf("role %b: Has(%b) is %v", c.has, r, got)
			}
		}
	}
	if len(RoleNames()) != 4 {
		t.Errorf("roles: %v", RoleNames())
	}
	seen := Role(0)
	for _, name := range RoleNames() {
		r, ok := RoleNamed(name)
		if !ok || seen&r != 0 {
			t.Errorf("role %s: %b, %v", name, r, ok)
		}
		seen |= r
	}
	if _, ok := RoleNamed("Worker"); ok {
		t.Error("roles have a case")
	}
}

func TestAPrincipalOwnsTheJobsUnderItsPrefixes(t *testing.T) {
	p := newPrincipal(Entry{Jobs: []string{"b/", "a", "ab", "c-1"}})
	for id, want := range map[string]bool{"a": true, "ab": true, "abc": true, "b/1": true, "b": false, "c-1": true, "c-10": true, "c-": false, "A": false, "": false, "xa": false} {
		if p.Owns(id) != want {
			t.Errorf("owns %q: %v", id, !want)
		}
	}
	if !newPrincipal(Entry{Jobs: []string{""}}).Owns("anything") || newPrincipal(Entry{}).Owns("anything") {
		t.Error("the empty prefix is for all jobs, and no prefix for none")
	}
}

func TestThePrefixesToListCoverTheOwnJobsOnceAndInOrder(t *testing.T) {
	p := newPrincipal(Entry{Jobs: []string{"b/", "a/", "a/x", "b/", "d"}})
	for prefix, want := range map[string][]string{
		"": {"a/", "b/", "d"}, "a": {"a/"}, "a/": {"a/"}, "a/x": {"a/x"}, "a/y": {"a/y"}, "c": nil, "dd": {"dd"}, "b0": nil,
	} {
		if got := p.Within(prefix); !slices.Equal(got, want) {
			t.Errorf("within %q: %q, want %q", prefix, got, want)
		}
	}
	if got := newPrincipal(Entry{Jobs: []string{"", "a"}}).Within(""); !slices.Equal(got, []string{""}) {
		t.Errorf("all: %q", got)
	}
}

func TestOnlyWhoSeesEveryJobIsNotConfined(t *testing.T) {
	for _, c := range []struct {
		e    Entry
		want bool
	}{
		{Entry{Jobs: []string{""}}, false},
		{Entry{Jobs: []string{"a", ""}}, false},
		{Entry{Jobs: []string{"a"}}, true},
		{Entry{}, true},
		{Entry{Jobs: []string{""}, Namespace: "n"}, true},
	} {
		if got := newPrincipal(c.e).Confined(); got != c.want {
			t.Errorf("%+v is confined: %v", c.e, got)
		}
	}
}

func TestAnAuthorizationHeaderHasOneBearerToken(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   string
	}{
		{[]string{"Bearer t0ken"}, "t0ken"},
		{[]string{"bearer t0ken"}, "t0ken"},
		{[]string{"BEARER  t0ken"}, "t0ken"},
		{[]string{"Bearer ab+/=.~-_"}, "ab+/=.~-_"},
		{nil, ""}, {[]string{""}, ""}, {[]string{"Bearer"}, ""}, {[]string{"Bearer "}, ""}, {[]string{"t0ken"}, ""},
		{[]string{"Basic t0ken"}, ""}, {[]string{"Bearer a b"}, ""}, {[]string{"Bearer a\tb"}, ""}, {[]string{"Bearer\ta"}, ""},
		{[]string{"Bearer ä"}, ""}, {[]string{"Bearer a", "Bearer a"}, ""}, {[]string{"Bearer a,Bearer b"}, ""},
	} {
		got, ok := BearerToken(c.values)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, %v", c.values, got, ok)
		}
	}
}

func TestWhoCountsIsSwappedAtOnce(t *testing.T) {
	var c Current
	if c.Load() != nil || (*Current)(nil).Load() != nil {
		t.Error("there are principals from nowhere")
	}
	a, b := mustNew(t), mustNew(t)
	if c.Swap(a) != nil || c.Load() != a || c.Swap(b) != a || c.Load() != b {
		t.Error("not swapped")
	}
}

func TestWithoutAnAuthFileEverybodyMayDoEverything(t *testing.T) {
	p := Anyone("n")
	if p.Name() != "" || p.Namespace() != "n" || !p.Has(Issuer) || !p.Owns("x") {
		t.Errorf("%+v", p)
	}
}

// FuzzMatching: a token is found if its hash is there, a certificate if one of its whole
// names is there and no other principal's, and a job by its prefix.
func FuzzMatching(f *testing.F) {
	f.Add("Bearer alpha", "a.example", "b.example", "jobs/1", "jobs/")
	f.Add("bearer  beta", "", "b.example", "x", "")
	f.Add("Basic x", "a.example", "a.example\x00", "", "*")
	f.Fuzz(func(t *testing.T, header, commonName, dns, job, prefix string) {
		ps := mustNew(t, Entry{Name: "a", Token: hashOf("alpha"), Certificate: "a.example"}, Entry{Name: "b", Token: hashOf("beta"), Certificate: "b.example"})
		if token, ok := BearerToken([]string{header}); ok {
			want := map[string]string{"alpha": "a", "beta": "b"}[token]
			if got := nameOf(ps.Bearer(token)); got != want {
				t.Errorf("token %q is %q's", token, got)
			}
			if strings.ContainsAny(token, " \t\r\n") {
				t.Errorf("token %q", token)
			}
		}
		hits := map[string]bool{}
		for _, name := range []string{commonName, dns} {
			if who := map[string]string{"a.example": "a", "b.example": "b"}[name]; who != "" {
				hits[who] = true
			}
		}
		got := nameOf(ps.Certificate(certificate([]string{commonName}, []string{dns}, nil)))
		if (len(hits) == 1) != (got != "") || got != "" && !hits[got] {
			t.Errorf("certificate %q, %q is %q's", commonName, dns, got)
		}
		p := newPrincipal(Entry{Jobs: []string{prefix, "fixed/"}})
		if p.Owns(job) != (strings.HasPrefix(job, prefix) || strings.HasPrefix(job, "fixed/")) {
			t.Errorf("owns %q: %v", job, p.Owns(job))
		}
		for _, w := range p.Within(job) {
			if !p.Owns(w) || !strings.HasPrefix(w, job) {
				t.Errorf("within %q: %q", job, w)
			}
		}
	})
}
