package proxy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// shortReply is how long a reply may go on that has no length, before it counts as a stream.
const shortReply = 2 * time.Second

// barred is why an exchange was stopped that would be refused if it came now.
type barred struct{ answer }

// Error implements error.
func (b *barred) Error() string { return "a reload has shut it out: " + b.detail }

// Recheck holds what lasts long against who may do what now: tunnels, requests that are still being
// sent, and replies without a length. What would be refused now is cut as at a takeover. Writes that
// were sent whole end as they would have. Call it when all that a reload changes has been set.
func (p *Proxy) Recheck() { p.doors.Add(1) }

// lasts notes that the exchange may last for long. By now all is set that recheck reads.
func (ex *exchange) lasts() { ex.lasting.Store(true) }

// unchecked reports whether the exchange has to be held against the doors of now. One that has just
// begun to last is, too: it may have come in while a reload was under way.
func (ex *exchange) unchecked() bool {
	return ex.lasting.Load() && ex.checked.Load() != ex.p.doors.Load()
}

// recheck is called by the register.
func (ex *exchange) recheck(now time.Time) {
	doors := ex.p.doors.Load()
	if !ex.long(now) {
		return // later, perhaps
	}
	if a := ex.refusedNow(); a != nil {
		ex.p.log.Info("cut after a reload", "code", a.code.Name, "route", ex.rt.Name, "job_id", ex.fence.jobID,
			"generation", uint64(ex.fence.generation), "remote", ex.r.RemoteAddr)
		ex.stop(&barred{*a})
	}
	ex.checked.Store(doors)
}

// long reports whether the exchange is one that a reload may cut: a tunnel, a request that is still
// being sent, or a reply that has become a stream.
func (ex *exchange) long(now time.Time) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch {
	case ex.over || ex.cause != nil:
		return false
	case ex.caller != nil, ex.streamed && !ex.sent:
		return true
	}
	return !ex.flows.IsZero() && now.Sub(ex.flows) >= shortReply
}

// flow notes that a reply without a length has begun.
func (ex *exchange) flow() {
	ex.mu.Lock()
	ex.flows = time.Now()
	ex.mu.Unlock()
	ex.lasts()
}

// refusedNow is the answer that the exchange would get now from whoever decides by configuration
// alone who may come in; nil if it would be let in. It runs beside the exchange, and reads only what
// has not changed since that lasts.
func (ex *exchange) refusedNow() *answer {
	t := ex.p.table.Load()
	if ex.p.admits != nil && !ex.p.admits(ex.r.TLS) {
		return &answer{code: wire.CodeUnauthenticated, detail: "the connection was made with a certificate that is not accepted any more"}
	}
	raw, _ := rawTarget(ex.r)
	rt, err := t.routes.find(ex.r.Host, cmp.Or(ex.r.URL.Path, "/"), raw)
	switch {
	case err != nil || rt == nil || rt.Name != ex.rt.Name:
		return &answer{code: wire.CodeNoRoute, detail: fmt.Sprintf("route %s is gone, or does not lead here any more", ex.rt.Name)}
	case ex.upgrade && !rt.WebSocket:
		return &answer{code: wire.CodeRequestInvalid, detail: errUpgrade.Error()}
	case rt.Fencing == FencingOff || !ex.upgrade && !rt.fences(ex.r):
		return nil
	}
	now := exchange{p: ex.p, rt: rt, r: ex.r, principals: t.principals, fence: ex.fence}
	if refused := now.identify(); refused != nil {
		return refused
	}
	if ex.fence.jobID == "" {
		if rt.Fencing == FencingOptional || rt.Observe {
			return nil
		}
		return now.fenceRequired()
	}
	job, refused := now.job()
	switch {
	case refused != nil:
		return refused
	case job != ex.attempt.Job:
		return &answer{code: wire.CodeForbidden, detail: fmt.Sprintf("job %q is one of another namespace now", job.ID)}
	}
	return nil
}
