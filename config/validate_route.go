package config

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

func (c *checker) routes() {
	// A fault under defaults is one even where every route overrides it.
	c.options("defaults", c.config.Defaults)
	if len(c.config.Routes) == 0 {
		c.add("routes", "at least one route is needed")
	}
	names, places := map[string]int{}, map[string]int{}
	for i, r := range c.config.Routes {
		path := fmt.Sprintf("routes[%d]", i)
		if c.isBad(path) {
			continue
		}
		c.name(path+".name", r.Name, i, names)
		c.matches(path, r, i, places)
		c.upstream(path, r)
		c.options(path, r.RouteOptions)
	}
}

func (c *checker) name(path, name string, route int, taken map[string]int) {
	if name == "" {
		c.add(path, "missing: every route needs a name")
		return
	}
	if !regexp.MustCompile(`^[a-z0-9_-]{1,64}$`).MatchString(name) {
		c.add(path, "%q is not a route name: 1 to 64 of a-z, 0-9, _ and -", name)
		return
	}
	if other, twice := taken[name]; twice {
		c.add(path, "%q is the name of routes[%d] already", name, other)
		return
	}
	taken[name] = route
}

// matches checks which requests a route takes, and that no other takes the
// same: between equal prefixes nothing would decide.
func (c *checker) matches(path string, r Route, route int, taken map[string]int) {
	if problem := pathProblem(r.Path); problem != "" {
		c.add(path+".path", "%s", problem)
		return
	}
	if len(r.Hosts) == 0 {
		if other, twice := taken[" "+r.Path]; twice {
			c.add(path+".path", "routes[%d] takes every host with the same path already", other)
		}
		taken[" "+r.Path] = route
		return
	}
	for i, host := range r.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", path, i)
		if problem := hostProblem(host); problem != "" {
			c.add(at, "%s", problem)
			continue
		}
		place := strings.ToLower(strings.TrimSuffix(host, ".")) + " " + r.Path
		if other, twice := taken[place]; twice {
			c.add(at, "routes[%d] takes this host with the same path already", other)
			continue
		}
		taken[place] = route
	}
}

// upstream never quotes the URL: it may hold a password.
func (c *checker) upstream(path string, r Route) {
	at := path + ".upstream"
	if r.Upstream == "" {
		c.add(at, "missing: every route needs an upstream, as in http://127.0.0.1:3000")
		return
	}
	u, err := url.Parse(r.Upstream)
	switch {
	case err != nil:
		c.add(at, "is not a URL")
		return
	case (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		c.add(at, "is not an absolute http or https URL, as in http://127.0.0.1:3000")
		return
	case strings.Contains(r.Upstream, "#"):
		c.add(at, "has a fragment, which no request can carry")
		return
	case strings.Contains(r.Upstream, "?"):
		c.add(at, "has a query: the query is the request's own")
		return
	case u.Port() != "" && !isPort(u.Port(), 1), strings.HasSuffix(u.Host, ":"):
		c.add(at, "has no port from 1 to 65535 after its colon")
		return
	}
	if u.EscapedPath() != "" {
		if problem := pathProblem(u.EscapedPath()); problem != "" {
			c.add(at, "its path %s", problem)
			return
		}
	}
	if own := c.ownListener(u); own != "" {
		c.add(at, "is %s of this proxy: its requests would go round in a circle", own)
	}
	switch {
	case r.UpstreamProtocol == ProtocolH2 && u.Scheme != "https":
		c.add(path+".upstream_protocol", "h2 is HTTP/2 over TLS and the upstream is http: use h2c, or https")
	case r.UpstreamProtocol == ProtocolH2C && u.Scheme != "http":
		c.add(path+".upstream_protocol", "h2c is HTTP/2 in the clear and the upstream is https: use h2, or http")
	}
	// Under defaults the block may be meant for the other routes.
	if u.Scheme == "http" && r.UpstreamTLS != c.config.Defaults.UpstreamTLS {
		c.add(path+".upstream_tls", "has no effect on an http upstream: use https")
	}
}

// ownListener returns the key of the listener that u points at, if any.
func (c *checker) ownListener(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	to, problem := parseAddress(net.JoinHostPort(u.Hostname(), port))
	if problem != "" {
		return ""
	}
	for _, own := range []struct{ key, text string }{{"listen", c.config.Listen}, {"control.listen", c.config.Control.Listen}} {
		a, problem := parseAddress(own.text)
		if problem != "" || a.port == 0 || a.port != to.port {
			continue
		}
		if strings.EqualFold(a.host, to.host) || (a.isEvery() && to.isLoopback()) ||
			(a.host == "localhost" && to.isLoopback()) || (to.host == "localhost" && a.isLoopback()) {
			return own.key
		}
	}
	return ""
}

// options checks what may also stand under defaults.
func (c *checker) options(path string, o RouteOptions) {
	at := func(key string) string { return join(path, key) }
	c.tlsPair(at("upstream_tls"), o.UpstreamTLS.CertFile, o.UpstreamTLS.KeyFile)
	if problem := namespaceProblem(o.Namespace); problem != "" {
		c.add(at("namespace"), "%s", problem)
	}
	for i, method := range o.Methods {
		here := fmt.Sprintf("%s[%d]", at("methods"), i)
		switch {
		case !isToken(method):
			c.add(here, "%q is not a method", method)
		case method != strings.ToUpper(method):
			c.add(here, "%q is not upper case: methods are compared letter for letter", method)
		case method == http.MethodConnect:
			c.add(here, "CONNECT is never forwarded")
		case slices.Contains(o.Methods[:i], method):
			c.add(here, "%s is in the list already", method)
		}
	}
	if o.WebSocket && o.UpstreamProtocol != ProtocolHTTP1 {
		c.add(at("websocket"), "needs upstream_protocol: http1, for only that can be upgraded")
	}
	c.positive(at("timeout"), o.Timeout)
	c.positive(at("idle_timeout"), o.IdleTimeout)
	c.atLeast(at("takeover.wait"), o.Takeover.Wait, 0)
	c.atLeast(at("takeover.linger"), o.Takeover.Linger, 0)
	c.atLeast(at("idempotency.wait"), o.Idempotency.Wait, 0)
	c.positive(at("idempotency.retention"), o.Idempotency.Retention)
	c.outcomes(at("outcomes"), o.Outcomes)
	c.notNegative(at("idempotency.max_reply"), o.Idempotency.MaxReply)
	if o.Idempotency.MaxReply > maxKeptReply {
		c.add(at("idempotency.max_reply"), "%s is more than %s, the largest reply that a store keeps", o.Idempotency.MaxReply, maxKeptReply)
	}
	c.notNegative(at("body.buffer"), o.Body.Buffer)
	c.notNegative(at("body.max"), o.Body.Max)
}

// maxKeptReply is the largest reply that fits one durable write of a store.
const maxKeptReply Size = 512 << 10

func (c *checker) notNegative(path string, size Size) {
	if size < 0 {
		c.add(path, "%s is negative", size)
	}
}

func (c *checker) positive(path string, d time.Duration) {
	if d <= 0 {
		c.add(path, "%s is not longer than 0", formatDuration(d))
	}
}

func (c *checker) outcomes(path string, o Outcomes) {
	classOf := map[int]string{}
	for _, class := range []struct {
		key      string
		statuses []int
	}{{"applied", o.Applied}, {"declined", o.Declined}, {"unknown", o.Unknown}} {
		for i, status := range class.statuses {
			here := fmt.Sprintf("%s.%s[%d]", path, class.key, i)
			if status < 100 || status > 599 {
				c.add(here, "%d is not a status: 100 to 599", status)
				continue
			}
			if other := classOf[status]; other != "" {
				c.add(here, "%d is in the list %s already", status, other)
				continue
			}
			classOf[status] = class.key
		}
	}
}
