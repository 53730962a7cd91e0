package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// keying fills in what the authority has to know of a write with a key, or of one that
// its route allows once per generation, as far as it shows without the body.
func (ex *exchange) keying() {
	rt, at := ex.rt, &ex.attempt
	if ex.fence.key == "" && !rt.OncePerGeneration {
		return
	}
	path, query := rawTarget(ex.r)
	at.Key, at.Method, at.Path, at.Route, at.Once = ex.fence.key, ex.r.Method, path, rt.Name, rt.OncePerGeneration
	at.ForwardUnknown, at.Retention, at.DuplicateWait = rt.ForwardUnknown, rt.Retention.Milliseconds(), rt.DuplicateWait
	// The route is a part of it: the same path of another upstream is another request.
	at.Fingerprint.Head = tokens.HeadFingerprint(ex.r.Method, rt.Name+" "+path+query)
	ex.digest = newBodyDigest(ex.r.Header.Get("Content-Type"))
}

// digestBody adds what was received of the body; whole tells that it is all.
func (ex *exchange) digestBody(body []byte, whole bool) {
	if !ex.keyed() {
		return
	}
	_, _ = ex.digest.Write(body) // a hash does not fail
	if whole {
		ex.attempt.Fingerprint.Body = ex.digest.Sum()
	}
}

// needsBody reports whether a refusal stands only if the body is the same as that of
// the write before.
func (ex *exchange) needsBody(err error) bool {
	var ref *tokens.Refusal
	return errors.Is(err, tokens.ErrAlreadyApplied) && errors.As(err, &ref) && !tokens.IsOnceKey(ref.Key)
}

// keyed reports whether the write has a record of its own.
func (ex *exchange) keyed() bool { return ex.digest != nil && !ex.late }

// duplicate answers a write whose key was applied before: with the stored reply, if the
// request is the same to its last byte.
func (ex *exchange) duplicate(ref *tokens.Refusal, whole bool) *answer {
	had := ref.Write
	if tokens.IsOnceKey(ref.Key) || ex.rt.Observe {
		return ex.judged(ref)
	}
	if !whole {
		// The body was to be passed on, so it has not been compared yet.
		digest, err := ex.digestRest()
		if ex.grpc && errors.Is(err, errStalled) {
			return ex.judged(ref) // its caller waits for a reply before it says more
		}
		if err != nil {
			return brokenBody(ex, err)
		}
		if had.Fingerprint.Known() && digest != had.Fingerprint.Body {
			return ex.judged(&tokens.Refusal{Err: tokens.ErrKeyReused, Floor: ref.Floor, Key: ref.Key, Write: had})
		}
	}
	if ex.rt.RefuseDuplicates || had.Reply == nil || !had.Fingerprint.Known() {
		return ex.judged(ref)
	}
	return &answer{replay: had, refusal: ref}
}

// digestRest reads the rest of the caller's body, only to digest it.
func (ex *exchange) digestRest() (string, error) {
	if !ex.receiving(true) {
		return "", errBody
	}
	defer ex.noReadDeadline()
	ex.hasty = ex.grpc
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for total := int64(0); ; {
		n, err := ex.readBody(*buf)
		_, _ = ex.digest.Write((*buf)[:n]) // a hash does not fail
		if total += int64(n); ex.rt.BodyMax > 0 && total > ex.rt.BodyMax {
			return "", errTooLarge
		}
		if err == io.EOF {
			ex.receiving(false)
			ex.whole = true
			return ex.digest.Sum(), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// replay answers with a stored reply. Nothing is forwarded.
func (ex *exchange) replay(had *tokens.WriteRecord, floor tokens.Generation) {
	ex.decision = telemetry.Replayed
	ex.outcome = tokens.Applied
	ex.span.SetFence(ex.fence.jobID, uint64(ex.fence.generation), uint64(floor), wire.DecisionReplayed, "", ex.outcome.String())
	ex.span.SetStatus(had.Status)
	h := ex.w.Header()
	copyReplyHeader(h, had.Reply.Header)
	ex.fenceHeaders(h, decisionReplayed, floor)
	h[wire.HeaderReplayed] = []string{"true"}
	if ex.broken() {
		ex.closeAfter(h)
	}
	ex.talk(true)
	if hasBody(had.Status) {
		h["Content-Length"] = []string{strconv.Itoa(len(had.Reply.Body))}
	}
	ex.w.WriteHeader(had.Status)
	if hasBody(had.Status) {
		_, _ = ex.w.Write(had.Reply.Body) // the caller is gone; it may ask again
	}
}

// hasBody reports whether a reply of the status may have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// record makes the outcome of a keyed write durable. If that fails the caller still gets
// its answer: the write happened, or not, whatever the store says; its key is unknown
// from then on.
func (ex *exchange) record(s tokens.Settlement) {
	if !ex.keyed() {
		return
	}
	if ex.attempt.Fingerprint.Body == "" && ex.stream != nil && ex.received() {
		s.BodyDigest = ex.digest.Sum()
	}
	err := ex.commit(s)
	if err != nil && (s.Reply != nil || s.Location != "") && !ex.late {
		// What the upstream said may be what the store can not take. The fact is worth more.
		s.Reply, s.Location = nil, ""
		err = ex.commit(s)
	}
	if err != nil {
		ex.p.log.Error("outcome not recorded", ex.attrs("error", err.Error())...)
	}
}

// keepReply decides what is kept of a reply, and reads its body if that can be kept
// before the caller gets it. capture tells that the body is to be kept as it passes.
func (ex *exchange) keepReply(res *http.Response) (s tokens.Settlement, capture bool) {
	s = tokens.Settlement{Outcome: ex.outcome, Status: res.StatusCode}
	if ex.outcome != tokens.Applied || !ex.rt.StoreReply {
		return s, false
	}
	s.Location = res.Header.Get("Location")
	n := res.ContentLength
	switch {
	case ex.fence.key == "" || n > ex.rt.MaxReply || isEventStream(res.Header) || len(res.Trailer) > 0,
		n > 0 && (res.Body == http.NoBody || ex.r.Method == http.MethodHead),
		n < 0 && len(res.TransferEncoding) == 0 && res.ProtoMajor < 2: // ends with its connection, so nobody knows whether it is whole
		return s, false
	case n == 0:
		s.Reply = &tokens.Reply{Header: keptHeader(res.Header)}
		return s, false
	}
	// A body that came with its head costs no second commit. Nothing is waited for:
	// the attempt is settled by the head.
	if n < 0 || buffered(res.Body) < n {
		return s, true
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(res.Body, body); err != nil {
		res.Body = &readBody{brokenReader{err}, res.Body}
		return s, false
	}
	s.Reply = &tokens.Reply{Header: keptHeader(res.Header), Body: body}
	res.Body = &readBody{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
	return s, false
}

// keptHeader is what a replay repeats of a reply's head.
func keptHeader(h http.Header) http.Header {
	out := make(http.Header, len(h))
	copyReplyHeader(out, h)
	for _, name := range []string{"Set-Cookie", "Set-Cookie2", "Date", "Content-Length"} {
		out.Del(name)
	}
	return out
}

// captured keeps a body as it passes, as long as it is small enough.
type captured struct {
	io.ReadCloser
	most  int64
	body  []byte
	over  bool
	whole bool
}

// Read implements io.Reader.
func (c *captured) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if !c.over {
		if int64(len(c.body)+n) > c.most {
			c.over, c.body = true, nil
		} else {
			c.body = append(c.body, p[:n]...)
		}
	}
	c.whole = c.whole || err == io.EOF
	return n, err
}

// brokenReader fails.
type brokenReader struct{ err error }

// Read implements io.Reader.
func (b brokenReader) Read([]byte) (int, error) {
	if errors.Is(b.err, io.EOF) {
		return 0, io.ErrUnexpectedEOF
	}
	return 0, b.err
}

// readBody is a body of which a part was read before.
type readBody struct {
	io.Reader
	io.Closer
}

// keyAnswer completes the answer to a write that its key refused.
func (ex *exchange) keyAnswer(a *answer, err error) {
	w := a.refusal.Write
	name := ex.p.fences.names[3]
	what := "this key"
	if tokens.IsOnceKey(a.refusal.Key) {
		name, what = "the generation", fmt.Sprintf("generation %d on route %s, which allows one write per generation", ex.fence.generation, ex.rt.Name)
	}
	switch {
	case errors.Is(err, tokens.ErrKeyReused):
		a.detail = fmt.Sprintf("%s was used for %s %s, and this is %s %s or has another query or body; give each intent a key of its own",
			name, w.Method, w.Path, ex.r.Method, ex.attempt.Path)
	case errors.Is(err, tokens.ErrWriteInProgress):
		a.detail = fmt.Sprintf("a write under %s is in flight; wait and ask again with the same key", what)
		a.after = retrySoon
	case errors.Is(err, tokens.ErrAlreadyApplied):
		a.detail = fmt.Sprintf("the write under %s was applied, and its reply is not kept or not repeated here; do not send it again", what)
	case errors.Is(err, tokens.ErrOutcomeUnknown):
		a.detail = fmt.Sprintf("an earlier attempt under %s has an unknown outcome, so it is not sent again; find out whether it was done and have an operator resolve it: fenceproxy write resolve", what)
	}
}

// writeOf describes a keyed write in a problem.
func writeOf(key string, w *tokens.WriteRecord) *wire.Write {
	if w == nil {
		return nil
	}
	if tokens.IsOnceKey(key) {
		key = ""
	}
	out := wire.WriteFrom(tokens.ListedWrite{Key: key, Record: *w})
	return &out
}
