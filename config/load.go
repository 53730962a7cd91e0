package config

import (
	"fmt"
	"os"
)

// Load reads and checks the configuration in the file at path, under what
// environ ("NAME=value" each, as from os.Environ) overrides, and the principals
// in its auth.file. The error is Faults when one of them is at fault, and
// another when the file at path cannot be read.
func Load(path string, environ []string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return parse(path, data, environ, true)
}

// Parse is Load for the bytes of a file; file is only its name in faults. It
// reads no other file, so there are no Principals. Its error is always Faults.
func Parse(file string, data []byte, environ []string) (*Config, error) {
	return parse(file, data, environ, false)
}

func parse(file string, data []byte, environ []string, principals bool) (*Config, error) {
	c := Default()
	c.origin = origin{}
	d := decoder{file: file, collector: collector{origin: c.origin, bad: map[string]bool{}}}
	d.document(data, &c)
	return finish(&c, &d, environ, principals)
}

// ForUpstream returns the configuration of "serve --upstream URL" without a
// file: one route named default that sends every path to upstream, all else at
// its default or as environ says. It reads auth.file, if environ names one. Its
// error is always Faults.
func ForUpstream(upstream string, environ []string) (*Config, error) {
	c := Default()
	c.origin = origin{
		"routes[0]":          {file: fileCommandLine, key: "--upstream"},
		"routes[0].upstream": {file: fileCommandLine, key: "--upstream"},
	}
	d := decoder{collector: collector{origin: c.origin, bad: map[string]bool{}}}
	d.given = &Route{Name: "default", Upstream: upstream}
	return finish(&c, &d, environ, true)
}

// finish goes the rest of the way after the file: the environment over the
// shared keys, then the routes, which start from the defaults that this leaves,
// then the environment over the routes, then the principals if they are wanted,
// then the rules.
func finish(c *Config, d *decoder, environ []string, principals bool) (*Config, error) {
	overrides := overridesIn(environ)
	d.overrideShared(c, overrides)
	d.decodeRoutes(c)
	d.overrideRoutes(c, overrides)
	d.rejectUnused(overrides)
	if principals {
		d.readPrincipals(c)
	}
	if err := c.validate(&d.collector); err != nil {
		return nil, err
	}
	return c, nil
}
