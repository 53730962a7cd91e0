package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// Validate checks every rule that a configuration must keep, and returns all
// that are broken as Faults, or nil. Load, Parse and ForUpstream have called
// it; call it again after changing a field.
func (c *Config) Validate() error {
	known := c.origin
	if known == nil {
		known = origin{}
	}
	return c.validate(&collector{origin: known, bad: map[string]bool{}})
}

// validate adds to the faults that found holds already.
func (c *Config) validate(found *collector) error {
	check := checker{collector: found, config: c}
	if !check.isBad("") {
		check.enums()
		check.checkUnbuilt()
		check.listeners()
		check.tlsPairs()
		check.store()
		check.leases()
		check.headers()
		check.limits()
		check.routes()
	}
	return found.faults.ErrorOrNil()
}

// checker holds the rules.
type checker struct {
	*collector
	config *Config
}

// enums checks the words that the schema lists for a key.
func (c *checker) enums() {
	walk(reflect.ValueOf(c.config).Elem(), "", func(path string, f field, v reflect.Value) {
		if f.enum != nil && !slices.Contains(f.enum, v.String()) {
			c.add(path, "%q is not one of %s", v.String(), strings.Join(f.enum, ", "))
		}
	})
}

func (c *checker) listeners() {
	data, dataOK := c.listener("listen", c.config.Listen)
	control, controlOK := c.listener("control.listen", c.config.Control.Listen)
	if controlOK && !control.isLoopback() && c.config.Auth.File == "" && !c.isBad("auth") {
		c.add("control.listen", "anyone who reaches it could claim leases: bind to 127.0.0.1 or set auth.file")
	}
	if dataOK && controlOK && data.port != 0 && data.port == control.port &&
		(data.isEvery() || control.isEvery() || strings.EqualFold(data.host, control.host)) {
		c.add("control.listen", "is the same address as listen")
	}
}

func (c *checker) listener(path, text string) (address, bool) {
	a, problem := parseAddress(text)
	if problem != "" {
		c.add(path, "%s", problem)
	}
	return a, problem == ""
}

// tlsPairs checks the certificates of our own listeners and of etcd; those
// towards upstreams are checked with their routes.
func (c *checker) tlsPairs() {
	c.serverTLS("tls", c.config.TLS)
	c.serverTLS("control.tls", c.config.Control.TLS)
	c.tlsPair("store.etcd.tls", c.config.Store.Etcd.TLS.CertFile, c.config.Store.Etcd.TLS.KeyFile)
}

func (c *checker) serverTLS(path string, t ServerTLS) {
	c.tlsPair(path, t.CertFile, t.KeyFile)
	if t.ClientCAFile != "" && t.CertFile == "" {
		c.add(join(path, "client_ca_file"), "needs %s.cert_file and key_file: without TLS there are no client certificates", path)
	}
}

func (c *checker) tlsPair(path, certFile, keyFile string) {
	switch {
	case certFile != "" && keyFile == "" && !c.isBad(join(path, "cert_file")):
		c.add(join(path, "key_file"), "missing beside cert_file")
	case certFile == "" && keyFile != "" && !c.isBad(join(path, "key_file")):
		c.add(join(path, "cert_file"), "missing beside key_file")
	}
}

func (c *checker) store() {
	s := c.config.Store
	if c.isBad("store.engine") {
		return
	}
	switch s.Engine {
	case EngineBadger:
		if s.Badger.Dir == "" {
			c.add("store.badger.dir", "is empty: the floors need a directory that survives restarts")
		}
	case EnginePostgres:
		if s.Postgres.DSN == "" {
			c.add("store.postgres.dsn", "is empty: engine postgres needs it")
		}
	case EngineEtcd:
		if len(s.Etcd.Endpoints) == 0 {
			c.add("store.etcd.endpoints", "is empty: engine etcd needs it")
		}
		if s.Etcd.Prefix == "" {
			c.add("store.etcd.prefix", "is empty: the keys of fenceproxy would mix with those of others")
		}
	}
}

func (c *checker) leases() {
	l := c.config.Leases
	// The API speaks whole milliseconds; a shorter bound could not be met.
	c.atLeast("leases.min_ttl", l.MinTTL, time.Millisecond)
	c.atLeast("leases.max_ttl", l.MaxTTL, time.Millisecond)
	c.atLeast("leases.restart_grace", l.RestartGrace, 0)
	if l.MinTTL > l.MaxTTL && !c.isBad("leases.max_ttl") {
		// Blame the one that was set.
		path := "leases.min_ttl"
		if _, set := c.origin[path]; !set {
			path = "leases.max_ttl"
		}
		c.add(path, "min_ttl %s is longer than max_ttl %s", formatDuration(l.MinTTL), formatDuration(l.MaxTTL))
	}
	c.atLeast("drain", c.config.Drain, 0)
}

// atLeast checks the lower bound of a duration.
func (c *checker) atLeast(path string, d, least time.Duration) {
	switch {
	case d >= least:
	case least > 0:
		c.add(path, "%s is too short: at least %s", formatDuration(d), formatDuration(least))
	default:
		c.add(path, "%s is negative", formatDuration(d))
	}
}

func (c *checker) headers() {
	h := c.config.Headers
	taken := map[string]string{}
	for _, name := range []struct{ path, value string }{
		{"headers.job_id", h.JobID}, {"headers.generation", h.Generation}, {"headers.lease", h.Lease}, {"headers.key", h.Key},
	} {
		if problem := headerProblem(name.value); problem != "" {
			c.add(name.path, "%s", problem)
			continue
		}
		folded := strings.ToLower(name.value)
		if other := taken[folded]; other != "" {
			c.add(name.path, "is the same header as %s", other)
			continue
		}
		taken[folded] = name.path
	}
}

func (c *checker) limits() {
	l := c.config.Limits
	if l.MaxInFlight < 1 {
		c.add("limits.max_in_flight", "%d admits nothing: at least 1", l.MaxInFlight)
	}
	if l.MaxInFlightPerJob < 1 {
		c.add("limits.max_in_flight_per_job", "%d admits nothing: at least 1", l.MaxInFlightPerJob)
	}
	if l.MaxHeader < KiB || l.MaxHeader > 16*MiB {
		c.add("limits.max_header", "%s is out of range: 1KiB to 16MiB", l.MaxHeader)
	}
}
