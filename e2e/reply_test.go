package e2e_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// own are the headers that belong to the proxy's side of the connection or to the proxy itself.
var own = []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Fence-Decision", "Fence-Generation", "Fence-Outcome"}

func TestTheUpstreamsAnswerReachesTheCallerUnchanged(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(z, `{"error":"card declined"}`); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	l := s.claim("job", "A", long)
	for _, tt := range []struct {
		name    string
		outcome string
		answer  http.HandlerFunc
	}{
		{"an error with everything on it", "unknown", func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", "application/json")
			h.Set("Content-Encoding", "gzip")
			h.Set("X-Request-Id", "r1")
			h.Set("Retry-After", "7")
			h["Set-Cookie"] = []string{"a=1; Path=/", "b=2"}
			w.WriteHeader(500)
			_, _ = w.Write(zipped.Bytes())
		}},
		{"a large error", "declined", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(422)
			_, _ = io.WriteString(w, strings.Repeat("no ", 34_000))
		}},
		{"an empty body with its length", "applied", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "0")
		}},
		{"no content", "applied", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }},
		{"not modified", "declined", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(304)
		}},
		{"a redirect", "declined", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere?a=1")
			w.WriteHeader(307)
		}},
		{"see other", "applied", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/done")
			w.WriteHeader(303)
		}},
		{"the upstream's own 412", "declined", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(412)
			_, _ = io.WriteString(w, `{"type":"urn:fenceproxy:stale-generation"}`)
		}},
		{"busy", "declined", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(503)
		}},
		{"early hints first", "applied", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.Header().Set("X-Final", "yes")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "made")
		}},
		{"chunks and trailers", "applied", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			for _, part := range []string{"one ", "two ", "three"} {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush() // a lost caller shows in the comparison
			}
			w.Header().Set("X-Sum", "13")
		}},
	} {
		path := "/" + strings.ReplaceAll(tt.name, " ", "-")
		s.up.Reply(path, tt.answer)
		w := write(l, path, "")
		w.Path = path
		got := s.send(w)
		want := s.direct(w)
		if got.Status != want.Status || !bytes.Equal(got.Raw, want.Raw) || got.ContentLength != want.ContentLength {
			t.Errorf("%s: got %d with %d bytes (length %d), the upstream sent %d with %d (length %d)", tt.name,
				got.Status, len(got.Raw), got.ContentLength, want.Status, len(want.Raw), want.ContentLength)
		}
		same(t, tt.name+": header", got.Header, want.Header)
		same(t, tt.name+": trailer", got.Trailer, want.Trailer)
		if len(got.Informational) != len(want.Informational) {
			t.Errorf("%s: %d informational answers, want %d", tt.name, len(got.Informational), len(want.Informational))
		} else if len(got.Informational) > 0 {
			same(t, tt.name+": informational", http.Header(got.Informational[0]), http.Header(want.Informational[0]))
		}
		if got.Decision() != "forwarded" || got.Reason() != "" || got.Outcome() != tt.outcome || got.Floor() != 1 {
			t.Errorf("%s: the proxy's mark: %s", tt.name, show(got))
		}
	}
}

// direct sends the write to the upstream without the proxy.
func (s *stage) direct(w daemon.Write) daemon.Answer {
	s.Helper()
	w.ID += "-direct"
	a, err := daemon.NewWriter(s.up.URL()).Send(s.soon(), w)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// same compares two headers, leaving out what is the proxy's own, and Date, which may tick in between.
func same(t *testing.T, what string, got, want http.Header) {
	t.Helper()
	for name := range union(got, want) {
		if name == "Date" || slices.Contains(own, name) {
			continue
		}
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s %s: got %q, want %q", what, name, got[name], want[name])
		}
	}
}

func union(a, b http.Header) map[string]bool {
	all := make(map[string]bool)
	for _, h := range []http.Header{a, b} {
		for name := range h {
			all[name] = true
		}
	}
	return all
}

func TestWhatTheUpstreamSaysInTheProxysNameIsReplaced(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	s.up.Reply("/liar", func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Fence-Decision", "Fence-Reason", "Fence-Generation", "Fence-Outcome"} {
			w.Header()[name] = []string{"lie", "lie again"}
		}
	})
	w := write(l, "w", "")
	w.Path = "/liar"
	got := s.send(w)
	s.forwarded(got, 200, "applied")
	for name, want := range map[string][]string{"Fence-Decision": {"forwarded"}, "Fence-Generation": {"1"},
		"Fence-Outcome": {"applied"}, "Fence-Reason": nil} {
		if !slices.Equal(got.Header[name], want) {
			t.Errorf("%s: got %q, want %q", name, got.Header[name], want)
		}
	}
}

func TestAnAnswerOfTheProxyIsKnownAsSuch(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, w := range map[string]daemon.Write{
		"fence-required": {ID: "none"},
		"fence-invalid":  {ID: "half", Job: "job"},
	} {
		status := map[string]int{"fence-required": 428, "fence-invalid": 400}[name]
		got := s.send(w)
		s.refused(got, status, name)
		if got.Decision() != "refused" {
			t.Errorf("%s: decision %q", name, got.Decision())
		}
		s.unseen(w.ID)
	}
	l := s.claim("job", "A", long)
	s.refusedAfterSending(s.send(write(l, "w", "reset-after-execute")), 502, "upstream-failed")
	s.executed("w", 1)
	s.refusedAfterSending(s.send(write(l, "x", "reset")), 502, "upstream-failed")
	if got := len(s.up.Seen("x")); got != 1 {
		t.Errorf("the upstream saw the write %d times, want once", got)
	}
}
