// Package oracle judges what happened: from the upstream's record and from what the callers were told, it finds every
// breach of the promises that the proxy makes. Pure functions, no clock, no I/O.
package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

// Violation is one broken promise.
type Violation struct {
	Rule   string // "order", "overlap", "once", "key", "truth", "floor", "generation" or "fence"
	Job    string
	Detail string
}

func (v Violation) Error() string { return fmt.Sprintf("%s: job %q: %s", v.Rule, v.Job, v.Detail) }

// Answer is one write as its caller knows it. Start and End are read from one clock with a monotonic part.
type Answer struct {
	ID         string
	Job        string
	Generation uint64
	Key        string    // empty: the write had none
	Start      time.Time // before the first byte was sent
	End        time.Time // after the answer, or its absence, was known

	Status   int    // 0: no answer came, so nothing is known
	Decision string // Fence-Decision
	Reason   string // Fence-Reason
	Outcome  string // Fence-Outcome
	Failure  string // why no answer came, for the reader of a history
}

// Ack is one acknowledged statement about a job's floor: a granted claim, a release, a job's view, or the Fence-Generation of
// any answer.
type Ack struct {
	Job   string
	Floor uint64
	Start time.Time // before the question was sent
	End   time.Time // after the answer was read

	// Claim names the intent behind a granted claim, the same for a repeated question; empty for other statements. For a
	// claim Floor is the generation that was issued.
	Claim string

	// AtLeast says that the floor may have been higher: a release that is repeated, for example, only tells that its
	// own generation is closed.
	AtLeast bool
}

// History is everything that one run has seen.
type History struct {
	Upstream []upstream.Record
	Answers  []Answer
	Acks     []Ack

	// CutSkew is by how much an incomplete request may be noticed by the upstream's own scheduler after a newer one. The
	// bytes of a cut upload are in the upstream's socket before the newer write is sent, yet two goroutines of the
	// upstream race for who looks first. It never excuses a complete request.
	CutSkew time.Duration
}

// Judge applies every rule. It returns nil, or all violations joined.
func Judge(h History) error {
	var all []error
	for _, rule := range []func(History) []Violation{Order, Overlap, Once, Keys, Truth, Floors, Fence} {
		for _, v := range rule(h) {
			all = append(all, v)
		}
	}
	return errors.Join(all...)
}

// Order demands that per job no request of a lower generation begins at the upstream after one of a higher.
func Order(h History) []Violation {
	records := byBegin(h.Upstream)
	highest := make(map[string]upstream.Record)
	var out []Violation
	for _, r := range records {
		if r.Job == "" || r.Generation == 0 {
			continue
		}
		top, ok := highest[r.Job]
		if !ok || r.Generation > top.Generation {
			highest[r.Job] = r
			continue
		}
		if r.Generation == top.Generation || !r.Complete && r.BeganAt.Sub(top.BeganAt) <= h.CutSkew {
			continue
		}
		out = append(out, Violation{"order", r.Job, fmt.Sprintf(
			"write %q of generation %d arrived %v after %q of generation %d (complete %v)",
			r.ID, r.Generation, r.BeganAt.Sub(top.BeganAt), top.ID, top.Generation, r.Complete)})
	}
	return out
}

func byBegin(records []upstream.Record) []upstream.Record {
	return slices.SortedFunc(slices.Values(records), func(a, b upstream.Record) int { return cmp.Compare(a.Begin, b.Begin) })
}

// Overlap demands that per job no request of a higher generation begins while the upstream is still at work on a whole one
// of a lower. One whose connection was closed meanwhile was cut, and counts as settled by that.
func Overlap(h History) []Violation {
	running := make(map[string][]upstream.Record)
	var out []Violation
	for _, r := range byBegin(h.Upstream) {
		if r.Job == "" || r.Generation == 0 {
			continue
		}
		still := slices.DeleteFunc(running[r.Job], func(old upstream.Record) bool { return old.End != 0 && old.End < r.Begin })
		for _, old := range still {
			if old.Generation < r.Generation {
				out = append(out, Violation{"overlap", r.Job, fmt.Sprintf(
					"write %q of generation %d arrived while %q of generation %d was at work", r.ID, r.Generation, old.ID, old.Generation)})
			}
		}
		if r.Complete && !r.Cancelled {
			still = append(still, r)
		}
		running[r.Job] = still
	}
	return out
}

// Once demands that no write is executed twice.
func Once(h History) []Violation {
	executed := make(map[string]int)
	var out []Violation
	for _, r := range h.Upstream {
		if !r.Executed || r.ID == "" {
			continue
		}
		executed[r.ID]++
		if executed[r.ID] == 2 {
			out = append(out, Violation{"once", r.Job, fmt.Sprintf("write %q was executed again", r.ID)})
		}
	}
	return out
}

// Keys demands that per job no two writes under one key are executed, and that a replay speaks of one that was. A run in
// which an operator frees keys, or a route forwards unknown writes again, can not be judged by it.
func Keys(h History) []Violation {
	type name struct{ job, key string }
	executed := make(map[name]int)
	var out []Violation
	for _, r := range h.Upstream {
		if !r.Executed || r.Key == "" {
			continue
		}
		n := name{r.Job, r.Key}
		executed[n]++
		if executed[n] == 2 {
			out = append(out, Violation{"key", r.Job, fmt.Sprintf("key %q was executed again, by write %q of generation %d", r.Key, r.ID, r.Generation)})
		}
	}
	for _, a := range h.Answers {
		if a.Decision == "replayed" && executed[name{a.Job, a.Key}] == 0 {
			out = append(out, Violation{"key", a.Job, fmt.Sprintf("write %q was told a reply to key %q, under which nothing was executed", a.ID, a.Key)})
		}
	}
	return out
}

// Truth demands that every answer agrees with what the upstream saw of that write.
func Truth(h History) []Violation {
	type sight struct{ seen, executed int }
	sights := make(map[string]sight)
	for _, r := range h.Upstream {
		s := sights[r.ID]
		s.seen++
		if r.Executed {
			s.executed++
		}
		sights[r.ID] = s
	}
	var out []Violation
	for _, a := range h.Answers {
		s := sights[a.ID]
		if lie := lie(a, s.seen, s.executed); lie != "" {
			out = append(out, Violation{"truth", a.Job, fmt.Sprintf(
				"write %q of generation %d was told %d decision %q reason %q outcome %q: %s; the upstream saw it %d times and executed it %d times",
				a.ID, a.Generation, a.Status, a.Decision, a.Reason, a.Outcome, lie, s.seen, s.executed)})
		}
	}
	return out
}

// lie says what is wrong with an answer, or nothing.
func lie(a Answer, seen, executed int) string {
	if a.Status == 0 {
		return ""
	}
	switch a.Decision {
	case "forwarded", "refused":
	case "replayed":
		return "" // speaks of an earlier write
	default:
		return "no decision is named"
	}
	if a.Decision == "refused" && a.Reason == "" {
		return "a refusal without a reason"
	}
	if a.Decision == "refused" && a.Outcome == "" || a.Outcome == "not-sent" {
		if seen != 0 {
			return "it did reach the upstream"
		}
		return ""
	}
	switch a.Outcome {
	case "applied":
		if executed != 1 {
			return "it was not executed exactly once"
		}
	case "declined":
		if executed != 0 {
			return "it was executed"
		}
	case "unknown":
		if a.Status >= 200 && a.Status < 300 {
			return "a success of unknown outcome"
		}
	default:
		return "no outcome of the attempt is named"
	}
	return ""
}

// Floors demands that a job's floor never falls between two statements of which the first was complete before the
// second was asked for, and that no generation is issued for two claims.
func Floors(h History) []Violation {
	var out []Violation
	issued := make(map[string]map[uint64]string)
	for _, a := range h.Acks {
		if a.Claim == "" {
			continue
		}
		byGeneration := issued[a.Job]
		if byGeneration == nil {
			byGeneration = make(map[uint64]string)
			issued[a.Job] = byGeneration
		}
		if first, ok := byGeneration[a.Floor]; ok && first != a.Claim {
			out = append(out, Violation{"generation", a.Job, fmt.Sprintf(
				"generation %d was issued to claim %q and to claim %q", a.Floor, first, a.Claim)})
		}
		byGeneration[a.Floor] = a.Claim
	}
	floors := known(h.Acks)
	for _, a := range h.Acks {
		if before := floors.at(a.Job, a.Start); a.Floor < before && !a.AtLeast {
			out = append(out, Violation{"floor", a.Job, fmt.Sprintf(
				"the floor was %d and is told as %d later on (claim %q)", before, a.Floor, a.Claim)})
		}
	}
	return out
}

// Fence demands that a write below a floor that had been acknowledged before the write was sent never reaches the
// upstream, whatever its caller was told.
func Fence(h History) []Violation {
	seen := make(map[string]bool, len(h.Upstream))
	for _, r := range h.Upstream {
		seen[r.ID] = true
	}
	floors := known(h.Acks)
	var out []Violation
	for _, a := range h.Answers {
		if !seen[a.ID] {
			continue
		}
		if floor := floors.at(a.Job, a.Start); a.Generation < floor {
			out = append(out, Violation{"fence", a.Job, fmt.Sprintf(
				"write %q of generation %d reached the upstream, although floor %d had been acknowledged before it was sent",
				a.ID, a.Generation, floor)})
		}
	}
	return out
}

// timeline is, per job, the highest acknowledged floor over time.
type timeline map[string][]Ack

// known keeps of the statements those that raised the floor, in the order in which they were complete.
func known(acks []Ack) timeline {
	sorted := slices.SortedFunc(slices.Values(acks), func(a, b Ack) int { return a.End.Compare(b.End) })
	t := make(timeline)
	for _, a := range sorted {
		steps := t[a.Job]
		if len(steps) == 0 || a.Floor > steps[len(steps)-1].Floor {
			t[a.Job] = append(steps, a)
		}
	}
	return t
}

// at is the highest floor of a job acknowledged strictly before a moment; 0 if none was.
func (t timeline) at(job string, moment time.Time) uint64 {
	steps := t[job]
	n, _ := slices.BinarySearchFunc(steps, moment, func(a Ack, m time.Time) int { return a.End.Compare(m) })
	if n == 0 {
		return 0
	}
	return steps[n-1].Floor
}
