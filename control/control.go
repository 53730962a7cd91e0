package control

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// Options of the control handler. Authority and Logger are required.
type Options struct {
	Authority *tokens.Authority
	// Metrics counts the calls and is served; nil serves and counts none.
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
	// Principals are who may call, and what each may do. If there are none,
	// everybody may do everything, and all jobs live in Namespace.
	Principals *auth.Current
	Namespace  string
	// MinTTL and MaxTTL bound a lease; 1 s and 24 h if zero.
	MinTTL, MaxTTL time.Duration
	// MaxWait bounds wait_ms and settle_ms each, so that no caller keeps a
	// connection for longer than the two together; 5 min if zero. The server's
	// write timeout has to be longer.
	MaxWait time.Duration
	// BodyTimeout bounds the reception of a request body, because the server's
	// own read timeout would also cut claims that wait; 10 s if zero.
	BodyTimeout time.Duration
	// AnswerTimeout bounds how long a caller may take over reading an answer; 60 s
	// if zero.
	AnswerTimeout time.Duration
	// Retention is how long a write is remembered after an operator resolved it;
	// 24 h if zero.
	Retention time.Duration
	// Ready returns nil while writes are served, else why not; the Authority's
	// Err if nil.
	Ready func() error
}

type server struct {
	Options
	// anyone is who calls where there are no principals.
	anyone *auth.Principal
}

// New returns the handler of the control listener. It may be served concurrently.
func New(opt Options) http.Handler {
	if opt.MinTTL == 0 {
		opt.MinTTL = time.Second
	}
	if opt.MaxTTL == 0 {
		opt.MaxTTL = 24 * time.Hour
	}
	if opt.MaxWait == 0 {
		opt.MaxWait = 5 * time.Minute
	}
	if opt.Retention == 0 {
		opt.Retention = 24 * time.Hour
	}
	if opt.BodyTimeout == 0 {
		opt.BodyTimeout = 10 * time.Second
	}
	if opt.AnswerTimeout == 0 {
		opt.AnswerTimeout = 60 * time.Second
	}
	if opt.Ready == nil {
		opt.Ready = opt.Authority.Err
	}
	s := &server{Options: opt, anyone: auth.Anyone(opt.Namespace)}

	r := chi.NewRouter()
	// The bounds come before whatever refuses: the server waits for the rest of a body also
	// behind a refusal.
	r.Use(s.catchPanics, s.boundBody, s.boundAnswer, s.sameOrigin, s.authenticate, middleware.GetHead)
	r.NotFound(s.notFound)
	r.MethodNotAllowed(s.methodNotAllowed(r))

	r.Post(wire.PathClaim, s.operation("claim", auth.Worker, s.claim))
	r.Post(wire.PathRenew, s.operation("renew", auth.Worker, s.renew))
	r.Post(wire.PathComplete, s.operation("complete", auth.Worker, s.complete))
	r.Post(wire.PathRelease, s.operation("release", auth.Worker, s.release))
	r.Post(wire.PathRenewLeases, s.renewLeases)

	r.Get(wire.PathJobs, s.answer(s.reads(s.jobs)))
	r.Get(wire.PathJob, s.answer(s.reads(s.job)))
	r.Post(wire.PathRevoke, s.operation("revoke", auth.Operator, s.revoke))
	r.Post(wire.PathFence, s.operation("fence", auth.Issuer, s.fence))
	r.Post(wire.PathReopen, s.operation("reopen", auth.Operator, s.reopen))

	r.Get(wire.PathWrites, s.answer(s.reads(s.writes)))
	r.Post(wire.PathResolve, s.operation("resolve", auth.Operator, s.resolve))

	r.Get(wire.PathHealth, s.health)
	r.Get(wire.PathReady, s.ready)
	if opt.Metrics != nil {
		r.Method(http.MethodGet, wire.PathMetrics, s.unconfined(opt.Metrics.Handler()))
	}
	return r
}

// reply is what an endpoint answers when it does not refuse.
type reply struct {
	// status is 200 if zero.
	status int
	body   any
	// result is the word for the metrics; "ok" if empty.
	result string
}

type endpoint func(*http.Request) (reply, *wire.Problem)

// operation answers callers with the role, and counts the call.
func (s *server) operation(name string, role auth.Role, f endpoint) http.HandlerFunc {
	f = s.only(role, f)
	return s.answer(func(r *http.Request) (reply, *wire.Problem) {
		rep, p := f(r)
		s.count(name, rep, p)
		return rep, p
	})
}

func (s *server) answer(f endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rep, p := f(r)
		if p != nil {
			p.Write(w)
			return
		}
		if rep.status == 0 {
			rep.status = http.StatusOK
		}
		wire.WriteJSON(w, rep.status, wire.TypeJSON, rep.body)
	}
}

func (s *server) count(operation string, rep reply, p *wire.Problem) {
	if s.Metrics == nil {
		return
	}
	result := "ok"
	switch {
	case p != nil:
		result = resultOf(p)
	case rep.result != "":
		result = rep.result
	}
	s.Metrics.LeaseOperation(operation, result)
}

// resultOf is the word under which the metrics count a refusal.
func resultOf(p *wire.Problem) string {
	switch p.Code {
	case wire.CodeLeaseHeld.Name:
		return "held"
	case wire.CodeJobCompleted.Name:
		return "completed"
	case wire.CodeLeaseLost.Name:
		return "lost"
	case wire.CodeInvalidRequest.Name, wire.CodeRequestTooLarge.Name, wire.CodeUnsupportedMedia.Name:
		return "invalid"
	case wire.CodeUnauthenticated.Name, wire.CodeForbidden.Name:
		return p.Code
	case wire.CodeJobNotFound.Name, wire.CodeWriteNotFound.Name:
		return "not-found"
	case wire.CodeWriteSettled.Name, wire.CodeWriteInProgress.Name, wire.CodeGenerationMismatch.Name, wire.CodeGenerationsExhausted.Name:
		return "conflict"
	case wire.CodeStoreUnavailable.Name, wire.CodeOverloaded.Name:
		return "unavailable"
	}
	return "other"
}
