package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// goodRecord is a record as it should be; each visit ends 10 ms after it came.
func goodRecord() demoRecord {
	at := time.Unix(0, 0)
	r := demoRecord{told: []demoAnswer{
		{"A", "order-42", "instalment 1", "200", "1"},
		{"A", "order-42", "instalment 2", "412 stale-generation", "2"},
		{"B", "order-42", "instalment 2", "200", "2"},
		{"A", "order-43", "status open", "200", "2"},
		{"C", "order-43", "status paid", "200", "2"},
		{"A", "order-44", "statement", "412 stale-generation", "2"},
		{"C", "order-44", "statement", "200", "2"},
	}}
	for _, v := range []visit{
		{worker: "A", order: "order-42", what: "instalment 1"}, {worker: "B", order: "order-42", what: "instalment 2"},
		{worker: "A", order: "order-43", what: "status open"}, {worker: "C", order: "order-43", what: "status paid"},
		{worker: "A", order: "order-44", what: "statement", state: visitCut}, {worker: "C", order: "order-44", what: "statement"},
	} {
		if v.state == "" {
			v.state = visitDone
		}
		v.arrived, v.left = at, at.Add(10*time.Millisecond)
		at = v.left
		r.visits = append(r.visits, v)
	}
	return r
}

func TestTheJudgeAcceptsTheExpectedRecord(t *testing.T) {
	if found := judge(goodRecord()); len(found) > 0 {
		t.Errorf("found %q", found)
	}
	r := goodRecord()
	r.visits[4].left = r.visits[5].left // seen by the API after its successor came
	if found := judge(r); len(found) > 0 {
		t.Errorf("the late end of a cut upload: found %q", found)
	}
}

func TestTheJudgeFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*demoRecord)
		want  string
	}{
		"nothing happened": {func(r *demoRecord) { *r = demoRecord{} }, "write 1 at the API: got nothing, want A's instalment 1"},
		"the stale write came through": {
			func(r *demoRecord) {
				r.visits = slices.Insert(r.visits, 1, visit{worker: "A", order: "order-42", what: "instalment 2", state: visitDone})
			},
			"write 2 at the API: got A's instalment 2 of order-42 (done), want B's instalment 2 of order-42 (done)",
		},
		"a write came twice": {func(r *demoRecord) { r.visits = append(r.visits, r.visits[5]) }, "write 7 at the API: got C's statement of order-44 (done), want nothing"},
		"a write is missing": {func(r *demoRecord) { r.visits = r.visits[:5] }, "write 6 at the API: got nothing, want C's statement"},
		"the newer came first": {
			func(r *demoRecord) { r.visits[2], r.visits[3] = r.visits[3], r.visits[2] },
			"write 3 at the API: got C's status paid of order-43 (done), want A's status open of order-43 (done)",
		},
		"the newer did not wait": {
			func(r *demoRecord) { r.visits[3].arrived = r.visits[2].arrived },
			"C's status paid of order-43 (done) arrived 10ms before the end of A's status open of order-43 (done)",
		},
		"an upload was not cut":      {func(r *demoRecord) { r.visits[4].state = visitDone }, "got A's statement of order-44 (done), want A's statement of order-44 (cut off)"},
		"a write was cut":            {func(r *demoRecord) { r.visits[2].state = visitCut }, "got A's status open of order-43 (cut off)"},
		"a connection was opened":    {func(r *demoRecord) { r.stale.connections = 1 }, "the stale write reached the API: 0 requests, 1 connections"},
		"a stale request was seen":   {func(r *demoRecord) { r.stale.requests = 1 }, "the stale write reached the API: 1 requests, 0 connections"},
		"a stale write was welcome":  {func(r *demoRecord) { r.told[1].answer = "200" }, "answer 2: got A was told 200 about instalment 2"},
		"a successor was refused":    {func(r *demoRecord) { r.told[2].answer = "503 takeover-pending" }, "answer 3: got B was told 503 takeover-pending"},
		"the new floor was not told": {func(r *demoRecord) { r.told[3].floor = "1" }, "about status open of order-43, with Fence-Generation 1, want"},
		"an answer is missing":       {func(r *demoRecord) { r.told = r.told[:6] }, "answer 7: got none, want C was told 200"},
		"an answer is too many":      {func(r *demoRecord) { r.told = append(r.told, r.told[0]) }, "answer 8: got A was told 200"},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodRecord()
			c.spoil(&r)
			got := (&demoFaults{judge(r)}).Error()
			if !strings.HasPrefix(got, "FAILED: ") || !strings.Contains(got, c.want) {
				t.Errorf("no %q in\n%s", c.want, got)
			}
		})
	}
}
