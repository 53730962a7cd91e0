package tokens

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// WriteState is what is known of a keyed write.
type WriteState string

// The states of a keyed write.
const (
	// WriteInFlight: admitted and not settled. If the process that admitted it is
	// gone, or has lost track of it, this is the same as WriteUnknown.
	WriteInFlight WriteState = "in_flight"
	// WriteApplied: the upstream did it.
	WriteApplied WriteState = "applied"
	// WriteDeclined: the upstream answered that it did not do it. The key is free.
	WriteDeclined WriteState = "declined"
	// WriteNotSent: nothing reached the upstream. The key is free.
	WriteNotSent WriteState = "not_sent"
	// WriteUnknown: nobody knows; the key is blocked until it is resolved.
	WriteUnknown WriteState = "unknown"
)

// WriteStates lists every state.
func WriteStates() []WriteState {
	return []WriteState{WriteInFlight, WriteApplied, WriteDeclined, WriteNotSent, WriteUnknown}
}

// stateOf is the state of a write whose attempt ended with an outcome.
func stateOf(o Outcome) WriteState {
	switch o {
	case Applied:
		return WriteApplied
	case Declined:
		return WriteDeclined
	case NotSent:
		return WriteNotSent
	}
	return WriteUnknown
}

// Fingerprint tells two requests under one key apart.
type Fingerprint struct {
	// Head is the digest of method, path and query.
	Head string `json:"head"`
	// Body is the digest of the body; empty while it is not known, because the
	// body is still being passed on.
	Body string `json:"body,omitempty"`
}

// HeadFingerprint digests what is known of a request before its body.
func HeadFingerprint(method, target string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s%s", len(method), method, target))
	return hex.EncodeToString(sum[:16])
}

// BodyNeverKnown stands for the digest of a body that was not received to its end.
const BodyNeverKnown = "-"

// Known reports whether the body's digest is known.
func (f Fingerprint) Known() bool { return f.Body != "" && f.Body != BodyNeverKnown }

// differs reports whether the two are surely not the same request.
func (f Fingerprint) differs(g Fingerprint) bool {
	return f.Head != g.Head || f.Known() && g.Known() && f.Body != g.Body
}

// WriteRecord is what a store keeps of a keyed write: of the newest attempt under its
// key. Like Record it is a value. Times are milliseconds of the store's clock.
type WriteRecord struct {
	State WriteState `json:"state"`
	// Attempt names the attempt, and the process that made it.
	Attempt     string      `json:"attempt"`
	Generation  Generation  `json:"generation"`
	Fingerprint Fingerprint `json:"fingerprint"`
	Method      string      `json:"method"`
	Path        string      `json:"path"`
	Route       string      `json:"route"`
	Started     int64       `json:"started"`
	Settled     int64       `json:"settled,omitempty"`
	// Expires is when the record may be purged; zero is never. Only settled
	// writes whose outcome is known have it.
	Expires int64 `json:"expires,omitempty"`
	// Status and Location are the reply's; zero if none came.
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"`
	// Reply is the whole reply, if it is kept. An engine keeps it apart, so that
	// listing writes does not read replies.
	Reply *Reply `json:"-"`
	// HasReply tells that there is one, also where it was not loaded.
	HasReply bool `json:"has_reply,omitempty"`
	// Resolved tells that an operator said what became of it.
	Resolved bool `json:"resolved,omitempty"`
	// Doubtful tells that an earlier attempt under the key has an unknown outcome,
	// and this one was sent all the same. Only an applied one, or an operator,
	// ends the doubt.
	Doubtful bool `json:"doubtful,omitempty"`
	// Key is the write's own key, in the record of a route's one write per
	// generation.
	Key string `json:"key,omitempty"`
}

// Reply is an upstream's reply as it is kept for replays.
type Reply struct {
	Header http.Header
	Body   []byte
}

// IsOpen reports whether the write is in flight or unknown: an engine keeps an index of
// the open ones.
func (w WriteRecord) IsOpen() bool { return w.State == WriteInFlight || w.State == WriteUnknown }

// free reports whether the key can be used again.
func (w WriteRecord) free() bool {
	return w.State == "" || w.State == WriteDeclined || w.State == WriteNotSent
}

// DecodeWrite is the inverse of EncodeWrite.
func DecodeWrite(b []byte) (WriteRecord, error) {
	var w WriteRecord
	if err := json.Unmarshal(b, &w); err != nil {
		return WriteRecord{}, fmt.Errorf("decode write: %w", err)
	}
	switch w.State {
	case WriteInFlight, WriteApplied, WriteDeclined, WriteNotSent, WriteUnknown:
		return w, nil
	}
	return WriteRecord{}, fmt.Errorf("decode write: unknown state %q", w.State)
}

// EncodeReply returns the form in which every engine stores a reply: how many header
// lines, each name and value, the body, each with its length. Not JSON: the bytes of a
// header need not be UTF-8.
func EncodeReply(r *Reply) ([]byte, error) {
	lines, size := 0, len(r.Body)
	for name, values := range r.Header {
		for _, v := range values {
			lines++
			size += len(name) + len(v) + 2*binary.MaxVarintLen32
		}
	}
	b := binary.AppendUvarint(make([]byte, 0, size+2*binary.MaxVarintLen32), uint64(lines))
	for name, values := range r.Header {
		for _, v := range values {
			b = appendText(appendText(b, name), v)
		}
	}
	return appendText(b, string(r.Body)), nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// DecodeReply is the inverse of EncodeReply.
func DecodeReply(b []byte) (*Reply, error) {
	lines, used := binary.Uvarint(b)
	if used <= 0 || lines > uint64(len(b)) {
		return nil, errCutShort
	}
	b = b[used:]
	r := &Reply{Header: make(http.Header)}
	for range lines {
		var name, value string
		var ok bool
		if name, b, ok = cutText(b); !ok {
			return nil, errCutShort
		}
		if value, b, ok = cutText(b); !ok {
			return nil, errCutShort
		}
		r.Header[name] = append(r.Header[name], value)
	}
	body, rest, ok := cutText(b)
	if !ok || len(rest) > 0 {
		return nil, errCutShort
	}
	r.Body = []byte(body)
	return r, nil
}

var errCutShort = errors.New("decode reply: it is cut short")

func cutText(b []byte) (s string, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return "", nil, false
	}
	return string(b[used:][:n]), b[used+int(n):], true
}

// Keying is what the rules need to know of a keyed write. The zero value is a write
// without a key.
type Keying struct {
	// Key names the intent of the write within its job; empty if it has none.
	Key         string
	Fingerprint Fingerprint
	Method      string
	Path        string
	Route       string
	// Once allows one write per generation on the route.
	Once bool
	// ForwardUnknown lets a write whose earlier attempt is unknown go to the
	// upstream again: for upstreams that honour the key themselves.
	ForwardUnknown bool
	// Retention is how long the record is kept after it was settled, in
	// milliseconds.
	Retention int64
}

// durable reports whether the write has a record of its own.
func (k *Keying) durable() bool { return k.Key != "" || k.Once }

// onceKey is the name under which a route's one write per generation is recorded. The
// blank keeps it apart from every key that a caller can send.
func onceKey(route string, g Generation) string { return fmt.Sprintf(" once %d %s", g, route) }

// IsOnceKey reports whether key was made by onceKey.
func IsOnceKey(key string) bool { return len(key) > 0 && key[0] == ' ' }

// keys are the records that the write needs: its own, then the route's for the
// generation.
func (w *Write) keys() []string {
	var keys []string
	if w.Key != "" {
		keys = append(keys, w.Key)
	}
	if w.Once {
		keys = append(keys, onceKey(w.Route, w.Generation))
	}
	return keys
}

// judgeKey decides whether a write may go out under its key, by check 3 of the protocol.
// had is the record under key; live reports whether an attempt is still in flight in
// this process.
func judgeKey(had WriteRecord, key string, w *Write, floor Generation, live func(attempt string) bool) *Refusal {
	if had.free() {
		return nil
	}
	once := IsOnceKey(key)
	if once && had.Key != "" && had.Key == w.Key {
		return nil // its own key has been judged, and lets it through
	}
	refuse := func(err error) *Refusal {
		h := had
		if h.State == WriteInFlight && !live(h.Attempt) {
			h.State = WriteUnknown
		}
		return &Refusal{Err: err, Floor: floor, Key: key, Write: &h}
	}
	switch {
	case !once && had.Fingerprint.differs(w.Fingerprint):
		return refuse(ErrKeyReused)
	case had.State == WriteApplied:
		return refuse(ErrAlreadyApplied)
	case had.State == WriteInFlight && live(had.Attempt):
		return refuse(ErrWriteInProgress)
	case w.ForwardUnknown && !once:
		return nil
	}
	return refuse(ErrOutcomeUnknown)
}

// started is the record of a write that is about to be let go.
func started(had WriteRecord, key string, w *Write, attempt string, now int64) WriteRecord {
	r := WriteRecord{
		State: WriteInFlight, Attempt: attempt, Generation: w.Generation, Fingerprint: w.Fingerprint,
		Method: w.Method, Path: w.Path, Route: w.Route, Started: now, Doubtful: had.IsOpen(),
	}
	if IsOnceKey(key) {
		r.Key = w.Key
	}
	return r
}

// Settlement is what is recorded of a keyed write when its outcome is known.
type Settlement struct {
	Outcome Outcome
	// BodyDigest completes the fingerprint of a body that was passed on.
	BodyDigest string
	Status     int
	Location   string
	// Reply is nil if the reply is not kept.
	Reply *Reply
}

// size is about how many bytes the settlement adds to a commit.
func (s Settlement) size() int {
	n := len(s.Location)
	if s.Reply == nil {
		return n
	}
	n += len(s.Reply.Body)
	for name, values := range s.Reply.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// hidden reports whether a listed write only accompanies one under a key of its own.
func (l ListedWrite) hidden() bool { return IsOnceKey(l.Key) && l.Record.Key != "" }

// settled is the record of a write after its attempt. A record that another attempt
// wrote meanwhile is left alone.
func settled(had WriteRecord, attempt string, s Settlement, retention, now int64) (WriteRecord, bool) {
	if had.Attempt != attempt || had.Resolved {
		return had, false
	}
	had.State, had.Settled, had.Expires = stateOf(s.Outcome), now, 0
	if had.Doubtful && had.State != WriteApplied {
		had.State = WriteUnknown
	}
	had.Status, had.Location, had.Reply, had.HasReply = s.Status, s.Location, s.Reply, s.Reply != nil
	if !had.Fingerprint.Known() {
		had.Fingerprint.Body = s.BodyDigest
	}
	if had.State != WriteUnknown {
		had.Expires = now + max(retention, 1)
	}
	return had, true
}

// Verdict is what an operator says about a write whose outcome is unknown.
type Verdict string

// The verdicts.
const (
	VerdictApplied    Verdict = "applied"
	VerdictNotApplied Verdict = "not-applied"
)

// resolve records an operator's verdict. Only an unknown write has one; repeating it
// changes nothing.
func resolve(had WriteRecord, v Verdict, retention, now int64, live func(attempt string) bool) (WriteRecord, *Refusal) {
	want := WriteApplied
	if v == VerdictNotApplied {
		want = WriteDeclined
	}
	switch {
	case had.State == want:
		return had, nil
	case had.State == WriteInFlight && live(had.Attempt):
		return had, &Refusal{Err: ErrWriteInProgress, Write: &had}
	case !had.IsOpen():
		return had, &Refusal{Err: ErrWriteSettled, Write: &had}
	}
	had.State, had.Resolved, had.Doubtful, had.Settled, had.Expires = want, true, false, now, now+max(retention, 1)
	return had, nil
}

// purgeable reports whether a settled write may be forgotten: its time is up, its
// outcome is known, and nobody holds the job.
func purgeable(r Record, w WriteRecord, now int64) bool {
	leased := r.Lease != nil && now < r.Lease.Until
	return !w.IsOpen() && w.Expires != 0 && now >= w.Expires && !leased
}
