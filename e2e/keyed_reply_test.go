package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// charged is a reply with everything that a caller may need again, and one thing that is nobody else's.
func charged(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Location", "/charges/55")
	h.Set("Etag", `"x"`)
	h.Set("Content-Type", "application/json")
	h.Set("Set-Cookie", "session=secret")
	w.WriteHeader(201)
	_, _ = fmt.Fprintf(w, `{"charge":55,"text":%q}`, strings.Repeat("x", 2000))
}

// A reply that is too large to be kept, or that has no end that could be waited for, belongs to its first caller.
func TestALargeReplyReachesItsFirstCallerWholeAndIsNotRepeated(t *testing.T) {
	t.Parallel()
	large := noise(10_000_000)
	for name, answer := range map[string]http.HandlerFunc{
		"with its length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(large)))
			w.Header().Set("Location", "/charges/56")
			w.WriteHeader(201)
			_, _ = w.Write(large)
		},
		"in chunks": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/charges/56")
			w.WriteHeader(201)
			for part := range slices.Chunk(large, 1<<20) {
				_, _ = w.Write(part)
				_ = http.NewResponseController(w).Flush() // a lost caller shows in the comparison
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.up.Reply("/report", answer)
			l := s.claim("job", "A", long)
			w := keyed(l, "k1", "w", "")
			w.Path = "/report"
			got := s.send(w)
			s.forwarded2xx(got, 201)
			if !bytes.Equal(got.Raw, large) {
				t.Errorf("the first caller got %d bytes, want %d", len(got.Raw), len(large))
			}
			s.quiet(func() { s.notKept(s.send(w), 201, "/charges/56") })
			s.proxy.Kill()
			s.restart()
			s.notKept(s.send(w), 201, "/charges/56")
			s.appliedOnce("job", "k1")
		})
	}
}

// forwarded2xx is forwarded for answers too large to be shown.
func (s *stage) forwarded2xx(a daemon.Answer, status int) {
	s.Helper()
	if a.Status != status || a.Decision() != "forwarded" || a.Outcome() != "applied" {
		s.Fatalf("got %d %s %s with %d bytes", a.Status, a.Decision(), a.Outcome(), len(a.Raw))
	}
}

// notKept checks the answer to a duplicate whose reply was not kept.
func (s *stage) notKept(a daemon.Answer, status int, location string) {
	s.Helper()
	s.refused(a, 409, "already-applied")
	if w := s.about(a, "applied"); daemon.Number(w, "status") != int64(status) || text(w, "location") != location {
		s.Errorf("told of %v", w)
	}
}

func TestAnEventStreamIsPassedOnAndNotRepeated(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.up.Reply("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
	})
	l := s.claim("job", "A", long)
	w := keyed(l, "k1", "w", "")
	w.Path = "/events"
	got := s.send(w)
	s.forwarded(got, 200, "applied")
	if string(got.Raw) != "data: 1\n\n" {
		t.Errorf("the first caller got %q", got.Raw)
	}
	s.notKept(s.send(w), 200, "")
	s.appliedOnce("job", "k1")
}

func TestARouteMayKeepTheFactAndNotTheReply(t *testing.T) {
	t.Parallel()
	s := open(t, "idempotency: {store_reply: false}")
	s.up.Reply("/token", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "secret-of-the-caller")
	})
	l := s.claim("job", "A", long)
	w := keyed(l, "k1", "w", "")
	w.Path = "/token"
	got := s.send(w)
	s.forwarded(got, 201, "applied")
	if string(got.Raw) != "secret-of-the-caller" {
		t.Errorf("the first caller got %q", got.Raw)
	}
	again := s.send(w)
	s.refused(again, 409, "already-applied")
	if known := s.about(again, "applied"); daemon.Number(known, "status") != 201 {
		t.Errorf("told of %v", known)
	}
	s.appliedOnce("job", "k1")
	if code := s.proxy.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := filepath.WalkDir(s.proxy.Dir(), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && bytes.Contains(content(t, path), []byte("secret-of-the-caller")) {
			t.Errorf("the reply is in %s", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
