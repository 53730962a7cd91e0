package control

import (
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// jobView leaves out the lease id and the claim id: whoever knows the latter is given
// the lease.
func jobView(v tokens.View) wire.JobView {
	r := v.Record
	out := wire.JobView{
		JobID: v.Job.ID, Namespace: v.Job.Namespace, State: v.State, Generation: r.Issued, Floor: v.Floor,
		InFlight: v.InFlight, Past: make([]wire.PastView, len(r.Past)), Result: r.Result, RaisedBy: r.RaisedBy,
	}
	if out.Generation == 0 {
		out.Generation = r.Seen
	}
	if l := r.Lease; l != nil {
		out.Lease = &wire.LeaseView{
			Owner: l.Owner, TTL: l.TTL, ExpiresIn: v.ExpiresIn,
			LeaseUntil: wire.FormatTime(l.Until), Granted: wire.FormatTime(l.Granted),
		}
		if l.Renewed != 0 {
			out.Lease.Renewed = wire.FormatTime(l.Renewed)
		}
	}
	for i, p := range r.Past {
		out.Past[i] = wire.PastView{Generation: p.Generation, Owner: p.Owner, Ended: p.Ended}
	}
	if r.RaisedAt != 0 {
		out.RaisedAt = wire.FormatTime(r.RaisedAt)
	}
	return out
}
