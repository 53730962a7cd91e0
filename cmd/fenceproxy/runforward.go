package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// forwarder is a listener on loopback that sends requests on to the proxy as the holder of a lease, so that a program
// which knows nothing of fences is fenced. The lease's transport adds the headers and sends nothing twice.
type forwarder struct {
	url       string
	server    *http.Server
	transport *http.Transport
}

// startForwarder starts a forwarder for one lease; secure is for a proxy at https, and may be nil. Close it.
func startForwarder(l *leaseclient.Lease, proxy *url.URL, secure *tls.Config) (*forwarder, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start forwarder: %w", err)
	}
	own := lis.Addr().String()
	// HTTP/2 would send a request again that the other side has not worked on.
	var http1 http.Protocols
	http1.SetHTTP1(true)
	transport := &http.Transport{
		Protocols: &http1, TLSClientConfig: secure, DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	quiet := log.New(io.Discard, "", 0) // the program is told; its requests are nobody else's business
	relay := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { redirect(r, proxy, own) },
		Transport:     l.Transport(noting{transport}),
		FlushInterval: -1, // replies are passed on as they come
		ErrorLog:      quiet,
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { explain(w, r, l, err) },
	}
	f := &forwarder{url: "http://" + own, transport: transport, server: &http.Server{
		ErrorLog: quiet, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodConnect {
				wire.NewProblem(wire.CodeRequestInvalid, "a tunnel can not be fenced; send the requests themselves").Write(w)
				return
			}
			if ofAnotherSite(r) {
				wire.NewProblem(wire.CodeRequestInvalid, "a page of another site can not write under this program's lease").Write(w)
				return
			}
			// A refusal is not to wait for the rest of an upload.
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
			relay.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), triedContext{}, new(atomic.Bool))))
		}),
	}}
	go func() { _ = f.server.Serve(lis) }() // ends with ErrServerClosed, which close caused
	return f, nil
}

// ofAnotherSite reports whether a browser sends a request for a page that it did not get from the forwarder: whoever
// somebody on this machine visits is not one of its users. Origin alone proves nothing, for programs send it too.
func ofAnotherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// redirect changes where a request goes and nothing else. A Host that the program chose itself is kept: routes may
// depend on it.
func redirect(r *httputil.ProxyRequest, proxy *url.URL, own string) {
	r.Out.URL.Scheme, r.Out.URL.Host = proxy.Scheme, proxy.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery // ReverseProxy drops what it can not parse
	r.Out.Host = r.In.Host
	if r.In.Host == own || r.In.Host == "" {
		r.Out.Host = proxy.Host
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v := r.In.Header[name]; v != nil { // which ReverseProxy takes off
			r.Out.Header[name] = v
		}
	}
}

// explain answers a request that did not get an answer of the proxy, in the way that the proxy would.
func explain(w http.ResponseWriter, r *http.Request, l *leaseclient.Lease, err error) {
	tried, ok := r.Context().Value(triedContext{}).(*atomic.Bool)
	p, outcome := problemOf(l, ok && tried.Load(), err)
	h := w.Header()
	if outcome == "" {
		h.Set(wire.HeaderDecision, wire.DecisionRefused)
		h.Set(wire.HeaderReason, p.Code)
	} else {
		h.Set(wire.HeaderOutcome, outcome)
	}
	p.Outcome = outcome
	p.JobID, p.Generation = l.JobID(), l.Generation()
	p.Write(w)
}

// problemOf returns the refusal for an error, and what became of the request if it was handed to the network.
func problemOf(l *leaseclient.Lease, tried bool, err error) (p wire.Problem, outcome string) {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return wire.NewProblem(wire.CodeUpstreamUnreachable, "the forwarder of fenceproxy run can not reach the proxy: "+op.Error()), tokens.NotSent.String()
	case tried && l.Err() != nil:
		return wire.NewProblem(wire.CodeUpstreamFailed, "the lease of this program ended before the proxy had answered"), tokens.OutcomeUnknown.String()
	case tried:
		return wire.NewProblem(wire.CodeUpstreamFailed, "the connection of fenceproxy run to the proxy broke: "+err.Error()), tokens.OutcomeUnknown.String()
	case errors.Is(err, leaseclient.ErrTooLate):
		return wire.NewProblem(wire.CodeLeaseExpired, "the lease of this program is about to run out; nothing was sent"), ""
	}
	for _, end := range []struct {
		cause error
		ended tokens.Ended
	}{
		{leaseclient.ErrSuperseded, tokens.Superseded}, {leaseclient.ErrRevoked, tokens.Revoked},
		{leaseclient.ErrReleased, tokens.Released}, {leaseclient.ErrCompleted, tokens.Completed},
	} {
		if errors.Is(err, end.cause) {
			p := wire.NewProblem(wire.CodeStaleGeneration, "this program does not have the job any more: "+end.cause.Error())
			p.Ended = end.ended
			return p, ""
		}
	}
	return wire.NewProblem(wire.CodeLeaseExpired, "the lease of this program ran out; nothing was sent"), ""
}

// triedContext is the key under which a request's context has a *atomic.Bool.
type triedContext struct{}

// noting is a transport that notes which requests got as far as to it.
type noting struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	if tried, ok := r.Context().Value(triedContext{}).(*atomic.Bool); ok {
		tried.Store(true)
	}
	return n.RoundTripper.RoundTrip(r)
}

// close ends every connection.
func (f *forwarder) close() {
	_ = f.server.Close() // nothing is left to be lost
	f.transport.CloseIdleConnections()
}
