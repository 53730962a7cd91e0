package tokens_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestWritesUnderAPrefixAreThoseOfItsJobsInOneNamespace(t *testing.T) {
	p := start(t, tokens.Options{})
	for _, j := range []tokens.Job{{ID: "a"}, {ID: "a/1"}, {Namespace: "n", ID: "a"}, {Namespace: "n", ID: "a/1"}, {Namespace: "n", ID: "a/2"}, {Namespace: "n", ID: "b"}, {Namespace: "nn", ID: "a/1"}} {
		for _, key := range []string{"!", "k"} {
			w := keyed(7, key)
			w.Job = j
			p.finish(p.begin(w), tokens.Settlement{Outcome: tokens.OutcomeUnknown})
		}
	}
	for _, c := range []struct {
		namespace, prefix string
		limit             int
		want              []string
	}{
		{"", "", 9, []string{"a !", "a k", "a/1 !", "a/1 k"}},
		{"", "a", 9, []string{"a !", "a k", "a/1 !", "a/1 k"}},
		{"", "a/", 9, []string{"a/1 !", "a/1 k"}},
		{"n", "", 9, []string{"n/a !", "n/a k", "n/a/1 !", "n/a/1 k", "n/a/2 !", "n/a/2 k", "n/b !", "n/b k"}},
		{"n", "a/", 3, []string{"n/a/1 !", "n/a/1 k", "n/a/2 !"}},
		{"n", "a/", 1, []string{"n/a/1 !"}},
		{"n", "a/2", 9, []string{"n/a/2 !", "n/a/2 k"}},
		{"n", "a/3", 9, nil},
		{"n", "c", 9, nil},
		{"m", "", 9, nil},
		{"nn", "", 9, []string{"nn/a/1 !", "nn/a/1 k"}},
		{"n", "a", 0, nil},
	} {
		for _, open := range []bool{false, true} {
			list, err := p.WritesUnder(t.Context(), c.namespace, c.prefix, tokens.WritesQuery{Open: open, Limit: c.limit}, "")
			var got []string
			for _, l := range list {
				got = append(got, fmt.Sprintf("%s %s", l.Job, l.Key))
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q %q, at most %d: %q, %v; want %q", c.namespace, c.prefix, c.limit, got, err, c.want)
			}
		}
	}
}
