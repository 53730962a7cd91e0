package tokenstest

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func nameCases() []conformance {
	return []conformance{
		{"NamesThatAreAlmostEqualAreDifferentJobs", namesApart},
		{"NamespacesNeverShareAJob", namespacesApart},
	}
}

// oddNames are the ids that stores and routers have confused, each with the trouble it
// made elsewhere: letter case in a collation, percent-encoding decoded on the way, dot
// segments cleaned, patterns, comments, and the two ends of the allowed length.
func oddNames() []string {
	long := strings.Repeat("x", tokens.MaxJobID-1)
	return []string{
		"Run-7", "run-7", "RUN-7", "Run-07", "Run_7", "Run%7", "Run-7%20", "Run-7~",
		"tenant/42", "tenant%2F42", "tenant%2f42", "tenant%252F42", "tenant//42", "tenant/42/", "/tenant/42",
		"..", ".", "...", "../x", "a/../b", "b", "a?b", "a#b", "a;b", "a'b", "a''b", "a--b", "a*b", "a|b", "a&b", "a=b",
		"+", "%", "%%", "%00", "0", "00", "1", "01", "1.0", "1e0", "null", "true", "{}", "[]", "$1", "${x}", "~", "!", "<", ">", "@", "^", "`",
		"S%C3%A3o-Paulo", "Sa%CC%83o-Paulo",
		long + "a", long + "b", long + "A", long,
	}
}

func namesApart(t *testing.T, o Opener) {
	s := open(t, o)
	names := oddNames()
	versions := make(map[string]tokens.Version, len(names))
	for i, id := range names {
		if err := tokens.CheckJobID(id); err != nil {
			t.Fatalf("the suite uses a bad id: %v", err)
		}
		if snap := s.load(job(id)); snap.Version != 0 {
			t.Fatalf("%q exists before it was made: another id is taken for it: %s", id, show(snap.Record))
		}
		versions[id] = s.commit(job(id), 0, sample(tokens.Generation(i+1)))
	}
	for i, id := range names {
		s.wantRecord(job(id), versions[id], sample(tokens.Generation(i+1)))
	}
	if page := s.list(tokens.ListQuery{Limit: 1000}); len(page) != len(names) {
		t.Errorf("%d jobs were made and %d are listed", len(names), len(page))
	}
	s.close()
	s = open(t, o)
	for i, id := range names {
		if got := s.load(job(id)).Record.Seen; got != tokens.Generation(i+1) {
			t.Errorf("reopened: %q holds record %d, want %d", id, got, i+1)
		}
	}
}

func namespacesApart(t *testing.T, o Opener) {
	s := open(t, o)
	jobs := []tokens.Job{
		{ID: "j"}, {Namespace: "a", ID: "j"}, {Namespace: "A", ID: "j"}, {Namespace: "b", ID: "j"},
		{Namespace: "a", ID: "b/c"}, {Namespace: "a/b", ID: "c"}, {ID: "a/b/c"},
		{Namespace: "a", ID: "b:c"}, {Namespace: "a:b", ID: "c"}, {ID: "a:b:c"},
		{Namespace: "a", ID: "bc"}, {Namespace: "ab", ID: "c"}, {ID: "abc"},
		{Namespace: "j", ID: "a"}, {Namespace: "%", ID: "j"}, {Namespace: "_", ID: "j"}, {Namespace: "ä", ID: "j"},
	}
	versions := make([]tokens.Version, len(jobs))
	for i, j := range jobs {
		if snap := s.load(j); snap.Version != 0 {
			t.Fatalf("%+v exists before it was made: %s", j, show(snap.Record))
		}
		versions[i] = s.commit(j, 0, sample(tokens.Generation(i+1)))
	}
	for i, j := range jobs {
		s.wantRecord(j, versions[i], sample(tokens.Generation(i+1)))
	}
}
