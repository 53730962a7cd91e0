package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAWellFormedBodyIsReadWhole(t *testing.T) {
	var c ClaimRequest
	err := Decode(strings.NewReader(` {"job_id":"a\u0042","owner":"µ \ud83d\ude00","ttl_ms":30000,"claim_id":null,"wait_ms":-1} `+"\n"), 1000, &c)
	want := ClaimRequest{JobID: "aB", Owner: "µ 😀", TTL: 30000, Wait: -1}
	if err != nil || c != want {
		t.Fatalf("got %+v, %v; want %+v", c, err, want)
	}
}

func TestOptionalFieldsTellAbsentFromZero(t *testing.T) {
	for body, want := range map[string]string{
		`{"job_id":"a","owner":"o","generation":1,"lease_id":"l"}`:               "nil",
		`{"job_id":"a","owner":"o","generation":1,"lease_id":"l","ttl_ms":null}`: "nil",
		`{"job_id":"a","owner":"o","generation":1,"lease_id":"l","ttl_ms":0}`:    "0",
	} {
		var r RenewRequest
		if err := Decode(strings.NewReader(body), 1000, &r); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		got := "nil"
		if r.TTL != nil {
			got = string(rune('0' + *r.TTL))
		}
		if got != want {
			t.Errorf("%s: ttl is %s, want %s", body, got, want)
		}
	}
}

func TestAResultIsAnyJSONAndKeptAsItCame(t *testing.T) {
	for _, result := range []string{`null`, `0`, `"x"`, `[1, 2]`, `{"a":{"a":1.50}}`, strings.Repeat("[", 64) + strings.Repeat("]", 64)} {
		var c CompleteRequest
		body := `{"job_id":"a","owner":"o","generation":1,"lease_id":"l","result":` + result + `}`
		if err := Decode(strings.NewReader(body), 1000, &c); err != nil || string(c.Result) != result {
			t.Errorf("%s: got %s, %v", result, c.Result, err)
		}
	}
}

func TestABadBodyNamesItsField(t *testing.T) {
	claim := func() any { return new(ClaimRequest) }
	batch := func() any { return new(RenewLeasesRequest) }
	complete := func() any { return new(CompleteRequest) }
	revoke := func() any { return new(RevokeRequest) }
	for _, c := range []struct {
		name, body    string
		into          func() any
		field, reason string
	}{
		{"nothing", ``, claim, "", "is empty"},
		{"blanks", " \n", claim, "", "is empty"},
		{"a word", `claim`, claim, "", "not valid JSON"},
		{"an array", `[]`, claim, "", "not an array"},
		{"null", `null`, claim, "", "not null"},
		{"a string", `"x"`, claim, "", "not a string"},
		{"a number", `3`, claim, "", "not a number"},
		{"cut off", `{"job_id":"a"`, claim, "", "ends too early"},
		{"cut off in a value", `{"job_id":"a`, claim, "job_id", "ends too early"},
		{"no quotes", `{job_id:"a"}`, claim, "", "not valid JSON"},
		{"a number as name", `{1:"a"}`, claim, "", "not valid JSON"},
		{"a bad value", `{"ttl_ms":30s}`, claim, "ttl_ms", "followed by what is not valid JSON"},
		{"a leading zero", `{"ttl_ms":030}`, claim, "ttl_ms", "not valid JSON"},
		{"trailing comma", `{"job_id":"a",}`, claim, "job_id", "not valid JSON"},
		{"a second object", `{"job_id":"a","owner":"o","ttl_ms":1}{}`, claim, "", "goes on"},
		{"a stray brace", `{"job_id":"a","owner":"o","ttl_ms":1}}`, claim, "", "goes on"},
		{"an unknown field", `{"job_id":"a","owner":"o","ttl_ms":1,"ttl":1}`, claim, "ttl", "not a known field"},
		{"another case", `{"Job_ID":"a"}`, claim, "Job_ID", "not a known field"},
		{"twice", `{"job_id":"a","job_id":"a"}`, claim, "job_id", "given twice"},
		{"twice by escape", `{"job_id":"a","job\u005fid":"b"}`, claim, "job_id", "given twice"},
		{"missing", `{"job_id":"a","ttl_ms":1}`, claim, "owner", "required and missing"},
		{"null for a required one", `{"job_id":"a","owner":null,"ttl_ms":1}`, claim, "owner", "required and null"},
		{"a string for a number", `{"ttl_ms":"30"}`, claim, "ttl_ms", `whole number, not "30"`},
		{"true for a number", `{"ttl_ms":true}`, claim, "ttl_ms", "whole number, not true"},
		{"a fraction", `{"ttl_ms":1.5}`, claim, "ttl_ms", "is 1.5, which"},
		{"a fraction of nothing", `{"ttl_ms":30.0}`, claim, "ttl_ms", "is 30.0, which"},
		{"an exponent", `{"ttl_ms":1e3}`, claim, "ttl_ms", "is 1e3, which"},
		{"too large", `{"ttl_ms":9223372036854775808}`, claim, "ttl_ms", "out of range"},
		{"a number for a string", `{"owner":7}`, claim, "owner", "string, not 7"},
		{"an object for a string", `{"owner":{"a":1}}`, claim, "owner", "not an object"},
		{"an empty claim id", `{"claim_id":""}`, claim, "claim_id", "leave the field out"},
		{"invalid UTF-8", "{\"owner\":\"\xff\"}", claim, "", "not valid UTF-8"},
		{"half a pair", `{"owner":"a\ud800"}`, claim, "owner", "surrogate"},
		{"the other half", `{"owner":"\\\udc00"}`, claim, "owner", "surrogate"},
		{"two first halves", `{"owner":"\ud800\ud800"}`, claim, "owner", "surrogate"},
		{"no array", `{"leases":{}}`, batch, "leases", "must be an array"},
		{"a null entry", `{"leases":[null]}`, batch, "leases[0]", "null"},
		{"an entry that is no object", `{"leases":[7]}`, batch, "leases[0]", "not a number"},
		{"deep inside", `{"leases":[{"job_id":"a","owner":"o","generation":1,"lease_id":"l"},{"ttl_ms":"1"}]}`, batch, "leases[1].ttl_ms", "whole number"},
		{"missing inside", `{"leases":[{}]}`, batch, "leases[0].job_id", "missing"},
		{"too deep", `{"result":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, complete, "result", "64 deep"},
		{"a negative generation", `{"generation":-1}`, complete, "generation", "can not be negative"},
		{"a huge generation", `{"generation":18446744073709551616}`, complete, "generation", "too large"},
		{"an expected generation of 0", `{"job_id":"a","expected_generation":0}`, revoke, "expected_generation", "is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Decode(strings.NewReader(c.body), 4096, c.into())
			var f *FieldError
			if !errors.As(err, &f) || f.Field != c.field || !strings.Contains(f.Reason, c.reason) {
				t.Fatalf("got %v; want field %q, reason with %q", err, c.field, c.reason)
			}
		})
	}
}

func TestABodyAboveTheLimitIsTooLarge(t *testing.T) {
	body := `{"job_id":"a"}`
	if err := Decode(strings.NewReader(body), int64(len(body)), new(ReopenRequest)); err != nil {
		t.Errorf("a body of exactly the limit: %v", err)
	}
	if err := Decode(strings.NewReader(body), int64(len(body))-1, new(ReopenRequest)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a body above the limit: %v", err)
	}
}

func TestAReadErrorIsKeptApartFromABadBody(t *testing.T) {
	err := Decode(iotest.ErrReader(io.ErrClosedPipe), 10, new(ReopenRequest))
	var f *FieldError
	if !errors.Is(err, io.ErrClosedPipe) || errors.As(err, &f) {
		t.Fatalf("got %v", err)
	}
}

func TestTextForNamesHasNoControlCharacters(t *testing.T) {
	for s, ok := range map[string]bool{
		"worker 1": true, "": true, "µ😀": true, strings.Repeat("x", 8): true, strings.Repeat("x", 9): false,
		"a\nb": false, "a\x00": false, "\x7f": false, "\u0085": false, "\xff": false,
	} {
		if got := CheckText(s, 8) == ""; got != ok {
			t.Errorf("%q: ok is %v, want %v", s, got, ok)
		}
	}
}

// FuzzDecode holds two promises: whatever is accepted, encoding/json reads in the same
// way, and no input makes it panic.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"job_id":"a","owner":"o","ttl_ms":1,"claim_id":"c","wait_ms":1,"settle_ms":2}`,
		`{"leases":[{"job_id":"a","owner":"o","generation":1,"lease_id":"l","ttl_ms":5}]}`,
		`{"job_id":"a","owner":"o","generation":1,"lease_id":"l","result":{"a":[1,"\ud83d\ude00"]}}`,
		`{"job_id":"\ud800"}`, `{"job_id":null}`, `[`, "\xff", `{"a":1}{}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, fresh := range []func() any{
			func() any { return new(ClaimRequest) }, func() any { return new(RenewLeasesRequest) }, func() any { return new(CompleteRequest) },
		} {
			got, want := fresh(), fresh()
			if Decode(bytes.NewReader(body), 1<<16, got) != nil {
				continue
			}
			dec := json.NewDecoder(bytes.NewReader(body))
			dec.DisallowUnknownFields()
			if err := dec.Decode(want); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q: got %+v, encoding/json %+v, %v", body, got, want, err)
			}
		}
	})
}
