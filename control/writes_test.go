package control_test

import (
	"context"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// write makes a keyed write of generation g with an outcome.
func (r *rig) write(job string, g tokens.Generation, key string, s tokens.Settlement) {
	r.t.Helper()
	r.writeIn(tokens.Job{ID: job}, g, key, s)
}

// writeIn is write for a job of any namespace.
func (r *rig) writeIn(job tokens.Job, g tokens.Generation, key string, s tokens.Settlement) {
	r.t.Helper()
	at := &tokens.Attempt{Write: tokens.Write{Job: job, Generation: g, Keying: tokens.Keying{
		Key: key, Method: "POST", Path: "/charge", Route: "payments", Retention: 1000,
		Fingerprint: tokens.Fingerprint{Head: "h", Body: "b"},
	}}, Cutter: nobody{}}
	if err := r.authority.Admit(context.Background(), at); err != nil {
		r.t.Fatal(err)
	}
	if err := r.authority.Record(context.Background(), at, s); err != nil {
		r.t.Fatal(err)
	}
	r.authority.Settle(at, s.Outcome)
}

type nobody struct{}

func (nobody) Cut() {}

func TestAClaimTellsWhatThePredecessorDidAndWhatNobodyKnows(t *testing.T) {
	r := newRig(t)
	r.claim("j", "a", 30000)
	r.write("j", 1, "k1", tokens.Settlement{Outcome: tokens.Applied, Status: 201})
	r.write("j", 1, "k2", tokens.Settlement{Outcome: tokens.Declined, Status: 409})
	r.write("j", 1, "k3", tokens.Settlement{Outcome: tokens.OutcomeUnknown, Status: 500})
	r.post(wire.PathRevoke, wire.RevokeRequest{JobID: "j"})
	p := r.claim("j", "b", 30000).Predecessor
	if p == nil || p.Writes != (wire.Writes{Applied: 1, Declined: 1, Unknown: 1}) || len(p.Unresolved) != 1 {
		t.Fatalf("got %+v", p)
	}
	u := p.Unresolved[0]
	if u.Key != "k3" || u.Method != "POST" || u.Path != "/charge" || u.Route != "payments" || u.Generation != 1 || u.State != tokens.WriteUnknown || u.Started == "" {
		t.Errorf("got %+v", u)
	}
}

func TestWritesAreListedAndResolved(t *testing.T) {
	r := newRig(t)
	r.claim("j", "a", 30000)
	r.write("j", 1, "k1", tokens.Settlement{Outcome: tokens.Applied, Status: 201, Location: "/c/1"})
	r.write("j", 1, "k2", tokens.Settlement{Outcome: tokens.OutcomeUnknown})
	all := as[wire.WritesResponse](r.get(wire.PathWrites+"?job_id=j"), 200)
	if len(all.Writes) != 2 || all.Writes[0].Key != "k1" || all.Writes[0].Status != 201 || all.Writes[0].Location != "/c/1" || all.Writes[0].JobID != "j" {
		t.Errorf("got %+v", all)
	}
	unknown := as[wire.WritesResponse](r.get(wire.PathWrites+"?state=unknown"), 200)
	if len(unknown.Writes) != 1 || unknown.Writes[0].Key != "k2" {
		t.Errorf("got %+v", unknown)
	}
	for range 2 { // the second changes nothing
		w := as[wire.Write](r.post(wire.PathResolve, wire.ResolveRequest{JobID: "j", Key: "k2", Outcome: "not-applied", Reason: "looked"}), 200)
		if w.State != tokens.WriteDeclined || !w.Resolved {
			t.Errorf("got %+v", w)
		}
	}
	r.post(wire.PathResolve, wire.ResolveRequest{JobID: "j", Key: "k1", Outcome: "not-applied"}).problem(wire.CodeWriteSettled)
	r.post(wire.PathResolve, wire.ResolveRequest{JobID: "j", Key: "none", Outcome: "applied"}).problem(wire.CodeWriteNotFound)
	if p := r.post(wire.PathResolve, wire.ResolveRequest{JobID: "j", Key: "k2", Outcome: "maybe"}).problem(wire.CodeInvalidRequest); p.Field != "outcome" {
		t.Errorf("got %+v", p)
	}
	if p := r.get(wire.PathWrites + "?state=odd").problem(wire.CodeInvalidRequest); p.Field != "state" {
		t.Errorf("got %+v", p)
	}
	lines := r.log.with(t, "operator action")
	if len(lines) != 4 || lines[0]["action"] != "resolve" || lines[0]["outcome"] != "not-applied" || lines[0]["reason"] != "looked" || lines[0]["key"] == "k2" {
		t.Errorf("logged %v", lines)
	}
}
