package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

func TestANewTokenIsInItsFileAndItsHashIsPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"token", file}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	token, err := leaseclient.TokenFile(file)()
	if err != nil || len(token) != 64 || strings.Contains(out.String()+errs.String(), token) {
		t.Errorf("%d characters, %v", len(token), err)
	}
	if want := fmt.Sprintf("token_sha256: \"%x\"\n", sha256.Sum256([]byte(token))); out.String() != want {
		t.Errorf("printed %q", out.String())
	}
	before, _ := os.ReadFile(file)
	if code := run(t.Context(), []string{"token", file}, &out, &errs); code != 1 {
		t.Errorf("exit code %d for a file that exists", code)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the token in use was replaced")
	}
}
