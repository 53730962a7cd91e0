package main

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/certs/certstest"
)

// secure lists the lines of a listener's TLS, and writes its files.
func (r *rig) secure(ca *certstest.Authority, name string, clients *certstest.Authority) string {
	r.Helper()
	ca.Issue(name).Write(r.T, r.dir, "server")
	if clients == nil {
		return "tls: {cert_file: DIR/server.pem, key_file: DIR/server.key}"
	}
	certstest.WriteFile(r.T, filepath.Join(r.dir, "clients.pem"), clients.PEM())
	return "tls: {cert_file: DIR/server.pem, key_file: DIR/server.key, client_ca_file: DIR/clients.pem}"
}

// client speaks TLS, HTTP/2 if asked to, and shows itself by a certificate if it has one.
func (r *rig) client(ca *certstest.Authority, h2 bool, shows ...tls.Certificate) *http.Client {
	t := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", Certificates: shows},
		ForceAttemptHTTP2: h2,
	}
	r.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 10 * time.Second}
}

func TestBothListenersSpeakTLSAndHTTP2(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	r := newRig(t)
	files := r.secure(ca, "server", nil)
	r.configure(r.route("a"), files, "control: {listen: 127.0.0.1:0, "+files+"}")
	r.start()
	for _, h2 := range []bool{false, true} {
		client := r.client(ca, h2)
		want := 1
		if h2 {
			want = 2
		}
		if got := r.post(client, "https://"+r.d.dataAddr(), "j"); got.StatusCode != 200 || got.body != "/a/x" || got.ProtoMajor != want {
			t.Errorf("data: got %s %d %q", got.Proto, got.StatusCode, got.body)
		}
		req, err := http.NewRequest(http.MethodGet, "https://"+r.d.controlAddr()+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.do(client, req); got.StatusCode != 200 || got.ProtoMajor != want {
			t.Errorf("control: got %s %d %q", got.Proto, got.StatusCode, got.body)
		}
	}
	if res, err := http.Get("http://" + r.d.dataAddr() + "/x"); err == nil {
		_ = res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("plain HTTP on the TLS listener: %d", res.StatusCode)
		}
	}
}

func TestAReloadTakesNewCertificates(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	r := newRig(t)
	r.configure(r.route("a"), r.secure(ca, "one", nil))
	r.start()
	before := r.client(ca, false)
	serves := func(client *http.Client) string {
		t.Helper()
		got := r.post(client, "https://"+r.d.dataAddr(), "j")
		return got.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := serves(before); got != "one" {
		t.Fatalf("the certificate is that of %s", got)
	}
	r.secure(ca, "two", nil)
	if got := serves(r.client(ca, false)); got != "one" {
		t.Errorf("the files took effect without a reload: %s", got)
	}
	r.reload()
	if got := serves(r.client(ca, false)); got != "two" {
		t.Errorf("after the reload: %s", got)
	}
	if got := serves(before); got != "one" {
		t.Errorf("the open connection was dropped, the new one shows %s", got)
	}

	// Certificate and key are written one after the other; half of that is no pair.
	certstest.WriteFile(t, filepath.Join(r.dir, "server.key"), ca.Issue("three").Key)
	r.refused("tls.key_file", "server.key", "private key does not match public key")
	if got := serves(r.client(ca, false)); got != "two" {
		t.Errorf("after the refused reload: %s", got)
	}
}

func TestAConnectionWhoseAuthorityIsGoneIsSentAway(t *testing.T) {
	ca, clients, others := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "clients"), certstest.NewAuthority(t, "others")
	for _, h2 := range []bool{false, true} {
		r := newRig(t)
		r.configure(r.route("a"), r.secure(ca, "server", clients))
		r.start()
		url := "https://" + r.d.dataAddr()
		client := r.client(ca, h2, clients.Issue("worker").TLS(t), others.Issue("worker").TLS(t))
		if got := r.post(client, url, "j"); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
		certstest.WriteFile(t, filepath.Join(r.dir, "clients.pem"), others.PEM())
		r.reload()
		got := r.post(client, url, "j")
		if got.StatusCode != 401 || got.Header.Get("Fence-Reason") != "unauthenticated" || got.Header.Get("Fence-Decision") != "refused" {
			t.Errorf("h2 %v: the open connection goes on: %d %s", h2, got.StatusCode, got.body)
		}
		// The refusal ended the connection, and the new one shows what is accepted now.
		if got := r.post(client, url, "j"); got.StatusCode != 200 {
			t.Errorf("h2 %v: got %d %s", h2, got.StatusCode, got.body)
		}
	}
}

func TestABadCertificateEndsTheStartAndCheckConfigWithKeyAndFile(t *testing.T) {
	r := newRig(t)
	files := r.secure(certstest.NewAuthority(t, "ca"), "server", nil)
	certstest.WriteFile(t, filepath.Join(r.dir, "server.key"), certstest.NewAuthority(t, "x").Issue("x").Key)
	r.configure(r.route("a"), files)
	for _, args := range [][]string{{"serve", "--config", r.file}, {"check-config", r.file}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 1 || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %s", args[0], code, out.String())
		}
		for _, say := range []string{"fenceproxy.yaml:4:", ": tls.key_file: ", filepath.Join(r.dir, "server.key"), "does not match"} {
			if !strings.Contains(errs.String(), say) {
				t.Errorf("%s does not say %q: %s", args[0], say, errs.String())
			}
		}
	}
}

func TestAnExpiredCertificateIsAWarning(t *testing.T) {
	r := newRig(t)
	ca := certstest.NewAuthority(t, "ca")
	files := r.secure(ca, "server", nil)
	ca.IssueUntil("server", time.Now().Add(-time.Minute)).Write(t, r.dir, "server")
	r.configure(r.route("a"), files)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check-config", r.file}, &out, &errs); code != 0 || !strings.Contains(out.String(), "cert_file") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if got := errs.String(); !strings.HasPrefix(got, "warning: ") || !strings.Contains(got, "tls.cert_file: ") || !strings.Contains(got, "expired on ") {
		t.Errorf("got %q", got)
	}
	r.start()
	if got := r.logs.String(); !strings.Contains(got, `"level":"WARN","msg":"doubtful configuration","key":"tls.cert_file"`) {
		t.Errorf("the log does not warn: %s", got)
	}
}
