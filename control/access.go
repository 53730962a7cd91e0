package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// callerKey is the key of a request's *auth.Principal in its context.
type callerKey struct{}

// callerOf returns who calls. Every request that authenticate let through has a caller.
func callerOf(r *http.Request) *auth.Principal {
	return r.Context().Value(callerKey{}).(*auth.Principal)
}

// authenticate finds out who calls, for every path but those of health: also for one
// that does not exist, or that is added later.
func (s *server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isOpen(r) {
			next.ServeHTTP(w, r)
			return
		}
		who := s.anyone
		if ps := s.Principals.Load(); ps != nil {
			if who = identify(r, ps); who == nil {
				s.unauthenticated(w, r)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// isOpen reports whether anybody may have the answer. A path that is spelled in another
// way is not open.
func isOpen(r *http.Request) bool {
	return r.URL.RawPath == "" && (r.URL.Path == wire.PathHealth || r.URL.Path == wire.PathReady)
}

// identify returns who calls, or nil. Whoever sends an Authorization header wants to be
// known by it: if it is not valid, no certificate makes up for it.
func identify(r *http.Request, ps *auth.Principals) *auth.Principal {
	if values := r.Header["Authorization"]; len(values) > 0 {
		token, ok := auth.BearerToken(values)
		if !ok {
			return nil
		}
		return ps.Bearer(token)
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return ps.Certificate(r.TLS.VerifiedChains[0][0])
}

// unauthenticated answers a caller whom nobody knows. It does not say what was wrong.
func (s *server) unauthenticated(w http.ResponseWriter, r *http.Request) {
	s.Logger.InfoContext(r.Context(), "access refused", "code", wire.CodeUnauthenticated.Name, "method", r.Method, "path", r.URL.Path,
		"remote", r.RemoteAddr, "trace_id", traceOf(r).id)
	if s.Metrics != nil {
		s.Metrics.LeaseOperation("other", wire.CodeUnauthenticated.Name)
	}
	w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	wire.NewProblem(wire.CodeUnauthenticated,
		"send one Authorization header with the bearer token of a principal in the auth file, or no such header and a client certificate that names one").Write(w)
}

// only lets callers with the role through.
func (s *server) only(role auth.Role, f endpoint) endpoint {
	return func(r *http.Request) (reply, *wire.Problem) {
		if p := s.allowed(r, role); p != nil {
			return reply{}, p
		}
		return f(r)
	}
}

// reads lets those through who may read.
func (s *server) reads(f endpoint) endpoint { return s.only(auth.Worker|auth.Viewer, f) }

// unconfined lets readers through who may see every job: what they get tells of all.
func (s *server) unconfined(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := callerOf(r)
		if p := s.allowed(r, auth.Viewer); p != nil {
			p.Write(w)
			return
		}
		if who != s.anyone && who.Confined() {
			s.forbidden(r, "", fmt.Sprintf("%s tells of the jobs of all tenants; a viewer without namespace and without prefixes may read it", r.URL.Path)).Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed returns nil if the caller has one of the roles.
func (s *server) allowed(r *http.Request, role auth.Role) *wire.Problem {
	if who := callerOf(r); !who.Has(role) {
		return s.forbidden(r, "", fmt.Sprintf("no role of principal %q allows %s %s", who.Name(), r.Method, r.URL.Path))
	}
	return nil
}

// own returns the job under an id, in the caller's namespace. If it is not the caller's
// the answer is the same whether such a job exists or not: the store is not asked.
func (s *server) own(r *http.Request, id string) (tokens.Job, *wire.Problem) {
	who := callerOf(r)
	if !who.Owns(id) {
		return tokens.Job{}, s.forbidden(r, id, fmt.Sprintf("job %q is not under any prefix of principal %q", id, who.Name()))
	}
	return tokens.Job{Namespace: who.Namespace(), ID: id}, nil
}

// errLetGo ends the wait of a caller that may not have any more what it waits for.
var errLetGo = errors.New("the caller's rights were taken away")

// whileOwn returns a context for a wait that ends when the principals change and the caller
// is none of them any more, or may not do this to the job. Whoever is shut out must not be
// given a lease minutes later.
func (s *server) whileOwn(r *http.Request, role auth.Role, job tokens.Job) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	go func() {
		for {
			changed := s.Principals.Changed()
			who := s.anyone
			if ps := s.Principals.Load(); ps != nil {
				who = identify(r, ps)
			}
			if who == nil || !who.Has(role) || who.Namespace() != job.Namespace || !who.Owns(job.ID) {
				cancel(errLetGo)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// forbidden refuses a caller who is known, and logs it: somebody tried.
func (s *server) forbidden(r *http.Request, jobID, detail string) *wire.Problem {
	who := callerOf(r)
	s.Logger.InfoContext(r.Context(), "access refused", "code", wire.CodeForbidden.Name, "who", who.Name(), "method", r.Method, "path", r.URL.Path,
		"job_id", jobID, "namespace", who.Namespace(), "remote", r.RemoteAddr, "trace_id", traceOf(r).id)
	p := wire.NewProblem(wire.CodeForbidden, detail)
	p.JobID = jobID
	return &p
}
