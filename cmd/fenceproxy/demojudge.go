package main

import (
	"fmt"
	"strings"
)

// demoRecord is what the fence let through, and what it said.
type demoRecord struct {
	// visits are the API's, in the order of their arrival.
	visits []visit
	// told are the answers to the workers, in the order of the story.
	told []demoAnswer
	// stale is what reached the API when A wrote with the generation that B had
	// superseded, before B wrote.
	stale traffic
}

// demoAnswer is what a worker was told about a write. floor is Fence-Generation.
type demoAnswer struct{ worker, order, what, answer, floor string }

func (a demoAnswer) String() string {
	return fmt.Sprintf("%s was told %s about %s of %s, with Fence-Generation %s", a.worker, a.answer, a.what, a.order, a.floor)
}

// demoFaults says in which ways the fence did not hold.
type demoFaults struct{ found []string }

// Error implements error.
func (f *demoFaults) Error() string {
	return "FAILED: the record is not the one that the fence promises\n  " + strings.Join(f.found, "\n  ")
}

// judge compares a record with the promise, and returns all that is wrong with it.
func judge(r demoRecord) (found []string) {
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	visits := []visit{
		{worker: "A", order: "order-42", what: "instalment 1", state: visitDone},
		{worker: "B", order: "order-42", what: "instalment 2", state: visitDone},
		{worker: "A", order: "order-43", what: "status open", state: visitDone},
		{worker: "C", order: "order-43", what: "status paid", state: visitDone},
		{worker: "A", order: "order-44", what: "statement", state: visitCut},
		{worker: "C", order: "order-44", what: "statement", state: visitDone},
	}
	for i := range max(len(visits), len(r.visits)) {
		want, got := "nothing", "nothing"
		if i < len(visits) {
			want = visits[i].String()
		}
		if i < len(r.visits) {
			got = r.visits[i].String()
		}
		if got != want {
			add("write %d at the API: got %s, want %s", i+1, got, want)
		}
	}
	// The order of arrival is not enough: an older write must have ended. The end
	// of a cut one is seen by its connection alone, which no order binds.
	for i, older := range r.visits {
		for _, newer := range r.visits[i+1:] {
			if older.order == newer.order && older.state != visitCut && newer.arrived.Before(older.left) {
				add("%s arrived %v before the end of %s", newer, older.left.Sub(newer.arrived), older)
			}
		}
	}
	if r.stale != (traffic{}) {
		add("the stale write reached the API: %d requests, %d connections", r.stale.requests, r.stale.connections)
	}

	told := []demoAnswer{
		{"A", "order-42", "instalment 1", "200", "1"},
		{"A", "order-42", "instalment 2", "412 stale-generation", "2"},
		{"B", "order-42", "instalment 2", "200", "2"},
		{"A", "order-43", "status open", "200", "2"},
		{"C", "order-43", "status paid", "200", "2"},
		{"A", "order-44", "statement", "412 stale-generation", "2"},
		{"C", "order-44", "statement", "200", "2"},
	}
	for i := range max(len(told), len(r.told)) {
		switch {
		case i >= len(told):
			add("answer %d: got %s, want none", i+1, r.told[i])
		case i >= len(r.told):
			add("answer %d: got none, want %s", i+1, told[i])
		case r.told[i] != told[i]:
			add("answer %d: got %s, want %s", i+1, r.told[i], told[i])
		}
	}
	return found
}
