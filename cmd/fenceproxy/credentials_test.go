package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

const goodToken = "g00d-t0ken"

// startGuarded serves the control handler for one operator, who has goodToken, and
// another who is known by the certificate "operator". secure may be nil.
func startGuarded(t *testing.T, secure *tls.Config) (url string, log *bytes.Buffer) {
	t.Helper()
	a, err := tokens.NewAuthority(t.Context(), tokenstest.NewMemory(nil), tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hash := auth.Hash(sha256.Sum256([]byte(goodToken)))
	ps, err := auth.New([]auth.Entry{
		{Name: "ops", Token: &hash, Roles: auth.Operator, Jobs: []string{""}},
		{Name: "robot", Certificate: "operator", Roles: auth.Operator, Jobs: []string{""}},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	who := &auth.Current{}
	who.Swap(ps)
	log = &bytes.Buffer{}
	s := httptest.NewUnstartedServer(control.New(control.Options{Authority: a, Logger: slog.New(slog.NewTextHandler(log, nil)), Principals: who}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if s.TLS = secure; secure != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.URL, log
}

// unset clears the variables that commands take credentials from.
func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{tokenEnv, tokenFileEnv, caEnv, certEnv, keyEnv} {
		t.Setenv(name, "")
	}
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEveryCommandShowsItsToken(t *testing.T) {
	for name, set := range map[string]func(t *testing.T) []string{
		"a flag":            func(t *testing.T) []string { return []string{"--token-file", secretFile(t, goodToken+"\n")} },
		"a file's variable": func(t *testing.T) []string { t.Setenv(tokenFileEnv, secretFile(t, goodToken)); return nil },
		"a variable":        func(t *testing.T) []string { t.Setenv(tokenEnv, goodToken); return nil },
		"a flag, which wins": func(t *testing.T) []string {
			t.Setenv(tokenEnv, "other")
			t.Setenv(tokenFileEnv, secretFile(t, "other"))
			return []string{"--token-file", secretFile(t, goodToken)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			url, _ := startGuarded(t, nil)
			more := append(set(t), "--control", url)
			var out, errs bytes.Buffer
			for _, args := range [][]string{
				{"lease", "claim", "j", "--owner", "o"}, {"job", "list"}, {"job", "show", "j"}, {"job", "revoke", "j"}, {"job", "fence", "k", "7"}, {"job", "reopen", "j"}, {"write", "list"},
			} {
				if code := run(t.Context(), append(args, more...), &out, &errs); code != 0 {
					t.Errorf("%v: exit code %d: %s", args, code, errs.String())
				}
			}
			if strings.Contains(out.String()+errs.String(), goodToken) {
				t.Error("the token was shown")
			}
		})
	}
}

func TestACommandWithoutACredentialSaysWhereItTakesOneFrom(t *testing.T) {
	for name, token := range map[string]string{"none": "", "a wrong one": "wr0ng-t0ken", "one with a blank": "wr0ng t0ken"} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			t.Setenv(tokenEnv, token)
			url, log := startGuarded(t, nil)
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"job", "list", "--control", url}, &out, &errs)
			if code != 1 || !strings.Contains(errs.String(), "--token-file") && !strings.Contains(errs.String(), "$"+tokenEnv) {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
			if all := out.String() + errs.String() + log.String(); strings.Contains(all, "wr0ng") {
				t.Errorf("the token was shown: %s", all)
			}
		})
	}
}

func TestNoFlagTakesATokenItself(t *testing.T) {
	for _, args := range [][]string{{"job", "list"}, {"lease", "claim", "j"}, {"write", "list"}, {"run", "--job", "j"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append(args, "--token", goodToken), &out, &errs); code == 0 || !strings.Contains(errs.String(), "unknown flag: --token") {
			t.Errorf("%v: exit code %d: %s", args, code, errs.String())
		}
	}
}

func TestTheProgramUnderRunDoesNotGetTheToken(t *testing.T) {
	t.Setenv(tokenEnv, goodToken)
	t.Setenv(tokenFileEnv, "/where/it/is")
	env := inherited()
	if slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, goodToken) }) {
		t.Error("it does")
	}
	if !slices.Contains(env, tokenFileEnv+"=/where/it/is") {
		t.Error("the name of the file is no secret")
	}
}

// pki makes an authority and, signed by it, a certificate for 127.0.0.1 and clients.
// It returns the paths of the three files.
func pki(t *testing.T, commonName string) (caFile, certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	put := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{"localhost"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return put("ca.pem", "CERTIFICATE", caDER), put("cert.pem", "CERTIFICATE", der), put("key.pem", "PRIVATE KEY", keyDER)
}

func TestACommandShowsAClientCertificateAndChecksTheServers(t *testing.T) {
	unset(t)
	caFile, certFile, keyFile := pki(t, "operator")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	caPEM, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(caPEM)
	url, _ := startGuarded(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven})
	url = strings.Replace(url, "127.0.0.1", "localhost", 1)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"all three":             {[]string{"--ca-file", caFile, "--cert-file", certFile, "--key-file", keyFile}, ""},
		"no certificate":        {[]string{"--ca-file", caFile}, "unauthenticated"},
		"a server nobody knows": {nil, "certificate"},
		"no key":                {[]string{"--ca-file", caFile, "--cert-file", certFile}, "--cert-file and --key-file need each other"},
		"no such file":          {[]string{"--ca-file", caFile + "x"}, "read --ca-file"},
		"not a certificate":     {[]string{"--ca-file", keyFile}, "no certificate in it"},
		"a key that is none":    {[]string{"--ca-file", caFile, "--cert-file", certFile, "--key-file", certFile}, "load --cert-file and --key-file"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{"job", "list", "--control", url}, c.args...), &out, &errs)
			if (code == 0) != (c.want == "") || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
		})
	}
}

func TestTheConfigurationKnowsTheRolesThatThereAre(t *testing.T) {
	for _, role := range append(auth.RoleNames(), "admin") {
		all, err := config.ParsePrincipals("f", fmt.Appendf(nil, "principals: [{name: a, certificate: c, roles: [%s]}]", role))
		_, known := auth.RoleNamed(role)
		if (err == nil) != known {
			t.Errorf("role %s: %v", role, err)
		}
		if known {
			ps, err := principalsOf(&config.Config{Auth: config.Auth{File: "f"}, Principals: all, TLS: config.ServerTLS{ClientCAFile: "c"}})
			if err != nil || !ps.Certified() {
				t.Errorf("role %s: %v", role, err)
			}
		}
	}
	if ps, err := principalsOf(&config.Config{}); ps != nil || err != nil {
		t.Errorf("without a file: %v, %v", ps, err)
	}
}

func TestDoorsThatTheConfigurationLeavesOpenAreLogged(t *testing.T) {
	cfg := func(change func(*config.Config)) *config.Config {
		c := config.Default()
		c.Auth.File = "auth.yaml"
		c.Control.TLS.CertFile, c.TLS.ClientCAFile = "c", "ca"
		c.Routes = []config.Route{{Name: "r", RouteOptions: c.Defaults}}
		change(&c)
		return &c
	}
	for name, c := range map[string]struct {
		cfg  *config.Config
		want string
	}{
		"nothing open":            {cfg(func(*config.Config) {}), ""},
		"no auth file":            {cfg(func(c *config.Config) { c.Auth.File, c.TLS.ClientCAFile = "", "" }), ""},
		"tokens in the clear":     {cfg(func(c *config.Config) { c.Control.TLS.CertFile, c.Control.Listen = "", "10.0.0.1:8081" }), "without TLS"},
		"loopback in the clear":   {cfg(func(c *config.Config) { c.Control.TLS.CertFile = "" }), ""},
		"loopback by its name":    {cfg(func(c *config.Config) { c.Control.TLS.CertFile, c.Control.Listen = "", "localhost:1" }), ""},
		"writes of anybody":       {cfg(func(c *config.Config) { c.TLS.ClientCAFile = "" }), "need no credential"},
		"writes that need leases": {cfg(func(c *config.Config) { c.TLS.ClientCAFile, c.Routes[0].RequireLease = "", true }), ""},
		"a route without fence":   {cfg(func(c *config.Config) { c.TLS.ClientCAFile, c.Routes[0].Fencing = "", config.FencingOff }), ""},
	} {
		var log bytes.Buffer
		warnOfOpenDoors(c.cfg, slog.New(slog.NewTextHandler(&log, nil)))
		if (log.Len() == 0) != (c.want == "") || !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: logged %q", name, log.String())
		}
	}
}

func TestCheckConfigReportsTheFaultsOfTheAuthFileToo(t *testing.T) {
	dir := t.TempDir()
	who, file := filepath.Join(dir, "auth.yaml"), filepath.Join(dir, "f.yaml")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "auth: {file: "+who+"}\nlisten: nowhere\nroutes: [{name: a, upstream: http://127.0.0.1:1}]\n")
	write(who, "principals: [{name: a, token_sha256: s3cret, roles: [king]}]\n")
	for _, args := range [][]string{{"check-config", file}, {"serve", "--config", file}} {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &out, &errs)
		if code != 1 || out.Len() != 0 || strings.Contains(errs.String(), "s3cret") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out.String(), errs.String())
		}
		for _, want := range []string{file + ":2:9: listen: ", who + ":1:38: principals[0].token_sha256: is not a SHA-256", who + `:1:54: principals[0].roles[0]: "king" is not`} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%v: want %s in\n%s", args, want, errs.String())
			}
		}
	}
}
