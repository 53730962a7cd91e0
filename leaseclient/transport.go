package leaseclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// maxRefusal bounds what is read of a refusal, in bytes.
const maxRefusal = 64 << 10

// keyContext is the key of the idempotency key in a context.
type keyContext struct{}

// WithKey names what the next write is meant to do, within its job: "charge-2024-06", not a random text. It is sent as
// Idempotency-Key by the transports of leases. The same key for the same intent in every attempt and every generation is
// what keeps a step from being done twice. 1 to 255 visible ASCII characters.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContext{}, key)
}

// Transport returns an http.RoundTripper that sends requests as the holder of this lease; over base, or over
// http.DefaultTransport if it is nil. Give it to an http.Client and send its requests to the proxy's data listener, to
// nobody else: the lease id travels with every request.
//
// Every request gets the headers of the fence, and the key of WithKey if it has no Idempotency-Key. It ends with the
// lease at the latest, with the reason as its error.
//
// A write is a request with a method other than GET, HEAD, OPTIONS and TRACE, or with a key, or with a method-override
// header. It is not sent when less than Config.MinLeft is left of the lease (ErrTooLate). It is outstanding until the
// body of its response is closed, and Release and Complete wait for that, so close it. It is never sent twice:
// http.Transport repeats a request with an Idempotency-Key or a GetBody when a connection breaks, so the write that base
// sees has neither under that name (the header is spelled in lower case), and a redirect is not followed. Repeat it
// yourself, under the same key. A read is not refused for the little time that is left and not waited for.
//
// The lease is lost when the proxy says that its generation is stale. No answer of the upstream ends it, whatever its
// status.
func (l *Lease) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{lease: l, base: base}
}

type transport struct {
	lease *Lease
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	l := t.lease
	key, _ := req.Context().Value(keyContext{}).(string)
	write := isWrite(req, key)
	refuse := func(err error) (*http.Response, error) {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper closes it, also on errors
		}
		return nil, fmt.Errorf("send as generation %d of job %q: %w", l.generation, l.jobID, err)
	}
	foreign := false
	if from := req.Response; from != nil { // set by http.Client when it follows a redirect
		if write {
			return refuse(ErrRedirected)
		}
		foreign = from.Request == nil || !sameOrigin(from.Request.URL, req.URL)
	}
	if err := l.begin(write); err != nil {
		return refuse(err)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	finish := sync.OnceFunc(func() {
		stop()
		cancel(nil)
		if write {
			l.done()
		}
	})
	out := req.Clone(ctx)
	if !foreign {
		l.Header(out.Header)
	}
	if out.Header.Get("Traceparent") == "" {
		inject(ctx, out.Header)
	}
	if key != "" && out.Header.Get(wire.HeaderKey) == "" {
		out.Header.Set(wire.HeaderKey, key)
	}
	if write {
		out.GetBody = nil
		hideKeys(out.Header)
	}
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		cause := context.Cause(l.ctx)
		finish()
		if cause != nil && req.Context().Err() == nil {
			err = cause
		}
		return nil, fmt.Errorf("send as generation %d of job %q: %w", l.generation, l.jobID, err)
	}
	if !foreign {
		l.heed(resp, func() { cancel(nil) })
	}
	if resp.Body == http.NoBody {
		finish()
		return resp, nil
	}
	resp.Body = bodyUntil(ctx, resp.Body, finish)
	return resp, nil
}

// isWrite is how the proxy tells writes from reads; a key makes one of everything, because it names an intent.
func isWrite(req *http.Request, key string) bool {
	if key != "" || req.Header.Get(wire.HeaderKey) != "" {
		return true
	}
	for _, override := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		if req.Header[override] != nil {
			return true
		}
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// hideKeys renames the headers by which http.Transport decides that it may repeat a request. On the wire names have no
// case (RFC 9110, section 5.1).
func hideKeys(h http.Header) {
	for canonical, hidden := range map[string]string{wire.HeaderKey: "idempotency-key", "X-Idempotency-Key": "x-idempotency-key"} {
		if v := h[canonical]; v != nil {
			delete(h, canonical)
			h[hidden] = v
		}
	}
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// heed looks for what the proxy says of the lease.
func (l *Lease) heed(resp *http.Response, cancel func()) {
	decision := resp.Header.Get(wire.HeaderDecision)
	if decision == "" {
		return
	}
	if decision != wire.DecisionRefused {
		// A forwarded write of a generation that has been superseded since. The lease API has the word on it.
		if floor, err := strconv.ParseUint(resp.Header.Get(wire.HeaderGeneration), 10, 63); err == nil && floor > uint64(l.generation) {
			l.client.hurry(l)
		}
		return
	}
	switch resp.Header.Get(wire.HeaderReason) {
	case wire.CodeStaleGeneration.Name:
		l.lose(l.loss(staleReason(resp, cancel), nil))
	case wire.CodeLeaseExpired.Name, wire.CodeLeaseMismatch.Name:
		l.client.hurry(l)
	}
}

// staleReason reads from a refusal how the generation ended, and puts back what it has read. If the body does not come
// the generation counts as superseded.
func staleReason(resp *http.Response, cancel func()) error {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || mediaType != wire.TypeProblem || resp.Body == nil || resp.Body == http.NoBody {
		return ErrSuperseded
	}
	limit := time.AfterFunc(patience, cancel)
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	limit.Stop()
	// The caller can read it though the lease, and with it the request, ends now.
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), failing{err}), resp.Body}
	var p wire.Problem
	if json.Unmarshal(head, &p) == nil && p.Code == wire.CodeStaleGeneration.Name {
		if reason := lossReason(string(p.Ended)); reason != nil {
			return reason
		}
	}
	return ErrSuperseded
}

// failing is the end of what could be read: an error, or none.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// bodyUntil returns body, which calls finish when it is closed, and whose errors say why ctx ended. An upgraded
// connection can still be written to; it is closed with ctx, as nothing else looks at ctx any more.
func bodyUntil(ctx context.Context, body io.ReadCloser, finish func()) io.ReadCloser {
	b := countedBody{ctx, body, finish}
	if rwc, ok := body.(io.ReadWriteCloser); ok {
		context.AfterFunc(ctx, func() { _ = rwc.Close() })
		return struct {
			countedBody
			io.Writer
		}{b, rwc}
	}
	return b
}

type countedBody struct {
	ctx    context.Context
	body   io.ReadCloser
	finish func()
}

// Read implements io.Reader.
func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if errors.Is(err, context.Canceled) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b countedBody) Close() error {
	defer b.finish()
	return b.body.Close()
}
