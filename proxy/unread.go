package proxy

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// Unread refuses a request that has not become one, and returns the answer with its head: for
// listen.Options.Refusal. It is counted and logged as one that no route matches.
func (p *Proxy) Unread(remote net.Addr, why error) []byte {
	code := wire.CodeRequestInvalid
	p.countNoRoute(code, 0)
	p.log.Info("request refused", "code", code.Name, "detail", why.Error(), "remote", remote.String())
	a := unreadAnswer{header: http.Header{
		"Connection": {"close"}, "Date": {time.Now().UTC().Format(http.TimeFormat)},
		wire.HeaderDecision: decisionRefused, wire.HeaderReason: {code.Name},
	}}
	wire.NewProblem(code, why.Error()).Write(&a)
	return a.text.Bytes()
}

// unreadAnswer is an answer as text. It implements http.ResponseWriter as far as a problem needs it.
type unreadAnswer struct {
	header http.Header
	text   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *unreadAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *unreadAnswer) WriteHeader(status int) {
	fmt.Fprintf(&a.text, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = a.header.Write(&a.text) // a buffer does not fail
	a.text.WriteString("\r\n")
}

// Write implements http.ResponseWriter.
func (a *unreadAnswer) Write(b []byte) (int, error) { return a.text.Write(b) }
