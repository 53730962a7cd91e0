package main

import (
	"net/http"

	"github.com/fenceproxy/fenceproxy/internal/certs"
	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// guarded serves h to connections whose certificate is still good. A reload changes new
// handshakes only, and connections live for days: without this who lost their authority
// would keep the door open by not closing it.
func guarded(l *certs.Listener, h http.Handler) http.Handler {
	if l == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.Admits(r.TLS) {
			h.ServeHTTP(w, r)
			return
		}
		// On HTTP/2 this sends the connection away too (GOAWAY), as it should.
		w.Header()["Connection"] = []string{"close"}
		w.Header()[wire.HeaderDecision] = []string{wire.DecisionRefused}
		w.Header()[wire.HeaderReason] = []string{wire.CodeUnauthenticated.Name}
		wire.NewProblem(wire.CodeUnauthenticated, "this connection was made with a certificate that is not accepted any more; connect again with one that is").Write(w)
	})
}
