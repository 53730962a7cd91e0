package config

import (
	"fmt"
	"strings"
	"testing"
)

// route is a valid file whose only route has one more line, line 4.
func route(line string) string { return minimal + "    " + line + "\n" }

func TestEachFaultNamesItsLineItsKeyAndTheCause(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		// Form.
		{"AnUnknownKeyIsAnErrorWithItsLine", minimal + "a: 1", "f.yaml:4:1: a: unknown key"},
		{"AnUnknownKeyInABlock", "log: {levle: info}\n" + minimal, "f.yaml:1:7: log.levle: unknown key (did you mean level?)"},
		{"AnUnknownKeyUnderDefaults", "defaults:\n  body:\n    bufer: 1\n" + minimal, "f.yaml:3:5: defaults.body.bufer: unknown key (did you mean buffer?)"},
		{"AnUnknownKeyThatIsNoText", minimal + "1: x", "f.yaml:4:1: 1: unknown key"},
		{"AnUnknownKeyIsNotPrintedRaw", minimal + `"a\nb": x`, `f.yaml:4:1: "a\nb": unknown key`},
		{"ADuplicateKey", "drain: 1s\ndrain: 2s\n" + minimal, "f.yaml:2:1: drain: set twice, first in line 1"},
		{"AnUnknownKeyTwice", minimal + "\"a\\nb\": x\n\"a\\nb\": y", "f.yaml:4:1: \"a\\nb\": unknown key\nf.yaml:5:1: \"a\\nb\": set twice, first in line 4"},
		{"ADuplicateKeyInARoute", route("name: b"), "f.yaml:4:5: routes[0].name: set twice, first in line 2"},
		{"AKeyWithoutValue", "listen:\n" + minimal, "f.yaml:1:1: listen: has no value"},
		{"ANumberForText", "listen: 8080\n" + minimal, "f.yaml:1:9: listen: wants text, not a number: put it in quotes"},
		{"TextForANumber", "limits: {max_in_flight: \"3\"}\n" + minimal, "f.yaml:1:25: limits.max_in_flight: wants a whole number, not text"},
		{"AFractionForANumber", "limits: {max_in_flight: 1.5}\n" + minimal, `f.yaml:1:25: limits.max_in_flight: "1.5" is not a whole number`},
		{"ANumberOutOfRange", "limits: {max_in_flight: 10000000000000000000}\n" + minimal, "f.yaml:1:25: limits.max_in_flight: 10000000000000000000 is out of range"},
		{"AWordForABool", route("preserve_host: yes"), "f.yaml:4:20: routes[0].preserve_host: wants true or false, not text"},
		{"ABlockForAScalar", "listen: {a: b}\n" + minimal, "f.yaml:1:9: listen: wants text, not a block of keys"},
		{"AScalarForABlock", "log: info\n" + minimal, "f.yaml:1:6: log: wants a block of keys, not text"},
		{"AScalarForAList", route("hosts: a"), "f.yaml:4:12: routes[0].hosts: wants a list, as in [a, b], not text"},
		{"ABlockForTheRoutes", "routes: {name: a}", "f.yaml:1:9: routes: wants a list of routes, not a block of keys"},
		{"AScalarForARoute", "routes: [5]", "f.yaml:1:10: routes[0]: wants a block of keys, not a number"},
		{"AnEmptyRoute", "routes:\n  -\n", "f.yaml:1:1: routes[0]: has no value"},
		{"AListForTheDocument", "- a", "f.yaml:1:1: wants a block of keys, not a list"},
		{"BrokenYAML", "routes: [", "f.yaml:1:9: this is not YAML: sequence end token ']' not found"},
		{"ATabAsIndentation", "log:\n\tlevel: info", "f.yaml:2:1: this is not YAML: found character '?' that cannot start any token"},
		{"DeepNesting", strings.Repeat("[", 1000), "f.yaml:1:65: this nests deeper than any configuration"},
		{"AHugeFile", strings.Repeat("#", maxFile+1), "f.yaml:1:1: the file is larger than 256KiB"},
		{"TwoDocuments", minimal + "---\na: b", "f.yaml:5:1: a second document begins: only one is allowed"},
		{"AnAlias", "log: {level: &l info, format: json}\n" + minimal, "f.yaml:1:14: log.level: an anchor is not supported: put what routes share under defaults"},
		{"AMergeKey", route("<<: {a: b}"), "f.yaml:4:5: routes[0].<<: merge keys are not supported: put what routes share under defaults"},
		{"ControlCharacters", "listen: \"a\\u0007\"\n" + minimal, "f.yaml:1:9: listen: control characters and broken UTF-8 are not allowed"},
		{"ARouteKeyUnderDefaults", "defaults: {upstream: http://a}\n" + minimal, "f.yaml:1:12: defaults.upstream: belongs to one route and cannot have a default"},
		{"NoRoutes", "# nothing", "f.yaml:1:1: routes: at least one route is needed"},

		// Values.
		{"ADurationWithoutUnit", "drain: 10\n" + minimal, "f.yaml:1:8: drain: 10 has no unit: write a duration as in 10s or 10ms"},
		{"ADurationThatIsNone", "drain: soon\n" + minimal, `f.yaml:1:8: drain: "soon" is not a duration: write one as in 250ms, 10s, 5m or 24h`},
		{"ANegativeDuration", "drain: -1s\n" + minimal, "f.yaml:1:8: drain: -1s is negative"},
		{"ASizeInDecimalUnits", "limits: {max_header: 64KB}\n" + minimal, `f.yaml:1:22: limits.max_header: "64KB" is not a size: write whole bytes, or a whole number of KiB, MiB, GiB or TiB as in 64KiB`},
		{"ANegativeSize", route("body: {max: -1}"), "f.yaml:4:17: routes[0].body.max: -1 is negative"},
		{"ASizeOutOfRange", route("body: {max: 9000000000GiB}"), "f.yaml:4:17: routes[0].body.max: 9000000000GiB is out of range"},
		{"AWordThatIsNoChoice", route("fencing: on"), `f.yaml:4:14: routes[0].fencing: "on" is not one of required, optional, off`},
		{"AnUnknownEngine", "store: {engine: redis}\n" + minimal, `f.yaml:1:17: store.engine: "redis" is not one of badger, postgres, etcd`},
		{"AnEmptyDirectory", "store: {badger: {dir: \"\"}}\n" + minimal, "f.yaml:1:23: store.badger.dir: is empty: the floors need a directory that survives restarts"},

		// Listeners.
		{"AnAddressWithoutPort", "listen: localhost\n" + minimal, `f.yaml:1:9: listen: "localhost" is not an address: write host:port, as in 127.0.0.1:8080`},
		{"AnAddressWithABadPort", "listen: localhost:70000\n" + minimal, `f.yaml:1:9: listen: "localhost:70000" has no port from 0 to 65535`},
		{"AnAddressWithABadHost", "listen: \"a b:80\"\n" + minimal, `f.yaml:1:9: listen: "a b:80" has no valid host`},
		{"AnOpenControlListener", "control: {listen: 0.0.0.0:8081}\n" + minimal, "f.yaml:1:19: control.listen: anyone who reaches it could claim leases: bind to 127.0.0.1 or set auth.file"},
		{"AControlListenerOnANamedHost", "control: {listen: box:8081}\n" + minimal, "f.yaml:1:19: control.listen: anyone who reaches it could claim leases: bind to 127.0.0.1 or set auth.file"},
		{"TwoListenersOnOneAddress", "listen: 0.0.0.0:8081\n" + minimal, "f.yaml:1:1: control.listen: is the same address as listen"},

		// Leases, headers, limits.
		{"MinAboveMax", "leases: {min_ttl: 2s, max_ttl: 1s}\n" + minimal, "f.yaml:1:19: leases.min_ttl: min_ttl 2s is longer than max_ttl 1s"},
		{"MaxBelowTheDefaultMin", "leases: {max_ttl: 10ms}\n" + minimal, "f.yaml:1:19: leases.max_ttl: min_ttl 1s is longer than max_ttl 10ms"},
		{"AZeroTTL", "leases: {min_ttl: 0s}\n" + minimal, "f.yaml:1:19: leases.min_ttl: 0s is too short: at least 1ms"},
		{"AHeaderThatIsNoName", "headers: {lease: \"a b\"}\n" + minimal, `f.yaml:1:18: headers.lease: "a b" is not a header name`},
		{"AHeaderWithAnUnderscore", "headers: {lease: A_B}\n" + minimal, `f.yaml:1:18: headers.lease: "A_B" has an underscore or a dot, which servers take for a dash`},
		{"AHeaderOfHTTP", "headers: {key: content-Length}\n" + minimal, `f.yaml:1:16: headers.key: "content-Length" has another meaning already`},
		{"AHopByHopHeader", "headers: {key: Proxy-Connection}\n" + minimal, `f.yaml:1:16: headers.key: "Proxy-Connection" has another meaning already`},
		{"OneHeaderForTwoThings", "headers: {key: fence-job-ID}\n" + minimal, "f.yaml:1:16: headers.key: is the same header as headers.job_id"},
		{"ALimitOfNothing", "limits: {max_in_flight_per_job: -1}\n" + minimal, "f.yaml:1:33: limits.max_in_flight_per_job: -1 admits nothing: at least 1"},
		{"ATinyHeaderLimit", "limits: {max_header: 10}\n" + minimal, "f.yaml:1:22: limits.max_header: 10 is out of range: 1KiB to 16MiB"},

		// Routes.
		{"ARouteWithoutName", "routes:\n  - upstream: http://a", "f.yaml:2:5: routes[0].name: missing: every route needs a name"},
		{"ARouteWithoutUpstream", "routes:\n  - name: a", "f.yaml:2:5: routes[0].upstream: missing: every route needs an upstream, as in http://127.0.0.1:3000"},
		{"TwoRoutesOfOneName", minimal + "  - {name: a, path: /x, upstream: http://a}", `f.yaml:4:12: routes[1].name: "a" is the name of routes[0] already`},
		{"TwoRoutesForOnePath", minimal + "  - {name: b, path: /, upstream: http://a}", "f.yaml:4:21: routes[1].path: routes[0] takes every host with the same path already"},
		{"TwoRoutesForOneHostAndPath", "routes: [{name: a, hosts: [x.org], upstream: http://a}, {name: b, hosts: [y, X.org.], upstream: http://a}]", "f.yaml:1:78: routes[1].hosts[1]: routes[0] takes this host with the same path already"},
		{"APathWithDots", "routes: [{name: a, path: /a/%2E./b, upstream: http://a}]", `f.yaml:1:26: routes[0].path: "/a/%2E./b" has a dot segment`},
		{"APathWithAQuery", "routes: [{name: a, path: /a?b, upstream: http://a}]", `f.yaml:1:26: routes[0].path: "/a?b" has a query or a fragment`},
		{"AHostWithPort", route(`hosts: ["a:80"]`), `f.yaml:4:13: routes[0].hosts[0]: "a:80": a host is written without scheme and port`},
		{"AWildcardHost", route(`hosts: ["*.a"]`), `f.yaml:4:13: routes[0].hosts[0]: "*.a" has a wildcard: name each host, or none for every host`},
		{"AnUpstreamWithAQuery", "routes: [{name: a, upstream: \"http://a/?b\"}]", "f.yaml:1:30: routes[0].upstream: has a query: the query is the request's own"},
		{"AnUpstreamWithAFragment", "routes: [{name: a, upstream: \"http://a/#b\"}]", "f.yaml:1:30: routes[0].upstream: has a fragment, which no request can carry"},
		{"AnUpstreamWithABadPort", "routes: [{name: a, upstream: \"http://a:0\"}]", "f.yaml:1:30: routes[0].upstream: has no port from 1 to 65535 after its colon"},
		{"AnUpstreamThatIsThisProxy", "routes: [{name: a, upstream: \"http://localhost:8080\"}]", "f.yaml:1:30: routes[0].upstream: is listen of this proxy: its requests would go round in a circle"},
		{"ACertificateWithoutKey", "routes: [{name: a, upstream: https://a, upstream_tls: {cert_file: a.pem}}]", "f.yaml:1:41: routes[0].upstream_tls.key_file: missing beside cert_file"},
		{"TLSToAPlainUpstream", route("upstream_tls: {ca_file: a.pem}"), "f.yaml:4:5: routes[0].upstream_tls: has no effect on an http upstream: use https"},
		{"HTTP2OverTLSToAPlainUpstream", route("upstream_protocol: h2"), "f.yaml:4:24: routes[0].upstream_protocol: h2 is HTTP/2 over TLS and the upstream is http: use h2c, or https"},
		{"PlainHTTP2ToATLSUpstream", "routes: [{name: a, upstream: https://a, upstream_protocol: h2c}]", "f.yaml:1:60: routes[0].upstream_protocol: h2c is HTTP/2 in the clear and the upstream is https: use h2, or http"},
		{"AnUnknownProtocol", route("upstream_protocol: h3"), `f.yaml:4:24: routes[0].upstream_protocol: "h3" is not one of http1, h2, h2c`},
		{
			"AWebSocketOverHTTP2", route("websocket: true\n    upstream_protocol: h2c"),
			"f.yaml:4:16: routes[0].websocket: needs upstream_protocol: http1, for only that can be upgraded",
		},
		{"ANamespaceWithAComma", route(`namespace: "a,b"`), `f.yaml:4:16: routes[0].namespace: "a,b" has more than printable ASCII, or a comma, a quote, a backslash or a blank`},
		{"AMethodThatIsNone", route(`methods: ["P T"]`), `f.yaml:4:15: routes[0].methods[0]: "P T" is not a method`},
		{"AMethodTwice", route("methods: [PUT, PUT]"), "f.yaml:4:20: routes[0].methods[1]: PUT is in the list already"},
		{"AZeroTimeout", route("timeout: 0s"), "f.yaml:4:14: routes[0].timeout: 0s is not longer than 0"},
		{"ANegativeWait", route("takeover: {wait: -1s}"), "f.yaml:4:22: routes[0].takeover.wait: -1s is negative"},
		{"AReplyThatIsTooLargeToKeep", route("idempotency: {max_reply: 1MiB}"), "f.yaml:4:30: routes[0].idempotency.max_reply: 1MiB is more than 512KiB, the largest reply that a store keeps"},
		{"AStatusThatIsNone", route("outcomes: {applied: [600]}"), "f.yaml:4:26: routes[0].outcomes.applied[0]: 600 is not a status: 100 to 599"},
		{"AStatusInTwoClasses", route("outcomes: {applied: [500], unknown: [500]}"), "f.yaml:4:42: routes[0].outcomes.unknown[0]: 500 is in the list applied already"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := faultLines(t, tt.data); strings.Join(got, "\n") != tt.want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

// Each row sets one key that is read but not built away from its default. When
// a feature is built its row moves to a test of the feature.
func TestAFeatureThatIsNotBuiltYetIsRefusedNotIgnored(t *testing.T) {
	for _, tt := range []struct{ key, data string }{
		{"store.engine", "store: {engine: postgres}\n" + minimal},
		{"store.engine", "store: {engine: etcd}\n" + minimal},
		{"store.postgres.dsn", "store: {postgres: {dsn: x}}\n" + minimal},
		{"store.etcd.endpoints", "store: {etcd: {endpoints: [x]}}\n" + minimal},
		{"store.etcd.prefix", "store: {etcd: {prefix: /x/}}\n" + minimal},
		{"store.etcd.tls.ca_file", "store: {etcd: {tls: {ca_file: x}}}\n" + minimal},
	} {
		got := faultLines(t, tt.data)
		if len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf(": %s: not supported by this version yet", tt.key)) {
			t.Errorf("%s:\n%s\ngave\n%s", tt.key, tt.data, strings.Join(got, "\n"))
		}
	}
}

func TestWhatIsBuiltIsAccepted(t *testing.T) {
	for _, data := range []string{
		"auth: {file: a}\n" + minimal,
		"auth: {file: a}\ncontrol: {listen: \":8081\"}\n" + minimal,
		route("idempotency: {key: required}"),
		route("once_per_generation: true"),
		route("idempotency: {on_duplicate: refuse, on_unknown: forward, wait: 1s, retention: 1h, max_reply: 1, store_reply: false}"),
		route("fencing: off"),
		route("upstream_protocol: h2c"),
		"routes: [{name: a, upstream: https://a, upstream_protocol: h2}]",
		route("enforcement: observe"),
		route("websocket: true"),
		route("outcomes: {applied: [409], unknown: [200]}"),
		route("hosts: [a.example, 127.0.0.1, \"[::1]\"]"),
		"listen: \":0\"\ncontrol: {listen: \"[::1]:0\"}\n" + minimal,
		"control: {listen: localhost:9000}\n" + minimal,
		"defaults:\nroutes:\n  - name: a\n    hosts:\n    upstream: https://user:pw@a:8443/base\n    upstream_tls: {ca_file: x}\n",
		"defaults: {upstream_tls: {ca_file: x}}\n" + minimal,
		"tls: {cert_file: c, key_file: k, client_ca_file: a}\ncontrol: {tls: {cert_file: c, key_file: k}}\n" + minimal,
		"%YAML 1.2\n---\n" + minimal + "...\n",
		"\ufeff" + minimal,
		strings.ReplaceAll(minimal, "\n", "\r\n"),
		`{"routes": [{"name": "json", "upstream": "http://a"}]}`,
	} {
		mustParse(t, data)
	}
}

func TestTLSNeedsBothItsFiles(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{"tls: {cert_file: c}\n" + minimal, "f.yaml:1:1: tls.key_file: missing beside cert_file"},
		{"control: {tls: {key_file: k}}\n" + minimal, "f.yaml:1:11: control.tls.cert_file: missing beside key_file"},
		{"tls: {client_ca_file: a}\n" + minimal, "f.yaml:1:23: tls.client_ca_file: needs tls.cert_file and key_file: without TLS there are no client certificates"},
	} {
		if got := strings.Join(faultLines(t, tt.data), "\n"); got != tt.want {
			t.Errorf("%s gave\n%s\nwant\n%s", tt.data, got, tt.want)
		}
	}
}

func TestAFaultFoundOutsideTheConfigurationHasThePlaceOfItsKey(t *testing.T) {
	c := mustParse(t, "tls:\n  cert_file: c\n  key_file: k\ndefaults: {upstream_tls: {ca_file: x}}\n"+minimal)
	for path, want := range map[string]string{
		"tls.cert_file":                  "f.yaml:2:14: tls.cert_file: m",
		"tls.client_ca_file":             "f.yaml:1:1: tls.client_ca_file: m",
		"routes[0].upstream_tls.ca_file": "f.yaml:4:36: defaults.upstream_tls.ca_file: m",
		"limits.max_header":              "f.yaml:1:1: limits.max_header: m",
	} {
		if got := c.FaultOf(path, "m").String(); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
