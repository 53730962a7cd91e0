package badgerstore

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestKeysSortAsNamespaceAndIDDo(t *testing.T) {
	var jobs []tokens.Job
	for _, ns := range []string{"", "\x00", "\x00\x01", "a", "a\x00", "a\x00b", "ab", "b", "\xff"} {
		for _, id := range []string{"!", "a", "aa", "b"} {
			jobs = append(jobs, tokens.Job{Namespace: ns, ID: id})
		}
	}
	for _, a := range jobs {
		if got, err := jobOf(recordKey(a)); err != nil || got != a {
			t.Errorf("the key of %q reads %q (%v)", a, got, err)
		}
		for _, b := range jobs {
			want := strings.Compare(a.Namespace, b.Namespace)
			if want == 0 {
				want = strings.Compare(a.ID, b.ID)
			}
			if got := bytes.Compare(recordKey(a), recordKey(b)); got != want {
				t.Errorf("keys of %q and %q compare %d, want %d", a, b, got, want)
			}
		}
	}
	if !slices.IsSortedFunc(jobs, func(a, b tokens.Job) int { return bytes.Compare(recordKey(a), recordKey(b)) }) {
		t.Error("the keys are out of order")
	}
}
