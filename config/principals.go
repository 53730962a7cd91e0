package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxPrincipals bounds the file of the principals.
const maxPrincipals = 4 * MiB

// Principal is one of those who may do something, as the file of the principals
// lists them under "principals".
type Principal struct {
	// Name is what logs call it: 1 to 256 characters. Required.
	Name string `yaml:"name"`

	// TokenSHA256 is the SHA-256 of its bearer token, 64 hexadecimal digits.
	// Default empty: it has no token, and needs a certificate.
	TokenSHA256 string `yaml:"token_sha256"`

	// Certificate is the name in its client certificate: the common name of
	// the subject, or a subject alternative name of type DNS, URI or email,
	// compared byte for byte and as a whole. Default empty: it has no
	// certificate, and needs a token.
	Certificate string `yaml:"certificate"`

	// Roles is what it may do: worker, issuer, operator, viewer. Required.
	Roles []string `yaml:"roles"`

	// Namespace is where its jobs live. Default empty: in the namespace of
	// routes that name none.
	Namespace string `yaml:"namespace"`

	// Jobs are the prefixes of its job ids within the namespace; "*" and ""
	// stand for all of them. Default, if the key is left out: all of them. A
	// list without elements is a fault.
	Jobs []string `yaml:"jobs"`
}

// principalsFile is the schema of the file.
type principalsFile struct {
	// Principals are all of them. Required.
	Principals []Principal `yaml:"principals"`
}

// readPrincipals reads the principals that the configuration names.
func (d *decoder) readPrincipals(c *Config) {
	if c.Auth.File == "" || d.isBad("auth.file") {
		return
	}
	data, err := readAtMost(c.Auth.File, maxPrincipals)
	if err != nil {
		var where *os.PathError
		if errors.As(err, &where) {
			err = where.Err // the key and its value follow
		}
		d.add("auth.file", "cannot read %q: %v", c.Auth.File, err)
		return
	}
	var faults Faults
	c.Principals, err = ParsePrincipals(c.Auth.File, data)
	if errors.As(err, &faults) {
		d.faults = append(d.faults, faults...)
	}
}

// readAtMost reads a file, and one byte more than most of one that is larger.
func readAtMost(path string, most Size) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// ParsePrincipals reads and checks the bytes of a file of principals; file is
// only its name in faults. Its error is always Faults, and no fault holds the
// hash of a token.
func ParsePrincipals(file string, data []byte) ([]Principal, error) {
	var out principalsFile
	d := decoder{file: file, most: maxPrincipals, collector: collector{origin: origin{}, bad: map[string]bool{}}}
	d.document(data, &out)
	if !d.isBad("") {
		d.checkPrincipals(out.Principals)
	}
	if err := d.faults.ErrorOrNil(); err != nil {
		return nil, err
	}
	for i := range out.Principals {
		p := &out.Principals[i]
		if _, set := d.origin[fmt.Sprintf("principals[%d].jobs", i)]; !set {
			p.Jobs = []string{""}
		}
		for j := range p.Jobs {
			p.Jobs[j] = strings.TrimSuffix(p.Jobs[j], "*")
		}
	}
	return out.Principals, nil
}

func (d *decoder) checkPrincipals(all []Principal) {
	if len(all) == 0 {
		d.add("principals", "lists nobody: nobody could do anything")
	}
	// What tells principals apart must not be there twice.
	first := make(map[string]string)
	unique := func(at, kind, value, message string) {
		if d.isBad(at) || value == "" {
			return
		}
		if other, twice := first[kind+value]; twice {
			d.add(at, "%s of %s in line %d", message, trimKey(other), d.origin[other].line)
			return
		}
		first[kind+value] = at
	}
	for i, p := range all {
		at := func(key string) string { return fmt.Sprintf("principals[%d].%s", i, key) }
		d.checkPrincipal(p, at)
		unique(at("name"), "name ", p.Name, "is the name")
		unique(at("token_sha256"), "token ", strings.ToLower(p.TokenSHA256), "is the token")
		unique(at("certificate"), "certificate ", p.Certificate, "is the certificate")
	}
}

func (d *decoder) checkPrincipal(p Principal, at func(key string) string) {
	switch {
	case p.Name == "":
		d.add(at("name"), "is missing: logs say who did something")
	case len(p.Name) > 256:
		d.add(at("name"), "is longer than 256 bytes")
	}
	if p.TokenSHA256 == "" && p.Certificate == "" && !d.isBad(at("token_sha256")) && !d.isBad(at("certificate")) {
		d.add(at("token_sha256"), "is missing, and certificate too: how is this principal known?")
	}
	if problem := tokenHashProblem(p.TokenSHA256); problem != "" {
		d.add(at("token_sha256"), "%s", problem)
	}
	if len(p.Certificate) > 1024 {
		d.add(at("certificate"), "is longer than 1024 bytes")
	}
	if problem := namespaceProblem(p.Namespace); problem != "" {
		d.add(at("namespace"), "%s", problem)
	}
	d.checkRoles(p.Roles, at("roles"))
	d.checkPrefixes(p.Jobs, at("jobs"))
}

func (d *decoder) checkRoles(roles []string, path string) {
	known := []string{"worker", "issuer", "operator", "viewer"}
	if len(roles) == 0 {
		d.add(path, "is missing: list some of %s", strings.Join(known, ", "))
	}
	for i, role := range roles {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !slices.Contains(known, role):
			d.add(at, "%q is not one of %s", role, strings.Join(known, ", "))
		case slices.Contains(roles[:i], role):
			d.add(at, "%s is in the list already", role)
		}
	}
}

func (d *decoder) checkPrefixes(prefixes []string, path string) {
	if _, set := d.origin[path]; set && len(prefixes) == 0 {
		d.add(path, `is empty: list prefixes of job ids, or "*" for all, or leave the key out for all`)
	}
	for i, prefix := range prefixes {
		at := fmt.Sprintf("%s[%d]", path, i)
		if problem := namespaceProblem(prefix); problem != "" { // the bytes of a job id
			d.add(at, "%s", problem)
		} else if prefix != "*" && strings.Contains(prefix, "*") {
			d.add(at, `%q has a *: a prefix stands for every id that begins with it, as in "billing-"`, prefix)
		}
	}
}

// tokenHashProblem judges the hash of a token, and never quotes it.
func tokenHashProblem(text string) string {
	if text == "" {
		return ""
	}
	hash, err := hex.DecodeString(text)
	if err != nil || len(hash) != 32 {
		return "is not a SHA-256: 64 hexadecimal digits"
	}
	// What printf '' | sha256sum prints where the token was not set.
	if strings.HasPrefix(strings.ToLower(text), "e3b0c44298fc1c149afbf4c8996fb924") {
		return "is the hash of an empty token"
	}
	return ""
}
