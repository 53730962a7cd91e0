package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

func TestARefusalIsJSONWhereJSONIsAskedFor(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "job", "ann")
	for _, asked := range []bool{false, true} {
		args := []string{"lease", "claim", "job", "--owner", "bob", "--control", url}
		if asked {
			args = append(args, "--json")
		}
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 1 || !strings.Contains(errs.String(), "lease-held") {
			t.Fatalf("exit code %d, stderr %q", code, &errs)
		}
		var p wire.Problem
		if err := json.Unmarshal(out.Bytes(), &p); asked && (err != nil || p.Code != "lease-held" || p.Owner != "ann" || p.ExpiresIn == nil) {
			t.Errorf("printed %q, %v", &out, err)
		}
		if !asked && out.Len() != 0 {
			t.Errorf("printed %q", &out)
		}
	}
}
