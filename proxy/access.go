package proxy

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// identify finds out who writes, where writers show a certificate. A writer whom nobody
// knows is refused before anything of its request is judged. Authorization is not looked
// at: it belongs to the upstream.
func (ex *exchange) identify() *answer {
	ps := ex.principals
	if ps == nil || !ps.Certified() {
		return nil
	}
	// A connection may be older than the demand for certificates.
	if t := ex.r.TLS; t != nil && len(t.VerifiedChains) > 0 {
		ex.writer = ps.Certificate(t.VerifiedChains[0][0])
	}
	switch {
	case ex.writer == nil:
		return &answer{code: wire.CodeForbidden, detail: "writes need a client certificate that names a principal of the auth file; nothing was sent"}
	case !ex.writer.Has(auth.Worker):
		return &answer{code: wire.CodeForbidden, detail: fmt.Sprintf("principal %q has not the role worker, which writes need; nothing was sent", ex.writer.Name())}
	}
	return nil
}

// job returns the job that a write is for. One that is not the writer's is refused
// before anything is asked about it: the answer is the same whether it exists or not,
// and has no floor.
func (ex *exchange) job() (tokens.Job, *answer) {
	id := ex.fence.jobID
	if ex.writer != nil && !ex.writer.Owns(id) {
		return tokens.Job{}, &answer{code: wire.CodeForbidden, detail: fmt.Sprintf("job %q is not under any prefix of principal %q; nothing was sent", id, ex.writer.Name())}
	}
	return tokens.Job{Namespace: ex.namespace(), ID: id}, nil
}

// label reads whose write it is that is refused before it is judged, so that the answer
// names its job and has the floor. Who may not write learns nothing of it.
func (ex *exchange) label() {
	_, ex.fence.rawKey = ex.p.fences.key(ex.r.Header)
	if !ex.fenced || ex.identify() != nil {
		return
	}
	ex.fence, _ = ex.p.fences.read(ex.r.Header) // what is well formed of it
	ex.attempt.Job, _ = ex.job()                // none, if it is not the writer's
}

// namespace is where the job of a write lives: in that of its writer, or else in that of
// the route.
func (ex *exchange) namespace() string {
	if ex.writer != nil {
		return ex.writer.Namespace()
	}
	return ex.rt.Namespace
}
