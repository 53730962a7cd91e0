package leaseclient

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// Config is what a Client is made from. The zero value speaks to a proxy on this machine.
type Config struct {
	// Endpoint is the base URL of the control listener; http://127.0.0.1:8081 if empty.
	Endpoint string
	// HTTPClient makes the calls. Its Timeout and CheckRedirect are not used: every call has a bound of its own, and a
	// redirect would carry the lease id to another server. If nil, the client has one connection pool of its own, over
	// HTTP/1.1 and without a proxy from the environment.
	HTTPClient *http.Client
	// TLS is for the calls, with a client certificate if the server wants one; the system's defaults if nil. It can not
	// be combined with HTTPClient.
	TLS *tls.Config
	// Token is the bearer token for the calls; none if empty.
	Token string
	// TokenSource returns the bearer token for a call, and is asked before each one, possibly from several goroutines at
	// once: for tokens that change, see TokenFile. While it fails no call is made, and a lease is kept as if the server
	// could not be reached. It can not be combined with Token.
	TokenSource func() (string, error)
	// Owner is the label under which others see who holds a job. It proves nothing, and two processes may use the same.
	// If empty it is host, process id and a random part.
	Owner string
	// TTL is how long a lease lasts without a renewal; 30 s if zero. Leases are renewed at a third of it. Two renewals in
	// a row that hang lose nothing from 5 s on with the default Margin, and from 7 s on with the largest; below 3.5 s one
	// can lose the lease. "Short leases" in the documentation of the package has the figures. The ttl has to be longer
	// than what the worker may be paused for, and is how long a successor waits after a crash. The server has bounds of
	// its own, 1 s to 24 h by default.
	TTL time.Duration
	// Margin is how long before the server's time the lease counts as over: room for stopping the work, and for clocks
	// that run at different rates. If zero it is a tenth of the ttl and at least 1 s, but never more than a third of the
	// ttl, which is also the most that is accepted.
	Margin time.Duration
	// MinLeft is the least time left before the deadline with which a Transport starts a write; a twentieth of the ttl
	// and at most 1 s if zero. It has to be less than a third of the ttl.
	MinLeft time.Duration
	// Drain bounds how long Close, and Run at its end, wait for outstanding writes, and then for the release; 10 s
	// each if zero.
	Drain time.Duration
	// TracerProvider makes the spans of claims, renewals and endings; the global one of OpenTelemetry if nil.
	TracerProvider trace.TracerProvider

	// clocks is a seam for tests.
	clocks func() instant
}

const (
	defaultEndpoint = "http://127.0.0.1:8081"
	defaultTTL      = 30 * time.Second
	defaultDrain    = 10 * time.Second
	// shortestTTL is where milliseconds of scheduling begin to count.
	shortestTTL = 100 * time.Millisecond
)

// String describes the configuration without its token.
func (c Config) String() string {
	return fmt.Sprintf("leaseclient.Config{Endpoint: %q, Owner: %q, TTL: %v}", c.Endpoint, c.Owner, c.TTL)
}

// Format prints String, whatever the verb: none may show the token.
func (c Config) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, c.String()) }

// LogValue implements slog.LogValuer.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) withDefaults() (Config, error) {
	c.Endpoint = strings.TrimRight(cmp.Or(c.Endpoint, defaultEndpoint), "/")
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	if c.clocks == nil {
		c.clocks = readClocks
	}
	if c.Owner == "" {
		c.Owner = newOwner()
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return c, fmt.Errorf("endpoint: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return c, fmt.Errorf("endpoint %q is no http or https URL with a host", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return c, fmt.Errorf("endpoint %q has more than scheme, host and path; a credential belongs into Token", u.Redacted())
	case c.HTTPClient != nil && c.TLS != nil:
		return c, fmt.Errorf("both HTTPClient and TLS are set; put the TLS configuration into the HTTPClient's transport")
	case c.Token != "" && c.TokenSource != nil:
		return c, fmt.Errorf("both Token and TokenSource are set")
	case checkToken(c.Token) != "":
		return c, fmt.Errorf("token %s", checkToken(c.Token))
	case c.Drain < 0:
		return c, fmt.Errorf("drain %v is negative", c.Drain)
	}
	if why := wire.CheckText(c.Owner, wire.MaxName); why != "" {
		return c, fmt.Errorf("owner %s", why)
	}
	return c, c.checkTTL(c.TTL)
}

// checkTTL refuses combinations with which a lease can not be kept.
func (c Config) checkTTL(ttl time.Duration) error {
	switch {
	case ttl < shortestTTL:
		return fmt.Errorf("ttl %v is shorter than %v", ttl, shortestTTL)
	case ttl%time.Millisecond != 0:
		return fmt.Errorf("ttl %v is no whole number of milliseconds", ttl)
	case c.Margin < 0 || c.Margin > ttl/3:
		return fmt.Errorf("margin %v must be between 0 and a third of the ttl %v, or two lost renewals lose the lease", c.Margin, ttl)
	case c.MinLeft < 0 || c.MinLeft >= ttl/3:
		return fmt.Errorf("minimum left %v must be less than a third of the ttl %v, or writes are refused between renewals", c.MinLeft, ttl)
	}
	return nil
}

func (c Config) margin(ttl time.Duration) time.Duration {
	if c.Margin > 0 {
		return min(c.Margin, ttl/3) // the server may have granted less than was asked for
	}
	return min(max(time.Second, ttl/10), ttl/3)
}

func (c Config) minLeft(ttl time.Duration) time.Duration {
	if c.MinLeft > 0 {
		return min(c.MinLeft, ttl/3)
	}
	return min(time.Second, ttl/20)
}

func (c Config) httpClient() (hc *http.Client, own *http.Transport) {
	if c.HTTPClient != nil {
		cp := *c.HTTPClient
		hc = &cp
	} else {
		// One kind of connection that a hung call takes down with it: an HTTP/2 connection would outlive the call and
		// swallow the next one too.
		var p http.Protocols
		p.SetHTTP1(true)
		own = &http.Transport{TLSClientConfig: c.TLS, Protocols: &p, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second}
		hc = &http.Client{Transport: own}
	}
	hc.Timeout = 0
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return hc, own
}

// newOwner names this process for people.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" || len(host) > 128 || wire.CheckText(host, 128) != "" {
		host = "host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
}
