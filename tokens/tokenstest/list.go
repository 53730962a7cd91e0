package tokenstest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func listCases() []conformance {
	return []conformance{
		{"ListOfAnEmptyStoreIsEmpty", listEmpty},
		{"ListIsInByteOrder", listOrder},
		{"ListKeepsNamespacesApart", listNamespaces},
		{"ListSelectsByPrefix", listPrefix},
		{"ListGoesOnAfterACursor", listAfter},
		{"ListCarriesRecordsAndVersions", listRecords},
	}
}

// listed is what the list cases store, in byte order of namespace and id. The ids hold
// the bytes that separators, SQL patterns and collations stumble over.
func listed() []tokens.Job {
	return []tokens.Job{
		{ID: "!"}, {ID: "%"}, {ID: "%2F"}, {ID: "-a"}, {ID: "10"}, {ID: "9"}, {ID: "A"}, {ID: "B"}, {ID: "_"}, {ID: "a"},
		{ID: "a!"}, {ID: "a%b"}, {ID: "a/b"}, {ID: "a:b"}, {ID: "aZ"}, {ID: "a_b"}, {ID: "ab"}, {ID: "b"}, {ID: "~"}, {ID: "~~"},
		{Namespace: "A", ID: "z"},
		{Namespace: "a", ID: "A"}, {Namespace: "a", ID: "a"}, {Namespace: "a", ID: "b"},
		{Namespace: "a!", ID: "a"},
		{Namespace: "a/b", ID: "c"},
		{Namespace: "aa", ID: "!"}, {Namespace: "aa", ID: "a"},
		{Namespace: "b", ID: "a"},
	}
}

// fill stores listed in another order.
func fill(s *subject) {
	jobs := listed()
	for i := range jobs {
		k := (i*17 + 5) % len(jobs) // 17 and 29 have no common divisor
		s.commit(jobs[k], 0, sample(tokens.Generation(k+1)))
	}
}

func jobsOf(page []tokens.Listed) []tokens.Job {
	jobs := make([]tokens.Job, 0, len(page))
	for _, l := range page {
		jobs = append(jobs, l.Job)
	}
	return jobs
}

// matching is the specification of a list.
func matching(q tokens.ListQuery) []tokens.Job {
	jobs := make([]tokens.Job, 0)
	for _, j := range listed() {
		switch {
		case q.AllNamespaces && (j.Namespace < q.After.Namespace || j.Namespace == q.After.Namespace && j.ID <= q.After.ID):
		case !q.AllNamespaces && (j.Namespace != q.Namespace || j.ID <= q.After.ID):
		case len(j.ID) < len(q.Prefix) || j.ID[:len(q.Prefix)] != q.Prefix:
		case len(jobs) < q.Limit:
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (s *subject) wantList(q tokens.ListQuery) {
	s.t.Helper()
	if got, want := jobsOf(s.list(q)), matching(q); !slices.Equal(got, want) {
		s.t.Errorf("list %+v:\n got %q\nwant %q", q, got, want)
	}
}

func listEmpty(t *testing.T, o Opener) {
	s := open(t, o)
	for _, q := range []tokens.ListQuery{{Limit: 10}, {AllNamespaces: true, Limit: 10}, {Namespace: "n", Prefix: "p", Limit: 10}} {
		if page := s.list(q); len(page) != 0 {
			t.Errorf("list %+v of an empty store: %q", q, jobsOf(page))
		}
	}
	s.load(job("only-looked-at"))
	if page := s.list(tokens.ListQuery{Limit: 10}); len(page) != 0 {
		t.Errorf("a load made a job: %q", jobsOf(page))
	}
}

func listOrder(t *testing.T, o Opener) {
	s := open(t, o)
	fill(s)
	s.wantList(tokens.ListQuery{AllNamespaces: true, Limit: 1000})
	s.wantList(tokens.ListQuery{Limit: 1000})
	s.close()
	s = open(t, o)
	s.wantList(tokens.ListQuery{AllNamespaces: true, Limit: 1000})
}

func listNamespaces(t *testing.T, o Opener) {
	s := open(t, o)
	fill(s)
	for _, ns := range []string{"", "a", "A", "a!", "a/b", "aa", "b", "absent", "%"} {
		s.wantList(tokens.ListQuery{Namespace: ns, Limit: 1000})
		s.wantList(tokens.ListQuery{Namespace: ns, Prefix: "a", Limit: 1000})
	}
}

func listPrefix(t *testing.T, o Opener) {
	s := open(t, o)
	fill(s)
	for _, p := range []string{"a", "A", "%", "_", "a%", "a_", "a/", "a:", "~", "1", "absent", "a%2F"} {
		s.wantList(tokens.ListQuery{Prefix: p, Limit: 1000})
		s.wantList(tokens.ListQuery{Prefix: p, Limit: 2})
		s.wantList(tokens.ListQuery{Prefix: p, After: job("a/b"), Limit: 1000})
		s.wantList(tokens.ListQuery{Prefix: p, After: job("!"), Limit: 1000})
	}
}

func listAfter(t *testing.T, o Opener) {
	s := open(t, o)
	fill(s)
	// The cursor need not exist any more.
	for _, after := range []tokens.Job{{}, {ID: "a"}, {ID: "a "}, {ID: "~~~"}, {Namespace: "a", ID: "a"}, {Namespace: "a", ID: "zz"}, {Namespace: "a.", ID: "x"}, {Namespace: "zz"}} {
		for _, limit := range []int{1, 3, 1000} {
			s.wantList(tokens.ListQuery{AllNamespaces: true, After: after, Limit: limit})
			s.wantList(tokens.ListQuery{Namespace: after.Namespace, After: after, Limit: limit})
		}
	}
	for limit := 1; limit < 8; limit++ {
		var got []tokens.Job
		q := tokens.ListQuery{AllNamespaces: true, Limit: limit}
		for {
			page := jobsOf(s.list(q))
			got = append(got, page...)
			if len(page) < limit || len(got) > 2*len(listed()) {
				break
			}
			q.After = page[len(page)-1]
		}
		if !slices.Equal(got, listed()) {
			t.Errorf("pages of %d came to %q", limit, got)
		}
	}
}

func listRecords(t *testing.T, o Opener) {
	s := open(t, o)
	for i := range 5 {
		j := job(fmt.Sprint("j", i))
		s.commit(j, s.commit(j, 0, sample(1)), sample(tokens.Generation(i+2)))
	}
	for i, l := range s.list(tokens.ListQuery{Limit: 10}) {
		now := s.load(l.Job)
		if l.Version != now.Version || !reflect.DeepEqual(l.Record, now.Record) || !reflect.DeepEqual(l.Record, sample(tokens.Generation(i+2))) {
			t.Errorf("list says that %q is %s at version %d; load says %s at %d", l.Job, show(l.Record), l.Version, show(now.Record), now.Version)
		}
		if l.Now.IsZero() || now.Now.Before(l.Now) {
			t.Errorf("list carries the time %v, a later load %v", l.Now, now.Now)
		}
	}
}
