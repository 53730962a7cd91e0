// Package certstest makes authorities and certificates for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one, for the duration of a test.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = a.sign(template, template, a.key)
	return a
}

// PEM is the certificate of the authority.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Pair is a certificate with its key, PEM.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate for 127.0.0.1, localhost and name, good for servers and
// clients.
func (a *Authority) Issue(name string) Pair {
	a.tb.Helper()
	return a.IssueUntil(name, time.Now().Add(24*time.Hour))
}

// IssueUntil is Issue with the time at which the certificate expires.
func (a *Authority) IssueUntil(name string, end time.Time) Pair {
	a.tb.Helper()
	key := newKey(a.tb)
	cert := a.sign(&x509.Certificate{
		SerialNumber: serial(a.tb), Subject: pkix.Name{CommonName: name},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end,
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.tb.Fatalf("encode key: %v", err)
	}
	return Pair{Cert: encode("CERTIFICATE", cert.Raw), Key: encode("PRIVATE KEY", der)}
}

// TLS is the pair as crypto/tls wants it.
func (p Pair) TLS(tb testing.TB) tls.Certificate {
	tb.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		tb.Fatalf("read pair: %v", err)
	}
	return c
}

// Write puts the pair into dir and returns the paths of its files.
func (p Pair) Write(tb testing.TB, dir, name string) (certFile, keyFile string) {
	tb.Helper()
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	WriteFile(tb, certFile, p.Cert)
	WriteFile(tb, keyFile, p.Key)
	return certFile, keyFile
}

// WriteFile replaces a file as a whole: who reads it sees the old content or the new.
func WriteFile(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		tb.Fatalf("write file: %v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatalf("replace file: %v", err)
	}
}

func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.tb.Fatalf("sign certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatalf("read certificate: %v", err)
	}
	return cert
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("make key: %v", err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		tb.Fatalf("draw serial number: %v", err)
	}
	return n
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
