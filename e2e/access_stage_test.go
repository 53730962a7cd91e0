package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tokenFor is the bearer token of a principal of a test.
func tokenFor(name string) string { return "t0ken-of-" + name }

// byToken is a line of an auth file for a principal with a token.
func byToken(name, rest string) string {
	return fmt.Sprintf("  - {name: %s, token_sha256: \"%s\", %s}\n", name, hashOf(name), rest)
}

// hashOf is what an auth file has of a token.
func hashOf(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(tokenFor(name)))) }

// file writes a file that only its owner can read.
func file(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pki is an authority for the certificates of one test.
type pki struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	ca   string // path of its certificate
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	p.key = p.newKey()
	der := p.sign(template, template, "authority", &p.key.PublicKey, p.key)
	var err error
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	p.pool.AddCert(p.cert)
	p.ca = p.put("ca.pem", "CERTIFICATE", der)
	return p
}

func (p *pki) newKey() *ecdsa.PrivateKey {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	return key
}

func (p *pki) sign(template, parent *x509.Certificate, name string, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) []byte {
	p.t.Helper()
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		p.t.Fatal(err)
	}
	return der
}

func (p *pki) put(name, kind string, der []byte) string {
	p.t.Helper()
	return file(p.t, p.dir, name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// issue makes a certificate, good for 127.0.0.1 and for clients, and returns the paths of it and of its key.
func (p *pki) issue(name string) (certFile, keyFile string) {
	p.t.Helper()
	key := p.newKey()
	der := p.sign(&x509.Certificate{
		DNSNames: []string{name + ".example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, p.cert, name, &key.PublicKey, p.key)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.put(name+".pem", "CERTIFICATE", der), p.put(name+".key", "PRIVATE KEY", private)
}

// client is TLS with a new certificate of that name, without one if the name is empty.
func (p *pki) client(name string) *tls.Config {
	p.t.Helper()
	c := &tls.Config{RootCAs: p.pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(p.issue(name))
		if err != nil {
			p.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// settings are the lines and variables that make both listeners ask for a certificate.
func (p *pki) settings() (top, env []string) {
	certFile, keyFile := p.issue("server")
	return []string{fmt.Sprintf("tls: {cert_file: %q, key_file: %q, client_ca_file: %q}", certFile, keyFile, p.ca)},
		[]string{"FENCEPROXY_CONTROL_TLS_CERT_FILE=" + certFile, "FENCEPROXY_CONTROL_TLS_KEY_FILE=" + keyFile, "FENCEPROXY_CONTROL_TLS_CLIENT_CA_FILE=" + p.ca}
}
