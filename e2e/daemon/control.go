package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Fields are the members of a JSON object.
type Fields = map[string]any

// Reply is an answer of the control listener.
type Reply struct {
	Status int
	Header http.Header
	Raw    []byte
	Body   Fields // nil if the answer is no JSON object; numbers are json.Number
}

// Text is a string member, or "".
func (r Reply) Text(name string) string { s, _ := r.Body[name].(string); return s }

// Flag is a boolean member, or false.
func (r Reply) Flag(name string) bool { b, _ := r.Body[name].(bool); return b }

// Number is a member that is a whole number, or -1.
func (r Reply) Number(name string) int64 { return number(r.Body[name]) }

// Member is a member that is an object, or nil.
func (r Reply) Member(name string) Fields { f, _ := r.Body[name].(Fields); return f }

// List is a member that is a list of objects, or nil.
func (r Reply) List(name string) []Fields { return List(r.Body, name) }

// List is a member of an object that is a list of objects, or nil.
func List(f Fields, name string) []Fields {
	all, ok := f[name].([]any)
	if !ok {
		return nil
	}
	out := make([]Fields, len(all))
	for i := range all {
		out[i], _ = all[i].(Fields)
	}
	return out
}

// Number is a member of an object that is a whole number, or -1.
func Number(f Fields, name string) int64 { return number(f[name]) }

func number(v any) int64 {
	n, ok := v.(json.Number)
	if !ok {
		return -1
	}
	i, err := n.Int64()
	if err != nil {
		return -1
	}
	return i
}

// Lease is what a holder needs in order to renew, release or complete.
type Lease struct {
	Job        string
	Owner      string
	Generation uint64
	ID         string // secret
}

// Lease reads the answer to a claim.
func (r Reply) Lease() Lease {
	return Lease{Job: r.Text("job_id"), Owner: r.Text("owner"), Generation: uint64(max(r.Number("generation"), 0)),
		ID: r.Text("lease_id")}
}

// Control is a client of the lease API. Its methods return what the proxy said, whatever the status, and an error only if no
// whole answer came. Safe for concurrent use.
type Control struct {
	base  string
	token string // none if empty
	http  *http.Client
}

// Control makes a client for the process that runs now; after a restart make another.
func (d *Daemon) Control() *Control { return NewControl(d.ControlURL()) }

// NewControl makes a client for any base URL, for example of something in between.
func NewControl(base string) *Control {
	return &Control{base: base, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second},
	}}
}

// Close drops idle connections.
func (c *Control) Close() { c.http.CloseIdleConnections() }

// Claim asks for a lease. More may name claim_id, wait_ms or settle_ms.
func (c *Control) Claim(ctx context.Context, job, owner string, ttl time.Duration, more Fields) (Reply, error) {
	return c.Post(ctx, "/v1/lease/claim", with(Fields{"job_id": job, "owner": owner, "ttl_ms": ttl.Milliseconds()}, more))
}

// Renew prolongs a lease. More may name ttl_ms.
func (c *Control) Renew(ctx context.Context, l Lease, more Fields) (Reply, error) {
	return c.Post(ctx, "/v1/lease/renew", with(l.fields(), more))
}

// Release gives a lease back. More may name wait_ms.
func (c *Control) Release(ctx context.Context, l Lease, more Fields) (Reply, error) {
	return c.Post(ctx, "/v1/lease/release", with(l.fields(), more))
}

// Complete ends a job. More may name wait_ms and result.
func (c *Control) Complete(ctx context.Context, l Lease, more Fields) (Reply, error) {
	return c.Post(ctx, "/v1/lease/complete", with(l.fields(), more))
}

// Revoke takes a lease away.
func (c *Control) Revoke(ctx context.Context, job string, expected uint64, reason string) (Reply, error) {
	return c.Post(ctx, "/v1/job/revoke", Fields{"job_id": job, "expected_generation": expected, "reason": reason})
}

// Fence raises a floor on behalf of an outside issuer.
func (c *Control) Fence(ctx context.Context, job string, floor uint64, reason string) (Reply, error) {
	return c.Post(ctx, "/v1/job/fence", Fields{"job_id": job, "floor": floor, "reason": reason})
}

// Reopen lets a completed job be claimed again.
func (c *Control) Reopen(ctx context.Context, job, reason string) (Reply, error) {
	return c.Post(ctx, "/v1/job/reopen", Fields{"job_id": job, "reason": reason})
}

// Job reads the view of one job.
func (c *Control) Job(ctx context.Context, id string) (Reply, error) {
	return c.Get(ctx, "/v1/job?id="+url.QueryEscape(id))
}

// Jobs lists jobs.
func (c *Control) Jobs(ctx context.Context, query url.Values) (Reply, error) {
	return c.Get(ctx, "/v1/jobs?"+query.Encode())
}

// Writes lists keyed writes.
func (c *Control) Writes(ctx context.Context, query url.Values) (Reply, error) {
	return c.Get(ctx, "/v1/writes?"+query.Encode())
}

// Metric reads one series of /metrics by its text up to the value, for example `fenceproxy_in_flight{route="test"}`. A
// series that is not there yet is 0.
func (c *Control) Metric(ctx context.Context, series string) (float64, error) {
	r, err := c.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(r.Raw)) {
		rest, ok := strings.CutPrefix(line, series+" ")
		if !ok {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest, &v); err != nil {
			return 0, fmt.Errorf("read metric %s: %w", series, err)
		}
		return v, nil
	}
	return 0, nil
}

// Post sends a JSON body. A body of type []byte is sent as it is, so that malformed ones can be sent too.
func (c *Control) Post(ctx context.Context, path string, body any) (Reply, error) {
	raw, ok := body.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return Reply{}, fmt.Errorf("write request: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return Reply{}, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.GetBody = nil // so that our own client never sends it twice
	return c.do(r)
}

// Get reads a path.
func (c *Control) Get(ctx context.Context, path string) (Reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return Reply{}, fmt.Errorf("make request: %w", err)
	}
	return c.do(r)
}

func (c *Control) do(r *http.Request) (Reply, error) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return Reply{}, fmt.Errorf("read reply: %w", err)
	}
	return Reply{Status: res.StatusCode, Header: res.Header, Raw: raw, Body: object(raw)}, nil
}

// object decodes a JSON object and keeps its numbers exact; nil if it is none.
func object(raw []byte) Fields {
	var body Fields
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil
	}
	return body
}

func (l Lease) fields() Fields {
	return Fields{"job_id": l.Job, "owner": l.Owner, "generation": l.Generation, "lease_id": l.ID}
}

func with(base, more Fields) Fields {
	for k, v := range more {
		base[k] = v
	}
	return base
}
