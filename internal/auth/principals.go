package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"slices"
)

// Principals are all who may do something. They never change, and may be used
// concurrently.
type Principals struct {
	tokens []credential
	named  map[string]*Principal
	// same is [subtle.ConstantTimeCompare], and counted in tests.
	same func(a, b []byte) int
	// certified tells that writers show a certificate.
	certified bool
}

// credential is a token's hash and whose it is.
type credential struct {
	hash Hash
	of   *Principal
}

// New makes principals. certified tells that the data listener asks its callers for a
// certificate, so that a write without one is nobody's. The error wraps ErrTwice if two
// entries share a name, a token or a certificate: nobody could tell them apart.
func New(entries []Entry, certified bool) (*Principals, error) {
	ps := &Principals{named: make(map[string]*Principal), same: subtle.ConstantTimeCompare, certified: certified}
	names := make(map[string]bool, len(entries))
	hashes := make(map[Hash]string, len(entries))
	for _, e := range entries {
		p := newPrincipal(e)
		if names[e.Name] {
			return nil, fmt.Errorf("make principals: name %q: %w", e.Name, ErrTwice)
		}
		names[e.Name] = true
		if e.Token != nil {
			if other, ok := hashes[*e.Token]; ok {
				return nil, fmt.Errorf("make principals: token of %q and %q: %w", other, e.Name, ErrTwice)
			}
			hashes[*e.Token] = e.Name
			ps.tokens = append(ps.tokens, credential{*e.Token, p})
		}
		if e.Certificate != "" {
			if other := ps.named[e.Certificate]; other != nil {
				return nil, fmt.Errorf("make principals: certificate of %q and %q: %w", other.name, e.Name, ErrTwice)
			}
			ps.named[e.Certificate] = p
		}
	}
	return ps, nil
}

// Certified reports whether writers show a certificate.
func (ps *Principals) Certified() bool { return ps.certified }

// Bearer returns the principal with a bearer token, or nil. It compares the token's hash
// with that of every principal, in constant time and to the last one, so that the time
// it takes tells nobody how close a guess was or whose it was.
func (ps *Principals) Bearer(token string) *Principal {
	hash := sha256.Sum256([]byte(token))
	found := -1
	for i := range ps.tokens {
		found = subtle.ConstantTimeSelect(ps.same(hash[:], ps.tokens[i].hash[:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return ps.tokens[found].of
}

// Certificate returns the principal that a client certificate names, or nil. The
// certificate must have been verified by the listener.
//
// A principal is named by the common name of the subject or by a subject alternative
// name of type DNS, URI or email. The whole name is compared byte for byte: no case is
// folded and no wildcard means anything. A certificate that names two principals names
// none; a subject with several common names has none.
func (ps *Principals) Certificate(c *x509.Certificate) *Principal {
	var found *Principal
	for _, name := range namesIn(c) {
		p := ps.named[name]
		if p == nil || p == found {
			continue
		}
		if found != nil {
			return nil
		}
		found = p
	}
	return found
}

func namesIn(c *x509.Certificate) []string {
	names := slices.Concat(c.DNSNames, c.EmailAddresses)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3} // RFC 5280, appendix A.1
	count := 0
	for _, a := range c.Subject.Names {
		if a.Type.Equal(commonName) {
			count++
		}
	}
	if count == 1 {
		names = append(names, c.Subject.CommonName)
	}
	return names
}
