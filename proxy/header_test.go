package proxy

import (
	"crypto/tls"
	"net/http"
	"testing"
)

func TestForwardedIsWhatRFC7239Asks(t *testing.T) {
	cases := []struct {
		remote, host string
		secure       bool
		want         string
	}{
		{"192.0.2.60:4711", "api.example", false, "for=192.0.2.60;host=api.example;proto=http"},
		{"192.0.2.60:4711", "api.example:8080", true, `for=192.0.2.60;host="api.example:8080";proto=https`},
		{"[2001:db8::1]:4711", "[::1]:80", false, `for="[2001:db8::1]";host="[::1]:80";proto=http`},
		{"192.0.2.60:4711", "a,for=6.6.6.6;b", false, `for=192.0.2.60;host="a,for=6.6.6.6;b";proto=http`},
		{"192.0.2.60:4711", `a"\b`, false, `for=192.0.2.60;host="a\"\\b";proto=http`},
		{"192.0.2.60:4711", "", false, "for=192.0.2.60;proto=http"},
		{"@", "api.example", false, "for=unknown;host=api.example;proto=http"},
	}
	for _, c := range cases {
		r := &http.Request{RemoteAddr: c.remote, Host: c.host}
		if c.secure {
			r.TLS = &tls.ConnectionState{}
		}
		out := http.Header{}
		eachForwarding(r, func(name, value string) { out[name] = []string{value} })
		if got := out.Get("Forwarded"); got != c.want {
			t.Errorf("from %s to %q: got %s, want %s", c.remote, c.host, got, c.want)
		}
	}
}

func TestAForwardingHeaderIsKnownUnderEverySpelling(t *testing.T) {
	for name, want := range map[string]bool{
		"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Anything": true, "X-Real-Ip": true,
		"X_forwarded_for": true, "X.forwarded.proto": true, "X-Forwarded_for": true, "X-Real.ip": true, "X_real_ip": true,
		"X-Forward": false, "X-Forwarder": false, "X-Real-Ips": false, "X-Custom_name": false, "Not-Forwarded": false, "X": false,
	} {
		if got := forwarding(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
