package proxy

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func parse(t *testing.T, target string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil {
		t.Fatalf("parse %q: %v", target, err)
	}
	return r
}

func TestPathsReachTheUpstreamByteForByte(t *testing.T) {
	for _, target := range []string{
		"/", "/a/b", "/b/a%2Fb%20c?x=%2B&y=1;z", "/a%252Fb", "/a|b", "/a%7cb", "//a/b", "/a//b", "/a?", "/a?b?c", "/%E2%82%AC", "/a+b:c@d,e;f=g!$&'()*", "/?", "/a%5Cb",
	} {
		r := parse(t, target)
		path, query := rawTarget(r)
		u, err := outURL("http", "upstream", path, query)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if got := u.RequestURI(); got != target {
			t.Errorf("got %q, want %q", got, target)
		}
	}
}

func TestTheAbsoluteFormLosesItsAuthority(t *testing.T) {
	for target, want := range map[string]string{
		"http://other/a%2Fb?c": "/a%2Fb?c", "http://other": "/", "http://other?q": "/?q",
	} {
		path, query := rawTarget(parse(t, target))
		if path+query != want {
			t.Errorf("%s: got %q, want %q", target, path+query, want)
		}
	}
}

func TestAmbiguousTargetsAreRefused(t *testing.T) {
	for _, target := range []string{"/a/../b", "/..", "/.", "/a/.", "/a/%2e%2e/b", "/%2E%2e", "/a/..;x/b", `/a%5c..%5cb`, "/a%00b", "*"} {
		if err := checkTarget(parse(t, target)); err == nil {
			t.Errorf("%s was accepted", target)
		}
	}
	for _, target := range []string{"/a/.b", "/a/..b", "/a.b/c..d", "/a%2Fb", "/...", "/a?x=../.."} {
		if err := checkTarget(parse(t, target)); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestTheLongestPathAndTheHostDecideTheRoute(t *testing.T) {
	mk := func(name, path string, hosts ...string) *route {
		return &route{Route: Route{Name: name, Path: path, Hosts: hosts}, loose: loosely(path)}
	}
	rs := newRoutes([]*route{mk("all", "/"), mk("api", "/api"), mk("pay", "/api/pay"), mk("host", "/", "x.test"), mk("slash", "/dir/"), mk("upper", "/Big/Path")})
	for _, c := range []struct{ host, target, want string }{
		{"h", "/", "all"}, {"h", "/api", "api"}, {"h", "/api/x", "api"}, {"h", "/apis", "all"}, {"h", "/api/pay/1", "pay"},
		{"X.test:80", "/api", "host"}, {"x.test.", "/", "host"}, {"h", "/dir/x", "slash"}, {"h", "/dir", "all"},
		{"h", "/Big/Path/x", "upper"}, {"h", "/big/path", ""}, {"h", "/%61pi", ""}, {"h", "/api%2Fpay/x", ""}, {"h", "/api/a%2Fb", "api"},
	} {
		r := parse(t, c.target)
		raw, _ := rawTarget(r)
		rt, err := rs.find(c.host, r.URL.Path, raw)
		got := ""
		if rt != nil {
			got = rt.Name
		}
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s%s: got %q, %v, want %q", c.host, c.target, got, err, c.want)
		}
	}
}

func TestAStrippedPathKeepsItsSlash(t *testing.T) {
	for _, c := range []struct{ prefix, path, want string }{
		{"/api", "/api/x", "/x"}, {"/api", "/api", "/"}, {"/api/", "/api/x", "/x"}, {"/", "/x", "/x"},
	} {
		if got := strip(c.prefix, c.path); got != c.want {
			t.Errorf("strip(%q, %q) = %q, want %q", c.prefix, c.path, got, c.want)
		}
	}
}

func FuzzTargets(f *testing.F) {
	for _, s := range []string{"/a%2Fb?x", "//x", "/a/../b", "http://h/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil || checkTarget(r) != nil {
			return
		}
		path, query := rawTarget(r)
		u, err := outURL("http", "upstream", path, query)
		if err != nil {
			return
		}
		got := u.RequestURI()
		if got != path+query {
			t.Fatalf("%q goes out as %q", path+query, got)
		}
		if back, err := url.ParseRequestURI(got); err != nil || dotSegments(back.Path) {
			t.Fatalf("%q goes out as %q, which has dot segments or does not parse: %v", target, got, err)
		}
	})
}
