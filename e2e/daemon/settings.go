package daemon

import (
	"fmt"
	"strings"
)

// Route is the name of the one route of a test's configuration, and its label in metrics.
const Route = "test"

// Settings is the configuration of one proxy. Each line is YAML as a user would write it.
type Settings struct {
	Upstream string   // base URL
	Route    []string // more lines of the route: "takeover: {wait: 1s}"
	Routes   []string // more routes, each on one line: "{name: other, path: /other, upstream: http://127.0.0.1:1}"
	Top      []string // more lines of the top level: "drain: 1s"
	Leases   string   // the value of leases; empty: short times for tests

	Binary string   // a variant of the program; empty: the program itself
	Env    []string // more of the environment of serve
}

// yaml writes the configuration file. Ports are the kernel's choice: a port guessed beforehand is a port lost to a race.
func (s Settings) yaml(dataDir string) string {
	leases := s.Leases
	if leases == "" {
		leases = "{min_ttl: 50ms, restart_grace: 100ms}"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "listen: 127.0.0.1:0\ncontrol:\n  listen: 127.0.0.1:0\n")
	fmt.Fprintf(&b, "store:\n  engine: badger\n  badger: {dir: %q}\nleases: %s\n", dataDir, leases)
	for _, line := range s.Top {
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintf(&b, "routes:\n  - name: %s\n    path: /\n    upstream: %s\n", Route, s.Upstream)
	for _, line := range s.Route {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	for _, line := range s.Routes {
		fmt.Fprintf(&b, "  - %s\n", line)
	}
	return b.String()
}
