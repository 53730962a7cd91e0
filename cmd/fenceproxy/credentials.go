package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

const (
	tokenEnv     = "FENCEPROXY_TOKEN"
	tokenFileEnv = "FENCEPROXY_TOKEN_FILE"
	caEnv        = "FENCEPROXY_CA_FILE"
	certEnv      = "FENCEPROXY_CERT_FILE"
	keyEnv       = "FENCEPROXY_KEY_FILE"
)

// credentials are what a command shows to a running proxy, and by what it knows it. No
// flag takes a token: ps shows arguments to everybody.
type credentials struct{ tokenFile, caFile, certFile, keyFile string }

// add registers the flags.
func (c *credentials) add(flags interface {
	StringVar(p *string, name, value, usage string)
}) {
	flags.StringVar(&c.tokenFile, "token-file", os.Getenv(tokenFileEnv), "file with the bearer token; $"+tokenFileEnv+" sets the default, and without either $"+tokenEnv+" is the token")
	flags.StringVar(&c.caFile, "ca-file", os.Getenv(caEnv), "authorities that the proxy's certificate is checked against, PEM, instead of the system's; $"+caEnv+" sets the default")
	flags.StringVar(&c.certFile, "cert-file", os.Getenv(certEnv), "client certificate, PEM; $"+certEnv+" sets the default")
	flags.StringVar(&c.keyFile, "key-file", os.Getenv(keyEnv), "its private key, PEM; $"+keyEnv+" sets the default")
}

// token returns the source of the bearer token, which is empty if there is none. A file
// is read anew each time.
func (c *credentials) token() func() (string, error) {
	if c.tokenFile != "" {
		return leaseclient.TokenFile(c.tokenFile)
	}
	token := strings.TrimSpace(os.Getenv(tokenEnv))
	return func() (string, error) {
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", errors.New("$" + tokenEnv + " has blanks or characters that no token has")
		}
		return token, nil
	}
}

// tls returns how a proxy at https is spoken to; nil for the system's defaults.
func (c *credentials) tls() (*tls.Config, error) {
	if c.caFile == "" && c.certFile == "" && c.keyFile == "" {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.caFile != "" {
		pem, err := os.ReadFile(c.caFile)
		if err != nil {
			return nil, fmt.Errorf("read --ca-file: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read --ca-file %s: no certificate in it", c.caFile)
		}
	}
	if (c.certFile == "") != (c.keyFile == "") {
		return nil, errors.New("--cert-file and --key-file need each other")
	}
	if c.certFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
			if err != nil {
				return nil, fmt.Errorf("load --cert-file and --key-file: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		// Read anew for each connection: certificates are short-lived.
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return out, nil
}
