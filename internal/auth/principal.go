package auth

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Hash is the SHA-256 of a bearer token.
type Hash [sha256.Size]byte

// Entry is what a principal is made from.
type Entry struct {
	// Name is what logs call the principal. It is no secret and no credential.
	Name string
	// Token is the hash of its bearer token; nil if it has none.
	Token *Hash
	// Certificate is the name in its client certificate, see
	// [Principals.Certificate]; empty if it has none.
	Certificate string
	// Roles are what it may do.
	Roles Role
	// Namespace is where its jobs live.
	Namespace string
	// Jobs are the prefixes of its job ids, compared byte for byte. An empty one
	// stands for all jobs of the namespace; without any it has no job.
	Jobs []string
}

// Principal is somebody who may do something. It never changes, and may be used
// concurrently.
type Principal struct {
	name, namespace string
	roles           Role
	// prefixes are sorted, and none begins with another one.
	prefixes []string
}

func newPrincipal(e Entry) *Principal {
	p := &Principal{name: e.Name, namespace: e.Namespace, roles: e.Roles}
	sorted := slices.Sorted(slices.Values(e.Jobs))
	for _, prefix := range sorted {
		if n := len(p.prefixes); n == 0 || !strings.HasPrefix(prefix, p.prefixes[n-1]) {
			p.prefixes = append(p.prefixes, prefix)
		}
	}
	return p
}

// Anyone returns the principal that every caller is where there is no auth file: it has
// no name, may do everything, and has all jobs of a namespace.
func Anyone(namespace string) *Principal {
	return newPrincipal(Entry{Roles: Operator, Namespace: namespace, Jobs: []string{""}})
}

// Name is the principal's name, empty for [Anyone].
func (p *Principal) Name() string { return p.name }

// Namespace is where its jobs live.
func (p *Principal) Namespace() string { return p.namespace }

// Has reports whether the principal has one of the roles. An operator has every role.
func (p *Principal) Has(any Role) bool { return p.roles&(any|Operator) != 0 }

// Owns reports whether a job id of its namespace lies under one of its prefixes.
func (p *Principal) Owns(jobID string) bool {
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(jobID, prefix) {
			return true
		}
	}
	return false
}

// Within returns the prefixes that cover just those of its jobs whose ids begin with
// prefix: disjoint and in byte order, so that listing one after the other is in order.
func (p *Principal) Within(prefix string) (out []string) {
	for _, own := range p.prefixes {
		switch {
		case strings.HasPrefix(prefix, own):
			return []string{prefix}
		case strings.HasPrefix(own, prefix):
			out = append(out, own)
		}
	}
	return out
}

// Confined reports whether there are jobs that the principal must not see: those of
// other namespaces, or outside its prefixes. What tells of all jobs at once, as metrics
// do, is not for it.
func (p *Principal) Confined() bool { return p.namespace != "" || !p.Owns("") }
