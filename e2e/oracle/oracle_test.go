package oracle_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/oracle"
	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

var origin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return origin.Add(time.Duration(ms) * time.Millisecond) }

// arrived is a complete, executed request whose ordinal is also its time in milliseconds.
func arrived(order int, id, job string, generation uint64) upstream.Record {
	return upstream.Record{
		Begin: int64(order), BeganAt: at(order), End: int64(order), EndedAt: at(order), ID: id, Job: job, Generation: generation, Complete: true, Executed: true,
	}
}

// under is the request with a key.
func under(key string, r upstream.Record) upstream.Record {
	r.Key = key
	return r
}

func cut(r upstream.Record) upstream.Record {
	r.Complete, r.Executed = false, false
	return r
}

// until is a request that the upstream was at work on for a while; 0 means that it still is.
func until(end int, r upstream.Record) upstream.Record {
	r.End, r.EndedAt = int64(end), at(end)
	return r
}

func cancelled(r upstream.Record) upstream.Record {
	r.Cancelled = true
	return r
}

func told(id string, status int, decision, reason, outcome string) oracle.Answer {
	return oracle.Answer{ID: id, Job: "j", Generation: 1, Start: at(0), End: at(1), Status: status, Decision: decision,
		Reason: reason, Outcome: outcome}
}

func ack(start, end int, floor uint64, claim string) oracle.Ack {
	return oracle.Ack{Job: "j", Floor: floor, Start: at(start), End: at(end), Claim: claim}
}

func TestAHistoryIsJudged(t *testing.T) {
	one := []upstream.Record{arrived(1, "w", "j", 1)}
	for _, tt := range []struct {
		name    string
		history oracle.History
		want    []string // the rules that are broken, in the order of Judge
	}{
		{"nothing happened", oracle.History{}, nil},
		{"generations grow", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 1), arrived(2, "b", "j", 1), arrived(3, "c", "j", 2)}}, nil},
		{"an older one after a newer", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), arrived(2, "b", "j", 1)}}, []string{"order"}},
		{"the order counts, not the place in the list", oracle.History{Upstream: []upstream.Record{
			arrived(2, "b", "j", 1), arrived(1, "a", "j", 2)}}, []string{"order"}},
		{"an older one after a newer, with others between", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), arrived(2, "b", "k", 9), arrived(3, "c", "j", 2), arrived(4, "d", "j", 1)}},
			[]string{"order"}},
		{"a newer one while an older is at work", oracle.History{Upstream: []upstream.Record{
			until(5, arrived(1, "a", "j", 1)), arrived(2, "b", "j", 1), until(9, arrived(3, "c", "j", 2))}}, []string{"overlap"}},
		{"a newer one while an older has not ended yet", oracle.History{Upstream: []upstream.Record{
			until(0, arrived(1, "a", "j", 1)), arrived(3, "c", "j", 2)}}, []string{"overlap"}},
		{"a newer one after the older ended, another job's, one that was cut", oracle.History{Upstream: []upstream.Record{
			until(2, arrived(1, "a", "j", 1)), until(9, arrived(3, "b", "k", 1)), until(9, cancelled(arrived(4, "c", "j", 1))),
			until(9, cut(arrived(5, "d", "j", 1))), arrived(6, "e", "j", 2)}}, nil},
		{"writes of one generation run side by side", oracle.History{Upstream: []upstream.Record{
			until(5, arrived(1, "a", "j", 1)), until(6, arrived(2, "b", "j", 1))}}, nil},
		{"two jobs do not share an order", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), arrived(2, "b", "k", 1)}}, nil},
		{"an unfenced request is no write of a job", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), arrived(2, "b", "j", 0), arrived(3, "c", "", 1)}}, nil},
		{"half a write of the older counts", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), cut(arrived(2, "b", "j", 1))}}, []string{"order"}},
		{"half a write noticed a little late", oracle.History{CutSkew: 5 * time.Millisecond, Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), cut(arrived(6, "b", "j", 1))}}, nil},
		{"half a write noticed too late", oracle.History{CutSkew: 5 * time.Millisecond, Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), cut(arrived(7, "b", "j", 1))}}, []string{"order"}},
		{"no skew for a whole write", oracle.History{CutSkew: time.Hour, Upstream: []upstream.Record{
			arrived(1, "a", "j", 2), arrived(2, "b", "j", 1)}}, []string{"order"}},

		{"executed twice", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 1), arrived(2, "a", "j", 1)}}, []string{"once"}},
		{"executed three times is one finding", oracle.History{Upstream: []upstream.Record{
			arrived(1, "a", "j", 1), arrived(2, "a", "j", 1), arrived(3, "a", "j", 1)}}, []string{"once"}},
		{"cut, then executed", oracle.History{Upstream: []upstream.Record{
			cut(arrived(1, "a", "j", 1)), arrived(2, "a", "j", 1)}}, nil},

		{"one key executed twice", oracle.History{Upstream: []upstream.Record{
			under("k", arrived(1, "a", "j", 1)), under("k", arrived(2, "b", "j", 2))}}, []string{"key"}},
		{"one key tried again after it was not executed", oracle.History{Upstream: []upstream.Record{
			under("k", cut(arrived(1, "a", "j", 1))), under("k", arrived(2, "b", "j", 1))}}, nil},
		{"two keys, and one key of two jobs", oracle.History{Upstream: []upstream.Record{
			under("k", arrived(1, "a", "j", 1)), under("l", arrived(2, "b", "j", 1)), under("k", arrived(3, "c", "i", 1))}}, nil},
		{"a replay of what was executed", oracle.History{Upstream: []upstream.Record{under("k", arrived(1, "a", "j", 1))},
			Answers: []oracle.Answer{{ID: "b", Job: "j", Key: "k", Status: 200, Decision: "replayed", Outcome: "applied"}}}, nil},
		{"a replay of nothing", oracle.History{Upstream: []upstream.Record{under("k", arrived(1, "a", "i", 1))},
			Answers: []oracle.Answer{{ID: "b", Job: "j", Key: "k", Status: 200, Decision: "replayed", Outcome: "applied"}}}, []string{"key"}},

		{"applied and executed", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 200, "forwarded", "", "applied")}}, nil},
		{"applied and never seen", oracle.History{Answers: []oracle.Answer{
			told("w", 200, "forwarded", "", "applied")}}, []string{"truth"}},
		{"applied and cut", oracle.History{Upstream: []upstream.Record{cut(one[0])}, Answers: []oracle.Answer{
			told("w", 200, "forwarded", "", "applied")}}, []string{"truth"}},
		{"refused and never seen", oracle.History{Answers: []oracle.Answer{
			told("w", 412, "refused", "stale-generation", "")}}, nil},
		{"refused and executed", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 412, "refused", "stale-generation", "")}}, []string{"truth"}},
		{"refused and half of it sent", oracle.History{Upstream: []upstream.Record{cut(one[0])}, Answers: []oracle.Answer{
			told("w", 412, "refused", "stale-generation", "")}}, []string{"truth"}},
		{"cut and said so", oracle.History{Upstream: []upstream.Record{cut(one[0])}, Answers: []oracle.Answer{
			told("w", 412, "refused", "stale-generation", "unknown")}}, nil},
		{"not sent and not seen", oracle.History{Answers: []oracle.Answer{
			told("w", 502, "refused", "upstream-unreachable", "not-sent")}}, nil},
		{"not sent and seen", oracle.History{Upstream: []upstream.Record{cut(one[0])}, Answers: []oracle.Answer{
			told("w", 502, "forwarded", "upstream-unreachable", "not-sent")}}, []string{"truth"}},
		{"declined and executed", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 404, "forwarded", "", "declined")}}, []string{"truth"}},
		{"declined and not executed", oracle.History{Upstream: []upstream.Record{{ID: "w", Begin: 1, Complete: true}},
			Answers: []oracle.Answer{told("w", 404, "forwarded", "", "declined")}}, nil},
		{"unknown and executed", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 502, "forwarded", "upstream-failed", "unknown")}}, nil},
		{"unknown and never seen", oracle.History{Answers: []oracle.Answer{
			told("w", 504, "forwarded", "upstream-timeout", "unknown")}}, nil},
		{"a success of unknown outcome", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 200, "forwarded", "", "unknown")}}, []string{"truth"}},
		{"no outcome", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 200, "forwarded", "", "")}}, []string{"truth"}},
		{"no decision", oracle.History{Upstream: one, Answers: []oracle.Answer{
			told("w", 200, "", "", "applied")}}, []string{"truth"}},
		{"no reason", oracle.History{Answers: []oracle.Answer{told("w", 412, "refused", "", "")}}, []string{"truth"}},
		{"no answer tells nothing", oracle.History{Upstream: one, Answers: []oracle.Answer{told("w", 0, "", "", "")}}, nil},

		{"floors grow", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 1, "a"), ack(2, 3, 2, "b"), ack(4, 5, 2, "")}}, nil},
		{"a floor falls", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 2, "a"), ack(2, 3, 1, "")}}, []string{"floor"}},
		{"a floor falls after others", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 1, "a"), ack(2, 3, 5, "b"), ack(4, 5, 5, ""), ack(6, 7, 4, "")}}, []string{"floor"}},
		{"overlapping statements may come in any order", oracle.History{Acks: []oracle.Ack{
			ack(0, 5, 2, "a"), ack(1, 6, 1, "")}}, nil},
		{"a lower bound is no fall", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 2, "a"), {Job: "j", Floor: 1, Start: at(2), End: at(3), AtLeast: true}}}, nil},
		{"a lower bound binds what follows", oracle.History{Acks: []oracle.Ack{
			{Job: "j", Floor: 2, Start: at(0), End: at(1), AtLeast: true}, ack(2, 3, 1, "")}}, []string{"floor"}},
		{"a generation issued twice at once", oracle.History{Acks: []oracle.Ack{
			ack(0, 5, 2, "a"), ack(0, 5, 2, "b")}}, []string{"generation"}},
		{"a generation issued again after a restart", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 2, "a"), ack(2, 3, 2, "b")}}, []string{"generation"}},
		{"the same claim asked again", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 2, "a"), ack(2, 3, 2, "a")}}, nil},
		{"the same generation of two jobs", oracle.History{Acks: []oracle.Ack{
			ack(0, 1, 2, "a"), {Job: "k", Floor: 2, Start: at(0), End: at(1), Claim: "b"}}}, nil},

		{"a stale write passes the fence", oracle.History{Upstream: one,
			Acks:    []oracle.Ack{ack(0, 1, 2, "a")},
			Answers: []oracle.Answer{{ID: "w", Job: "j", Generation: 1, Start: at(2), End: at(3)}}}, []string{"fence"}},
		{"a write sent while the floor rose", oracle.History{Upstream: one,
			Acks:    []oracle.Ack{ack(0, 3, 2, "a")},
			Answers: []oracle.Answer{{ID: "w", Job: "j", Generation: 1, Start: at(2), End: at(4)}}}, nil},
		{"a stale write held back", oracle.History{
			Acks:    []oracle.Ack{ack(0, 1, 2, "a")},
			Answers: []oracle.Answer{{ID: "w", Job: "j", Generation: 1, Start: at(2), End: at(3)}}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := oracle.Judge(tt.history)
			var got []string
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range joined.Unwrap() {
					var v oracle.Violation
					if !errors.As(e, &v) {
						t.Fatalf("not a violation: %v", e)
					}
					got = append(got, v.Rule)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v\n%v", got, tt.want, err)
			}
		})
	}
}
