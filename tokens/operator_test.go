package tokens_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// ofEveryState makes a job of each state in a namespace.
func ofEveryState(t *testing.T, p *process, ns string) {
	t.Helper()
	claim := func(id string, ttl time.Duration) tokens.LeaseRef {
		g, err := p.Claim(t.Context(), tokens.ClaimRequest{Job: tokens.Job{Namespace: ns, ID: id}, Owner: "a", TTL: ttl.Milliseconds()}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return tokens.LeaseRef{Job: tokens.Job{Namespace: ns, ID: id}, Owner: "a", Generation: g.Lease.Generation, LeaseID: g.Lease.ID}
	}
	claim("held", time.Hour)
	claim("lapsed", time.Second)
	if _, err := p.Release(t.Context(), claim("free", time.Hour), 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Complete(t.Context(), claim("completed", time.Hour), nil, 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Fence(t.Context(), tokens.Job{Namespace: ns, ID: "external"}, 5, ""); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
}

func TestAJobIsShownInItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		ofEveryState(t, p, "")
		for _, s := range tokens.States() {
			v, err := p.Job(t.Context(), tokens.Job{ID: string(s)})
			if err != nil || v.State != s {
				t.Errorf("%s: %+v, %v", s, v, err)
			}
		}
		if v, _ := p.Job(t.Context(), tokens.Job{ID: "held"}); v.ExpiresIn != time.Hour.Milliseconds()-1000 {
			t.Errorf("the held lease expires in %d ms", v.ExpiresIn)
		}
		if v, _ := p.Job(t.Context(), tokens.Job{ID: "lapsed"}); v.ExpiresIn != 0 {
			t.Errorf("the lapsed lease expires in %d ms", v.ExpiresIn)
		}
		_, err := p.Job(t.Context(), tokens.Job{Namespace: "other", ID: "held"})
		wantErr(t, err, tokens.ErrJobNotFound)
		p.store.FailNext(tokenstest.LoadFails)
		_, err = p.Job(t.Context(), tokens.Job{ID: "held"})
		wantErr(t, err, tokens.ErrStoreUnavailable)
	})
}

func TestJobsAreListedByPageStateAndNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		ofEveryState(t, p, "")
		ofEveryState(t, p, "other")
		for i := range 20 {
			if _, err := p.Fence(t.Context(), tokens.Job{ID: fmt.Sprintf("x-%02d", i)}, 1, ""); err != nil {
				t.Fatal(err)
			}
		}
		list := func(q tokens.ListQuery, s tokens.State) (ids []string) {
			for range 100 {
				views, cursor, err := p.List(t.Context(), q, s)
				if err != nil {
					t.Fatal(err)
				}
				if len(views) > q.Limit {
					t.Fatalf("a page of %d, asked for %d", len(views), q.Limit)
				}
				for _, v := range views {
					ids = append(ids, v.Job.ID)
				}
				if cursor == "" {
					return ids
				}
				q.After.ID = cursor
			}
			t.Fatal("the list has no end")
			return nil
		}
		if got := list(tokens.ListQuery{Limit: 3}, ""); len(got) != 25 || !slices.IsSorted(got) {
			t.Errorf("everything, by pages of 3: %q", got)
		}
		if got := list(tokens.ListQuery{Limit: 25}, ""); len(got) != 25 {
			t.Errorf("everything, by a page that fits: %q", got)
		}
		for _, s := range []tokens.State{tokens.StateHeld, tokens.StateLapsed, tokens.StateFree, tokens.StateCompleted} {
			for _, limit := range []int{1, 2, 100} {
				if got := list(tokens.ListQuery{Limit: limit}, s); !slices.Equal(got, []string{string(s)}) {
					t.Errorf("%s by pages of %d: %q", s, limit, got)
				}
			}
		}
		if got := list(tokens.ListQuery{Limit: 7}, tokens.StateExternal); len(got) != 21 {
			t.Errorf("external: %q", got)
		}
		if got := list(tokens.ListQuery{Namespace: "other", Limit: 2}, ""); len(got) != 5 {
			t.Errorf("the other namespace: %q", got)
		}
		if got := list(tokens.ListQuery{Prefix: "x-1", Limit: 4}, ""); len(got) != 10 {
			t.Errorf("by prefix: %q", got)
		}
	})
}

func TestAnOperationThatIsRefusedChangesNothing(t *testing.T) {
	p := start(t, tokens.Options{})
	for name, f := range map[string]func() error{
		"revoke": func() error { _, err := p.Revoke(t.Context(), j1, 0, ""); return err },
		"reopen": func() error { _, err := p.Reopen(t.Context(), j1); return err },
	} {
		if err := f(); !errors.Is(err, tokens.ErrJobNotFound) {
			t.Errorf("%s of an unknown job: %v", name, err)
		}
	}
	if _, commits := p.store.Counts(); commits != 0 || p.Jobs() != 0 {
		t.Errorf("%d commits, %d jobs", commits, p.Jobs())
	}
	p.claim("a", time.Hour)
	_, before := p.store.Counts()
	for range 3 {
		if _, err := p.Reopen(t.Context(), j1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Fence(t.Context(), j1, 1, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, after := p.store.Counts(); after != before {
		t.Errorf("%d commits of operations that change nothing", after-before)
	}
}
