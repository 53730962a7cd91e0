package control

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// catchPanics answers a panic with a problem and logs it with its stack. One that comes
// after the answer has begun breaks the connection, so that nobody takes half an answer
// for a whole one.
func (s *server) catchPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // compared as net/http does
				panic(v)
			}
			s.logPanic(r, v)
			if ww.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			internal().Write(ww)
		}()
		next.ServeHTTP(ww, r)
	})
}

func (s *server) logPanic(r *http.Request, v any) {
	s.Logger.ErrorContext(r.Context(), "panic in handler", "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(v), "stack", string(debug.Stack()), "trace_id", traceOf(r).id)
}

func internal() *wire.Problem {
	p := wire.NewProblem(wire.CodeInternal, "the proxy failed over this request; whether it took effect is not known, and its log says more")
	return &p
}

// sameOrigin refuses what a browser sends for a page of another origin: without an auth
// file the listener trusts everybody on this machine, and a page that somebody visits is
// not meant. Programs send none of the headers that it looks at.
//
// A page whose own name has been made to lead to this machine (DNS rebinding) is of the
// same origin for the browser. Without an auth file nothing else keeps it out than that
// Host has its name; under TLS the certificate does. Browsers send Accept-Encoding with
// every request, and no script can take it away (Fetch standard, section 2.2.2).
func (s *server) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Principals.Load() == nil && r.TLS == nil && !isOpen(r) && maybeBrowser(r) && !namesThisMachine(r.Host) {
			wire.NewProblem(wire.CodeForbidden,
				"Host is a name that may be anybody's, and there is no auth file; call this listener by its IP address or as localhost, or set auth.file").Write(w)
			return
		}
		if err := protection.Check(r); err != nil {
			wire.NewProblem(wire.CodeForbidden, "a page of another origin can not call this API from a browser").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maybeBrowser reports whether a browser may have sent the request.
func maybeBrowser(r *http.Request) bool {
	return r.Header["Accept-Encoding"] != nil || r.Header["Origin"] != nil || r.Header["Sec-Fetch-Site"] != nil
}

// namesThisMachine reports whether nobody else can give out the name in a Host header: an
// IP address or localhost (RFC 6761, section 6.3). HTTP/1.0 may have none, browsers always do.
func namesThisMachine(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	_, err := netip.ParseAddr(name)
	return err == nil || name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// boundBody sets a deadline for the reception of the body, and lifts it when the body
// has ended: from then on the server reads ahead only to learn that the caller hung up.
func (s *server) boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			conn := http.NewResponseController(w)
			// An error means that the connection has no deadlines; the limits of
			// the server in front of it count then.
			_ = conn.SetReadDeadline(time.Now().Add(s.BodyTimeout))
			r.Body = &boundedBody{ReadCloser: r.Body, conn: conn}
		}
		next.ServeHTTP(w, r)
	})
}

type boundedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // the contract of io.Reader
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// boundAnswer sets a deadline when an answer begins. The server's own write timeout would
// have to be longer than claims wait, and a caller that reads no answers keeps its
// connection, which is not idle, for as long as there is none.
func (s *server) boundAnswer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &boundedAnswer{ResponseWriter: w, most: s.AnswerTimeout}
		// Also for an answer without a body, which the server makes after the handler.
		defer b.begin()
		next.ServeHTTP(b, r)
	})
}

type boundedAnswer struct {
	http.ResponseWriter
	most  time.Duration
	begun bool
}

func (b *boundedAnswer) begin() {
	if !b.begun {
		b.begun = true
		// The server lifts it behind the answer. An error means that the connection has no
		// deadlines; the limits of the server in front of it count then.
		_ = http.NewResponseController(b.ResponseWriter).SetWriteDeadline(time.Now().Add(b.most))
	}
}

// WriteHeader implements http.ResponseWriter.
func (b *boundedAnswer) WriteHeader(status int) {
	b.begin()
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *boundedAnswer) Write(p []byte) (int, error) {
	b.begin()
	return b.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (b *boundedAnswer) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	wire.NewProblem(wire.CodeNotFound, fmt.Sprintf("there is nothing at %q; the API begins with /v1/lease, /v1/leases, /v1/job and /v1/jobs", r.URL.Path)).Write(w)
}

// methodNotAllowed answers with the methods that the path takes (RFC 9110, section
// 15.5.6). The router also sends methods here that it has never heard of, whatever the
// path.
func (s *server) methodNotAllowed(routes chi.Routes) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, m := range []string{http.MethodGet, http.MethodPost} {
			if routes.Match(chi.NewRouteContext(), m, r.URL.Path) {
				allowed = append(allowed, m)
				if m == http.MethodGet {
					allowed = append(allowed, http.MethodHead)
				}
			}
		}
		if len(allowed) == 0 {
			s.notFound(w, r)
			return
		}
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		wire.NewProblem(wire.CodeMethodNotAllowed, fmt.Sprintf("%s takes %s, not %s", r.URL.Path, list, r.Method)).Write(w)
	}
}
