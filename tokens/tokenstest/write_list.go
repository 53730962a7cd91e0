package tokenstest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func writeListCases() []conformance {
	return []conformance{
		{"ListWritesIsInByteOrderOfJobAndKey", writeListOrder},
		{"ListWritesSelectsAJob", writeListJob},
		{"ListWritesSelectsTheOpenOnes", writeListOpen},
		{"ListWritesSelectsTheExpiredInTheirOrder", writeListExpired},
		{"ListWritesGoesOnAfterAnyWrite", writeListAfter},
		{"ListWritesLeavesRepliesAway", writeListReplies},
	}
}

func (s *subject) listWrites(q tokens.WritesQuery) []tokens.ListedWrite {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	page, err := s.ListWrites(ctx, q)
	if err != nil {
		s.t.Fatalf("list writes %+v: %v", q, err)
	}
	return page
}

func placesOf(page []tokens.ListedWrite) []string {
	names := make([]string, 0, len(page))
	for _, l := range page {
		names = append(names, l.Job.String()+" "+l.Key)
	}
	return names
}

// wantWrites compares what is listed, as job, blank and key.
func (s *subject) wantWrites(q tokens.WritesQuery, want ...string) {
	s.t.Helper()
	if got := placesOf(s.listWrites(q)); !slices.Equal(got, want) {
		s.t.Errorf("list writes %+v:\n got %q\nwant %q", q, got, want)
	}
}

// fillWrites stores writes of every kind under all of writePlaces, in another order, some
// of them after other ones, and returns them sorted.
func fillWrites(s *subject) []tokens.ListedWrite {
	s.t.Helper()
	all := writePlaces()
	for i := range all {
		n := (i*11 + 3) % len(all)
		p := &all[n]
		// Times collide on purpose: the place decides then.
		expires := int64(10 + n%4*10)
		switch n % 5 {
		case 0:
			p.Record = sampleWrite(n)
		case 1:
			p.Record = sampleWrite(n)
			p.Record.State = tokens.WriteUnknown
		case 2:
			p.Record = settledWrite(n, expires, n)
		case 3:
			s.writeAs(p.Job, put(p.Key, settledWrite(n+1, expires+1, 30)))
			p.Record = settledWrite(n, expires, 0)
			p.Record.State = tokens.WriteDeclined
		case 4:
			s.writeAs(p.Job, put(p.Key, settledWrite(n, expires, 20)))
			p.Record = sampleWrite(n)
		}
		s.writeAs(p.Job, put(p.Key, sampleWrite(n+7)))
		s.writeAs(p.Job, put(p.Key, p.Record))
	}
	slices.SortFunc(all, func(a, b tokens.ListedWrite) int { return byPlace(tokens.WritesQuery{}, a, b) })
	return all
}

// selected is the specification of a list.
func selected(all []tokens.ListedWrite, q tokens.WritesQuery) []string {
	var out []tokens.ListedWrite
	for _, l := range all {
		if (q.Job == tokens.Job{} || q.Job == l.Job) && (!q.Open || l.Record.IsOpen()) &&
			(q.ExpiredAt == 0 || l.Record.Expires != 0 && l.Record.Expires <= q.ExpiredAt) &&
			(q.After.Key == "" || byPlace(q, l, q.After) > 0) {
			out = append(out, l)
		}
	}
	if q.ExpiredAt != 0 {
		slices.SortStableFunc(out, func(a, b tokens.ListedWrite) int { return cmp.Compare(a.Record.Expires, b.Record.Expires) })
	}
	return placesOf(out[:min(len(out), q.Limit)])
}

func writeListOrder(t *testing.T, o Opener) {
	s := open(t, o)
	if page := s.listWrites(tokens.WritesQuery{Limit: 10}); len(page) != 0 {
		t.Errorf("an empty store lists %q", placesOf(page))
	}
	all := fillWrites(s)
	for range 2 {
		for _, limit := range []int{1, 5, 1000} {
			q := tokens.WritesQuery{Limit: limit}
			s.wantWrites(q, selected(all, q)...)
		}
		s.close()
		s = open(t, o)
	}
}

func writeListJob(t *testing.T, o Opener) {
	s := open(t, o)
	all := fillWrites(s)
	for _, l := range append(all, tokens.ListedWrite{Job: job("absent")}) {
		for _, q := range []tokens.WritesQuery{{Limit: 100}, {Open: true, Limit: 100}, {ExpiredAt: 30, Limit: 100}, {Limit: 2}} {
			q.Job = l.Job
			s.wantWrites(q, selected(all, q)...)
		}
	}
}

func writeListOpen(t *testing.T, o Opener) {
	s := open(t, o)
	all := fillWrites(s)
	q := tokens.WritesQuery{Open: true, Limit: 1000}
	s.wantWrites(q, selected(all, q)...)
	for i := range all {
		if l := &all[i]; l.Record.State == tokens.WriteUnknown {
			l.Record = settledWrite(i, 35, 3)
			s.writeAs(l.Job, put(l.Key, l.Record))
		}
	}
	s.wantWrites(q, selected(all, q)...)
	s.close()
	s = open(t, o)
	s.wantWrites(q, selected(all, q)...)
}

func writeListExpired(t *testing.T, o Opener) {
	s := open(t, o)
	all := fillWrites(s)
	for _, at := range []int64{1, 9, 10, 11, 20, 25, 39, 40, 1 << 40} {
		q := tokens.WritesQuery{ExpiredAt: at, Limit: 1000}
		s.wantWrites(q, selected(all, q)...)
	}
	// Times of one and of eight bytes in one order.
	for i, at := range []int64{1<<62 + 1, 255, 256, 1, 1 << 31} {
		s.writeAs(job("t"), put(fmt.Sprint(i), settledWrite(i, at, 0)))
	}
	s.wantWrites(tokens.WritesQuery{Job: job("t"), ExpiredAt: 1 << 62, Limit: 10}, "t 3", "t 1", "t 2", "t 4")
}

func writeListAfter(t *testing.T, o Opener) {
	s := open(t, o)
	all := fillWrites(s)
	for _, base := range []tokens.WritesQuery{{}, {Open: true}, {ExpiredAt: 1000}, {Job: job("a")}, {Job: job("a"), ExpiredAt: 1000}} {
		for limit := 1; limit < 6; limit++ {
			q := base
			q.Limit = limit
			var got []string
			for {
				page := s.listWrites(q)
				got = append(got, placesOf(page)...)
				if len(page) < limit || len(got) > 2*len(all) {
					break
				}
				q.After = page[len(page)-1]
			}
			whole := base
			whole.Limit = 1000
			if want := selected(all, whole); !slices.Equal(got, want) {
				t.Errorf("%+v in pages of %d:\n got %q\nwant %q", base, limit, got, want)
			}
		}
	}
	// What the list goes on after need not be there any more.
	for _, after := range []tokens.ListedWrite{
		{Job: job("a"), Key: "b0", Record: tokens.WriteRecord{Expires: 20}},
		{Job: job("zz"), Key: "z", Record: tokens.WriteRecord{Expires: 15}},
		{Job: job("!"), Key: "z", Record: tokens.WriteRecord{Expires: 30}},
	} {
		for _, q := range []tokens.WritesQuery{{}, {Open: true}, {ExpiredAt: 1000}, {Job: job("a")}} {
			q.After, q.Limit = after, 1000
			s.wantWrites(q, selected(all, q)...)
		}
	}
}

func writeListReplies(t *testing.T, o Opener) {
	s := open(t, o)
	full := fullWrite()
	s.writeAs(job("j"), put("k", full), put("l", settledWrite(1, 5, 0)))
	full.Reply = nil
	for _, q := range []tokens.WritesQuery{{Limit: 10}, {Job: job("j"), Limit: 10}, {ExpiredAt: full.Expires, Limit: 10}} {
		for _, l := range s.listWrites(q) {
			want := full
			if l.Key == "l" {
				want = settledWrite(1, 5, 0)
			}
			if l.Record != want {
				t.Errorf("list writes %+v:\n got %+v\nwant %+v", q, l.Record, want)
			}
		}
	}
}
