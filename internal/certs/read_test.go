package certs

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/certs/certstest"
)

func TestEachFaultOfAFileNamesItsKeyAndItsFile(t *testing.T) {
	dir, ca := t.TempDir(), certstest.NewAuthority(t, "ca")
	cert, key := ca.Issue("a").Write(t, dir, "a")
	_, otherKey := ca.Issue("b").Write(t, dir, "b")
	old, oldKey := ca.IssueUntil("old", time.Now().Add(-time.Hour)).Write(t, dir, "old")
	young, youngKey := ca.IssueUntil("young", time.Now().Add(72*time.Hour)).Write(t, dir, "young")
	authority := filepath.Join(dir, "ca.pem")
	certstest.WriteFile(t, authority, ca.PEM())
	half := filepath.Join(dir, "half.pem")
	certstest.WriteFile(t, half, append(ca.PEM(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
	text := filepath.Join(dir, "text.pem")
	certstest.WriteFile(t, text, []byte("no certificate at all"))
	gone := filepath.Join(dir, "gone.pem")

	for name, tt := range map[string]struct {
		files    ServerFiles
		key, say string // of the one problem; empty for none
		warning  bool
	}{
		"all well":                        {files: ServerFiles{Cert: cert, Key: key, ClientCA: authority}},
		"no certificate file":             {files: ServerFiles{Cert: gone, Key: key}, key: "cert_file", say: gone},
		"no key file":                     {files: ServerFiles{Cert: cert, Key: gone}, key: "key_file", say: gone},
		"no key":                          {files: ServerFiles{Cert: cert}, key: "key_file", say: "is empty"},
		"the key of another":              {files: ServerFiles{Cert: cert, Key: otherKey}, key: "key_file", say: otherKey},
		"a key that is a certificate":     {files: ServerFiles{Cert: cert, Key: cert}, key: "key_file", say: cert},
		"a certificate that is text":      {files: ServerFiles{Cert: text, Key: key}, key: "cert_file", say: text + ": there is no certificate"},
		"no authorities":                  {files: ServerFiles{Cert: cert, Key: key, ClientCA: gone}, key: "client_ca_file", say: gone},
		"authorities that are text":       {files: ServerFiles{Cert: cert, Key: key, ClientCA: text}, key: "client_ca_file", say: text},
		"authorities that are half right": {files: ServerFiles{Cert: cert, Key: key, ClientCA: half}, key: "client_ca_file", say: "certificate 2"},
		"an expired certificate":          {files: ServerFiles{Cert: old, Key: oldKey}, key: "cert_file", say: "expired on ", warning: true},
		"a certificate of tomorrow":       {files: ServerFiles{Cert: young, Key: youngKey}, key: "cert_file", say: "not valid before", warning: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := ReadServer(tt.files, time.Now())
			if usable := tt.key == "" || tt.warning; (s != nil) != usable {
				t.Errorf("got %v, usable should be %v", s, usable)
			}
			if tt.key == "" {
				if len(problems) != 0 {
					t.Errorf("got %+v", problems)
				}
				return
			}
			if len(problems) != 1 {
				t.Fatalf("got %+v, want one problem", problems)
			}
			p := problems[0]
			if p.Key != tt.key || !strings.Contains(p.Message, tt.say) || p.Warning != tt.warning || strings.Contains(p.Message, "BEGIN") {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestNoFilesMeanNoTLS(t *testing.T) {
	if s, problems := ReadServer(ServerFiles{}, time.Now()); s != nil || problems != nil {
		t.Errorf("got %v and %v", s, problems)
	}
}

func TestTheDigestOfAClientFollowsTheContentOfItsFiles(t *testing.T) {
	dir, ca, other := t.TempDir(), certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "other")
	authority := filepath.Join(dir, "ca.pem")
	cert, key := ca.Issue("a").Write(t, dir, "a")
	digest := func(f ClientFiles) [32]byte {
		t.Helper()
		c, problems := ReadClient(f, time.Now())
		if c == nil {
			t.Fatalf("got %+v", problems)
		}
		return c.Digest
	}
	certstest.WriteFile(t, authority, ca.PEM())
	files := ClientFiles{CA: authority, Cert: cert, Key: key, ServerName: "n"}
	before := digest(files)
	if digest(files) != before {
		t.Error("the same files have two digests")
	}
	renamed := files
	renamed.ServerName = "m"
	if digest(renamed) == before {
		t.Error("another name has the same digest")
	}
	ca.Issue("a").Write(t, dir, "a")
	renewed := digest(files)
	if renewed == before {
		t.Error("another certificate has the same digest")
	}
	certstest.WriteFile(t, authority, other.PEM())
	if digest(files) == renewed {
		t.Error("another authority has the same digest")
	}
}
