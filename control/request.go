package control

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// trace of a request: the W3C traceparent that is kept with a raised floor, and the
// trace id in it for the log. Both are empty if the request has none that is valid.
type trace struct{ parent, id string }

// traceParentLength is the length of what version 00 defines. A later version may be
// longer (W3C Trace Context, section 3.2.4); that part is not stored.
const traceParentLength = 55

func traceOf(r *http.Request) trace {
	values := r.Header.Values("traceparent")
	if len(values) != 1 {
		return trace{}
	}
	id, ok := telemetry.ParseTraceParent(values[0])
	if !ok {
		return trace{}
	}
	return trace{parent: values[0][:traceParentLength], id: id}
}

// read decodes the body of a request.
func read(r *http.Request, limit int64, into any) *wire.Problem {
	if p := wantJSON(r); p != nil {
		return p
	}
	err := wire.Decode(r.Body, limit, into)
	var field *wire.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &field):
		p := wire.NewProblem(wire.CodeInvalidRequest, field.Error())
		p.Field = field.Field
		return &p
	case errors.Is(err, wire.ErrTooLarge):
		p := wire.NewProblem(wire.CodeRequestTooLarge, fmt.Sprintf("the body has more than %d bytes", limit))
		return &p
	}
	p := wire.NewProblem(wire.CodeInvalidRequest, "the body could not be read to its end in time")
	return &p
}

// typeForm is what curl -d sends if it is not told better.
const typeForm = "application/x-www-form-urlencoded"

func wantJSON(r *http.Request) *wire.Problem {
	refuse := func(name, value, want string) *wire.Problem {
		p := wire.NewProblem(wire.CodeUnsupportedMedia, fmt.Sprintf("%s is %q; send %s", name, value, want))
		p.Field = name
		return &p
	}
	if v := r.Header.Get("Content-Encoding"); v != "" && !strings.EqualFold(v, "identity") {
		return refuse("Content-Encoding", v, "the body as it is")
	}
	v := r.Header.Get("Content-Type")
	if v == "" {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(v)
	// curl -d calls everything a form. The body decides; pages of other origins, which
	// could send a form too, have been refused before.
	json := mediaType == wire.TypeJSON || mediaType == typeForm || strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
	if err != nil || !json {
		return refuse("Content-Type", v, wire.TypeJSON+", or leave it out")
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse("Content-Type", v, "UTF-8 (RFC 8259, section 8.1)")
	}
	return nil
}

// checks collects the first value that is not valid. The methods do nothing once one
// was found.
type checks struct{ p *wire.Problem }

func (c *checks) fail(field, format string, args ...any) {
	if c.p == nil {
		p := wire.NewProblem(wire.CodeInvalidRequest, field+" "+fmt.Sprintf(format, args...))
		p.Field = field
		c.p = &p
	}
}

func (c *checks) job(field, id string) {
	if err := tokens.CheckJobID(id); err != nil {
		c.fail(field, "is an %v", err)
	}
}

func (c *checks) generation(field string, g tokens.Generation) {
	if g < 1 || g > tokens.MaxGeneration {
		c.fail(field, "is %d; a generation is from 1 to %d", g, tokens.MaxGeneration)
	}
}

// name checks an owner or a claim id.
func (c *checks) name(field, s string) {
	if s == "" {
		c.fail(field, "is empty; give it 1 to %d bytes", wire.MaxName)
		return
	}
	if why := wire.CheckText(s, wire.MaxName); why != "" {
		c.fail(field, "%s", why)
	}
}

func (c *checks) reason(s string) {
	if why := wire.CheckText(s, wire.MaxReason); why != "" {
		c.fail("reason", "%s", why)
	}
}

// duration checks milliseconds. The bounds are compared as milliseconds: the value may
// be one that no time.Duration holds.
func (c *checks) duration(field string, millis int64, least, most time.Duration) {
	if millis < least.Milliseconds() || millis > most.Milliseconds() {
		c.fail(field, "is %d; it is in milliseconds, from %d (%v) to %d (%v)", millis, least.Milliseconds(), least, most.Milliseconds(), most)
	}
}

func (s *server) checkRef(c *checks, job, owner string, g tokens.Generation, leaseID string) {
	c.job("job_id", job)
	c.name("owner", owner)
	c.generation("generation", g)
	if leaseID == "" {
		c.fail("lease_id", "is empty; send the one that the claim was answered with")
	}
}
