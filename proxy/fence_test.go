package proxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestAFenceIsReadOrRefusedByName(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		name   string
		header http.Header
		refuse string // part of the error; empty wants acceptance
	}{
		{"both", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}}, ""},
		{"longest job", http.Header{"Fence-Job-Id": {long}, "Fence-Generation": {"1"}}, ""},
		{"highest generation", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"9007199254740991"}}, ""},
		{"odd but legal job", http.Header{"Fence-Job-Id": {"tenant/42?a#b%2F+"}, "Fence-Generation": {"1"}}, ""},
		{"quoted key", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"1"}, "Idempotency-Key": {`"k 1"`}}, "Idempotency-Key"},
		{"job only", http.Header{"Fence-Job-Id": {"j"}}, "Fence-Generation"},
		{"generation only", http.Header{"Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"lease only", http.Header{"Fence-Lease": {"s"}}, "Fence-Lease"},
		{"empty job", http.Header{"Fence-Job-Id": {""}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"too long job", http.Header{"Fence-Job-Id": {long + "x"}, "Fence-Generation": {"7"}}, "257 bytes"},
		{"blank in job", http.Header{"Fence-Job-Id": {"a b"}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"comma in job", http.Header{"Fence-Job-Id": {"a,b"}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"quote in job", http.Header{"Fence-Job-Id": {`a"b`}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"backslash in job", http.Header{"Fence-Job-Id": {`a\b`}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"control byte in job", http.Header{"Fence-Job-Id": {"a\tb"}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"raw utf-8 in job", http.Header{"Fence-Job-Id": {"São"}, "Fence-Generation": {"7"}}, "percent-encode"},
		{"latin-1 in job", http.Header{"Fence-Job-Id": {"S\xe3o"}, "Fence-Generation": {"7"}}, "Fence-Job-Id"},
		{"zero", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"0"}}, "Fence-Generation"},
		{"leading zero", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"07"}}, "leading zero"},
		{"plus sign", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"+7"}}, "digits"},
		{"minus sign", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"-7"}}, "digits"},
		{"blank in generation", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7 8"}}, "digits"},
		{"list", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7,8"}}, "digits"},
		{"hexadecimal", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"0x7"}}, "Fence-Generation"},
		{"fraction", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7.0"}}, "digits"},
		{"exponent", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"1e3"}}, "digits"},
		{"other digits", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"٧"}}, "digits"},
		{"2^53", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"9007199254740992"}}, "at most"},
		{"2^64", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"18446744073709551616"}}, "at most"},
		{"repeated job", http.Header{"Fence-Job-Id": {"j", "j"}, "Fence-Generation": {"7"}}, "2 times"},
		{"repeated generation", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7", "8"}}, "2 times"},
		{"repeated key", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Idempotency-Key": {"a", "b"}}, "2 times"},
		{"repeated lease", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Fence-Lease": {"a", "b"}}, "2 times"},
		{"empty key", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Idempotency-Key": {""}}, "Idempotency-Key"},
		{"empty quoted key", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Idempotency-Key": {`""`}}, "Idempotency-Key"},
		{"too long key", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Idempotency-Key": {long}}, "Idempotency-Key"},
		{"empty lease", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Fence-Lease": {""}}, "Fence-Lease"},
		{"underscore alias", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Fence_generation": {"8"}}, "Fence-Generation"},
		{"dot alias", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Fence.job.id": {"k"}}, "Fence-Job-Id"},
		{"mixed alias alone", http.Header{"Fence-Job_id": {"j"}}, "Fence-Job-Id"},
		{"named in Connection", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Connection": {"close, fence-generation"}}, "Connection"},
		{"key named in Connection", http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"7"}, "Connection": {"Idempotency-Key"}}, "Connection"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := newFenceReader(DefaultHeaders()).read(c.header)
			if c.refuse == "" {
				if err != nil || f.generation == 0 || f.jobID == "" {
					t.Fatalf("got %+v, %v, want it accepted", f, err)
				}
				return
			}
			if err == nil || errors.Is(err, errNoFence) || !strings.Contains(err.Error(), c.refuse) {
				t.Fatalf("got error %v, want one that says %q", err, c.refuse)
			}
		})
	}
}

func TestNoFenceIsToldFromABrokenOne(t *testing.T) {
	_, err := newFenceReader(DefaultHeaders()).read(http.Header{"Idempotency-Key": {"k"}})
	if !errors.Is(err, errNoFence) {
		t.Fatalf("got %v, want errNoFence", err)
	}
}

func TestAKeyMayBeQuoted(t *testing.T) {
	f, err := newFenceReader(DefaultHeaders()).read(http.Header{"Fence-Job-Id": {"j"}, "Fence-Generation": {"1"}, "Idempotency-Key": {`"k1"`}})
	if err != nil || f.key != "k1" || f.rawKey != `"k1"` {
		t.Fatalf("got %q (raw %q), %v", f.key, f.rawKey, err)
	}
}

func FuzzReadFence(f *testing.F) {
	f.Add("Fence-Job-Id", "j", "Fence-Generation", "7", "close")
	f.Add("Fence_Job_Id", "a,b", "Fence-Generation", "07", "Fence-Lease")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, connection string) {
		h := http.Header{"Connection": {connection}}
		h.Add(n1, v1)
		h.Add(n2, v2)
		got, err := newFenceReader(DefaultHeaders()).read(h)
		if err == nil && (got.jobID != h.Get("Fence-Job-Id") || got.generation == 0) {
			t.Fatalf("accepted %v as %+v", h, got)
		}
	})
}
