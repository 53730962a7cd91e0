package leaseclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// Client claims jobs at one proxy and renews what it holds. All methods may be called concurrently. While it holds no
// lease it runs no goroutine.
type Client struct {
	cfg    Config
	now    func() instant
	http   *http.Client
	own    *http.Transport        // nil if the caller's
	bearer func() (string, error) // a func, so that no %v shows it
	tracer trace.Tracer

	// closing ends claims when Close begins; base ends all that is left when Close gives up waiting.
	closing, base context.Context
	close, stop   context.CancelFunc

	mu     sync.Mutex
	closed bool
	// busy counts claims, background work and the scheduler; idle is closed when it falls to zero.
	busy int
	idle chan struct{}
	// leases are the ones that are not over, the next to look at first; see renew.go.
	leases     schedule
	scheduling bool
	kick       chan struct{}
}

const (
	// callTimeout is the longest that one call may take, beyond what it asks the server to wait.
	callTimeout = 10 * time.Second
	// leastTimeout keeps calls near the deadline from being hopeless.
	leastTimeout = time.Second
	// maxAnswer bounds what is read of an answer, in bytes: a batch of maxBatch refusals fits.
	maxAnswer = 4 << 20
	// closers is how many leases Close ends at once.
	closers = 16
)

// New returns a client. It makes no call. The error names the field of cfg that is wrong.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make lease client: %w", err)
	}
	c := &Client{cfg: cfg, now: cfg.clocks, kick: make(chan struct{}, 1)}
	token := cfg.Token
	c.cfg.Token = ""
	if c.bearer = cfg.TokenSource; c.bearer == nil {
		c.bearer = func() (string, error) { return token, nil }
	}
	c.http, c.own = cfg.httpClient()
	tp := cfg.TracerProvider
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	c.tracer = tp.Tracer("github.com/fenceproxy/fenceproxy/leaseclient")
	c.closing, c.close = context.WithCancel(context.Background())
	c.base, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Owner is the label under which others see this client's leases.
func (c *Client) Owner() string { return c.cfg.Owner }

// Format prints what the client speaks to, whatever the verb, and nothing of what it holds.
func (c *Client) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "lease client of %s at %s", c.cfg.Owner, c.cfg.Endpoint)
}

// Close releases every lease after its outstanding writes, and ends everything that the client runs. A write that is not
// done within Config.Drain is cut. Close takes at most twice Config.Drain; what could not be released by then runs out
// by itself within its ttl, and is in the error. Afterwards no renewal leaves the process. A second Close does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	held := make([]*Lease, len(c.leases))
	copy(held, c.leases)
	c.mu.Unlock()
	c.close()

	end := time.AfterFunc(2*c.cfg.Drain, c.stop)
	defer end.Stop()
	ctx, cancel := context.WithTimeout(c.base, c.cfg.Drain)
	defer cancel()
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		errs    []error
		next    = make(chan *Lease)
	)
	for range min(closers, len(held)) {
		workers.Go(func() {
			for l := range next {
				if err := l.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, l := range held {
		next <- l
	}
	close(next)
	workers.Wait()
	<-c.quiet()
	c.stop()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	if len(errs) > 0 {
		return fmt.Errorf("close lease client: %d of %d leases run out by themselves: %w", len(errs), len(held), errors.Join(errs...))
	}
	return nil
}

// enter counts a piece of work that Close has to wait for.
func (c *Client) enter() {
	c.mu.Lock()
	c.busy++
	c.mu.Unlock()
}

// enterOpen is enter for work that is not begun after Close.
func (c *Client) enterOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.busy++
	return true
}

func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	if c.busy == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// quiet is closed once nothing is under way.
func (c *Client) quiet() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	if c.busy == 0 {
		close(done)
		return done
	}
	if c.idle == nil {
		c.idle = done
	}
	return c.idle
}

// background runs f, at most for Config.Drain.
func (c *Client) background(f func(ctx context.Context)) {
	c.enter()
	go func() {
		defer c.leave()
		ctx, cancel := context.WithTimeout(c.base, c.cfg.Drain)
		defer cancel()
		f(ctx)
	}()
}

// call makes one call. The error is a *refusal if the server answered, an unsentError if it was never reached, and
// otherwise leaves open whether the call took effect.
func (c *Client) call(ctx context.Context, path string, in, out any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // the server's bound on a batch counts bytes
	if err := enc.Encode(in); err != nil {
		return unsentError{fmt.Errorf("make request: %w", err)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.Endpoint+path, &body)
	if err != nil {
		return unsentError{fmt.Errorf("make request: %w", err)}
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	token, err := c.bearer()
	if err != nil {
		return unsentError{err}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	inject(ctx, req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the caller says what was called
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return unsentError{err}
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing can be lost by closing what was read
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		p, ok := wire.ReadProblem(resp)
		if !ok {
			p = wire.Problem{Detail: "the endpoint answered with something that is no answer of a control listener"}
		}
		p.Status = resp.StatusCode
		return &refusal{p}
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// inject adds the W3C trace context of ctx, if it has one.
func inject(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// span starts a span. The lease id is in none.
func (c *Client) span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return c.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

func endSpan(s trace.Span, err error) {
	if err != nil {
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

// backoff is how long to wait after the n-th failed attempt in a row, counted from 1; with jitter, because many
// processes lose the same proxy at the same time.
func backoff(n int, err error) time.Duration {
	d := 100 * time.Millisecond << min(n-1, 5)
	d = d/2 + rand.N(d/2)
	if r, _ := code(err); r != nil {
		d = max(d, r.RetryAfter)
	}
	return d
}

// pause waits, and returns the cause of ctx if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
