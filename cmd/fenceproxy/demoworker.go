package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

const (
	// demoTTL is the lease of each holder: the shortest that the defaults allow.
	demoTTL = time.Second
	// statementSize is twice what the proxy reads before it forwards a body.
	statementSize = 2 << 20
)

// demoWorker is a worker of the story. It sends each write twice: through the proxy, and
// straight to an API that has none.
type demoWorker struct {
	name    string
	lease   wire.ClaimResponse
	control *client
	http    *http.Client
	// proxyURL is where its writes are fenced, bareURL where they are not.
	proxyURL, bareURL string
	sending           sync.WaitGroup
}

func newDemoWorker(name, proxyURL, bareURL, controlURL string) (*demoWorker, error) {
	c, err := (&apiFlags{control: controlURL}).client()
	if err != nil {
		return nil, err
	}
	return &demoWorker{
		name: name, control: c, http: &http.Client{Transport: &http.Transport{}},
		proxyURL: proxyURL, bareURL: bareURL,
	}, nil
}

// close waits for what is still being sent.
func (w *demoWorker) close() {
	w.sending.Wait()
	w.control.close()
	w.http.CloseIdleConnections()
}

// claim takes the job, and waits for its lease to run out if it has to.
func (w *demoWorker) claim(ctx context.Context, job string) error {
	in := wire.ClaimRequest{JobID: job, Owner: w.name, TTL: demoTTL.Milliseconds(), Wait: (10 * demoTTL).Milliseconds()}
	var out wire.ClaimResponse
	if _, err := w.control.post(ctx, wire.PathClaim, in, &out); err != nil {
		return fmt.Errorf("claim %s for %s: %w", job, w.name, err)
	}
	w.lease = out
	return nil
}

// demoWrite is one write of what to the worker's job. body returns its body, of size
// bytes, afresh for each sending; nil for none.
type demoWrite struct {
	method, what string
	body         func() io.Reader
	size         int64
}

// upload is a statement whose second half waits until the channel is closed; nil does
// not wait.
func upload(ctx context.Context, resume <-chan struct{}) demoWrite {
	half := strings.Repeat("x", statementSize/2)
	return demoWrite{method: http.MethodPut, what: "statement", size: statementSize, body: func() io.Reader {
		return io.MultiReader(strings.NewReader(half), pause{ctx, resume}, strings.NewReader(half))
	}}
}

// pause is an empty reader that ends late.
type pause struct {
	ctx    context.Context
	resume <-chan struct{}
}

// Read implements io.Reader.
func (p pause) Read([]byte) (int, error) {
	if p.resume == nil {
		return 0, io.EOF
	}
	select {
	case <-p.resume:
		return 0, io.EOF
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

// reply is what a worker was told.
type reply struct {
	status int
	// reason and floor are Fence-Reason and Fence-Generation; empty without a
	// fence.
	reason, floor string
	err           error
}

func (r reply) String() string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.reason != "":
		return strconv.Itoa(r.status) + " " + r.reason
	}
	return strconv.Itoa(r.status)
}

// both sends the write through the fence and past it at the same moment.
func (w *demoWorker) both(ctx context.Context, wr demoWrite) (fenced, bare <-chan reply) {
	return w.start(ctx, w.proxyURL, wr), w.start(ctx, w.bareURL, wr)
}

func (w *demoWorker) start(ctx context.Context, base string, wr demoWrite) <-chan reply {
	c := make(chan reply, 1)
	lease := w.lease // of now, not of when the goroutine runs
	w.sending.Go(func() { c <- w.send(ctx, base, wr, lease) })
	return c
}

func (w *demoWorker) send(ctx context.Context, base string, wr demoWrite, lease wire.ClaimResponse) reply {
	var body io.Reader
	if wr.body != nil {
		body = wr.body()
	}
	req, err := http.NewRequestWithContext(ctx, wr.method, base+"/orders/"+lease.JobID+"/"+strings.ReplaceAll(wr.what, " ", "/"), body)
	if err != nil {
		return reply{err: err}
	}
	req.ContentLength = wr.size
	req.Header.Set("User-Agent", w.name)
	req.Header.Set(wire.HeaderJobID, lease.JobID)
	req.Header.Set(wire.HeaderGeneration, strconv.FormatUint(uint64(lease.Generation), 10))
	req.Header.Set(wire.HeaderLease, lease.LeaseID)
	resp, err := w.http.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return reply{err: err}
	}
	return reply{status: resp.StatusCode, reason: resp.Header.Get(wire.HeaderReason), floor: resp.Header.Get(wire.HeaderGeneration)}
}
