package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"
)

// The last parts of the keys that name files.
const (
	keyCert     = "cert_file"
	keyKey      = "key_file"
	keyClientCA = "client_ca_file"
	keyCA       = "ca_file"
)

// ServerFiles are the files of a listener, PEM. All empty means plain HTTP.
type ServerFiles struct{ Cert, Key, ClientCA string }

// Server is what a listener presents, and whom it believes. It does not change.
type Server struct {
	certificate tls.Certificate
	// authorities are those of client certificates; empty asks for none.
	authorities []*x509.Certificate
}

// ReadServer reads the files of a listener. It returns nil for no files and for
// unusable ones; then the problems say why.
func ReadServer(f ServerFiles, now time.Time) (*Server, []Problem) {
	if f == (ServerFiles{}) {
		return nil, nil
	}
	var ps problems
	s := &Server{certificate: pair(&ps, f.Cert, f.Key, now)}
	if f.ClientCA != "" {
		s.authorities, _ = authorities(&ps, keyClientCA, f.ClientCA, now)
	}
	if ps.fatal() {
		return nil, ps
	}
	return s, ps
}

// ClientFiles are the files with which a server of somebody else is spoken to, PEM, and
// the name that its certificate must carry. All may be empty.
type ClientFiles struct{ CA, Cert, Key, ServerName string }

// Client is whom the proxy trusts, and how it shows itself. It does not change.
type Client struct {
	// Config is ready for use, TLS 1.2 at least.
	Config *tls.Config
	// Digest is of everything that Config was made from: equal digests, equal
	// configurations.
	Digest [sha256.Size]byte
}

// ReadClient reads the files for one upstream. It returns nil for unusable ones.
func ReadClient(f ClientFiles, now time.Time) (*Client, []Problem) {
	var ps problems
	c := &Client{Config: &tls.Config{ServerName: f.ServerName, MinVersion: tls.VersionTLS12}}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", f.ServerName)
	if f.CA != "" {
		found, raw := authorities(&ps, keyCA, f.CA, now)
		c.Config.RootCAs = x509.NewCertPool()
		for _, ca := range found {
			c.Config.RootCAs.AddCert(ca)
		}
		fmt.Fprintf(sum, "%q", raw)
	}
	if f.Cert != "" {
		cert := pair(&ps, f.Cert, f.Key, now)
		c.Config.Certificates = []tls.Certificate{cert}
		// The key is proved to belong to the certificate.
		fmt.Fprintf(sum, "%q", cert.Certificate)
	}
	if ps.fatal() {
		return nil, ps
	}
	sum.Sum(c.Digest[:0])
	return c, ps
}

// pair reads a certificate chain and its key, and checks that they belong together.
func pair(ps *problems, certFile, keyFile string, now time.Time) tls.Certificate {
	chain, leaf := read(ps, keyCert, certFile, "certificate chain")
	key, ok := read(ps, keyKey, keyFile, "private key")
	if !ok || !leaf {
		return tls.Certificate{}
	}
	certs, err := parse(chain)
	if err != nil {
		ps.add(keyCert, "%s: %v", certFile, err)
		return tls.Certificate{}
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		ps.add(keyKey, "%s with the certificate in %s: %v", keyFile, certFile, err)
		return tls.Certificate{}
	}
	checkDates(ps, keyCert, certFile, certs, now)
	return pair
}

// authorities reads the certificates that others are checked against.
func authorities(ps *problems, key, file string, now time.Time) (found []*x509.Certificate, raw []byte) {
	raw, ok := read(ps, key, file, "authorities")
	if !ok {
		return nil, nil
	}
	found, err := parse(raw)
	if err != nil {
		ps.add(key, "%s: %v", file, err)
		return nil, nil
	}
	checkDates(ps, key, file, found, now)
	return found, raw
}

func read(ps *problems, key, file, what string) (data []byte, ok bool) {
	if file == "" {
		ps.add(key, "is empty, and the %s is needed", what)
		return nil, false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		ps.add(key, "read %s: %v", what, err) // the error names the file
		return nil, false
	}
	return data, true
}

// parse reads every certificate of a PEM file. Unlike x509.CertPool it passes over none
// that can not be read: a bundle of which half is trusted is found out too late.
func parse(data []byte) (certs []*x509.Certificate, err error) {
	for rest := data; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errNoCertificate
	}
	return certs, nil
}

func checkDates(ps *problems, key, file string, certs []*x509.Certificate, now time.Time) {
	for _, c := range certs {
		switch {
		case now.After(c.NotAfter):
			ps.warn(key, "%s: the certificate of %s expired on %s", file, name(c), date(c.NotAfter))
		case now.Before(c.NotBefore):
			ps.warn(key, "%s: the certificate of %s is not valid before %s", file, name(c), date(c.NotBefore))
		}
	}
}

func name(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	}
	return "serial number " + c.SerialNumber.String()
}

// believes reports whether one of the chains ends at one of the authorities.
func (s *Server) believes(chains [][]*x509.Certificate) bool {
	for _, chain := range chains {
		for _, ca := range s.authorities {
			if len(chain) > 0 && bytes.Equal(chain[len(chain)-1].Raw, ca.Raw) {
				return true
			}
		}
	}
	return false
}
