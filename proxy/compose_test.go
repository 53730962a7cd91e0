package proxy

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// appender appends the header of a request as an exchange does.
type appender struct {
	p  *Proxy
	rt *route
	r  *http.Request
}

// AppendFields makes it a Send's Fields.
func (a appender) AppendFields(b []byte) ([]byte, error) {
	return a.p.appendHeader(b, a.rt, a.r, false)
}

func TestAHeadHasTheSameLinesWithAndWithoutAMap(t *testing.T) {
	p := &Proxy{fences: newFenceReader(DefaultHeaders())}
	base := func(more http.Header) http.Header {
		h := http.Header{
			"Fence-Job-Id": {"a"}, "Fence-Generation": {"7"}, "Idempotency-Key": {"k"}, "Content-Length": {"3"},
			"Content-Type": {"a/b"}, "X-Many": {"1", "2", ""}, "X-Forwarded-For": {"6.6.6.6"}, "Forwarded": {"for=6.6.6.6"},
			"Expect": {"100-continue"}, "User-Agent": {"curl"},
		}
		for name, values := range more {
			if h[name] = values; values == nil {
				delete(h, name)
			}
		}
		return h
	}
	for name, c := range map[string]struct {
		rt   Route
		h    http.Header
		host string
		tls  bool
	}{
		"as it is":        {h: base(nil), host: "api.example"},
		"fence forwarded": {rt: Route{ForwardFence: true}, h: base(nil), host: "api.example:80"},
		"listed":          {h: base(http.Header{"Connection": {"close, X-Many"}, "Keep-Alive": {"1"}}), host: "api.example"},
		"trailers":        {h: base(http.Header{"Te": {"gzip, trailers"}}), host: "api.example", tls: true},
		"other te":        {h: base(http.Header{"Te": {"gzip"}}), host: "[::1]:80"},
		"no agent":        {h: base(http.Header{"User-Agent": nil}), host: ""},
		"empty agent":     {h: base(http.Header{"User-Agent": {""}}), host: "api.example"},
	} {
		r := &http.Request{Method: http.MethodPost, Host: c.host, RemoteAddr: "192.0.2.60:4711", Header: c.h}
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		rt := &route{Route: c.rt}
		req := &http.Request{Method: r.Method, URL: &url.URL{Opaque: "/charge"}, Host: "upstream", Header: p.outHeader(rt, r, false)}
		with, err := compose(nil, req, &Send{Body: []byte("abc")})
		if err != nil {
			t.Fatal(err)
		}
		req.Header = nil
		without, err := compose(nil, req, &Send{Body: []byte("abc"), Fields: appender{p, rt, r}})
		if err != nil {
			t.Fatal(err)
		}
		a, b := strings.Split(string(with), "\r\n"), strings.Split(string(without), "\r\n")
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			t.Errorf("%s: with a map\n%s\nwithout\n%s", name, with, without)
		}
		if !strings.HasSuffix(string(without), "\r\nContent-Length: 3\r\n\r\nabc") {
			t.Errorf("%s: it ends wrongly:\n%s", name, without)
		}
	}
}

func TestNoHeaderLineEndsBeforeItsEnd(t *testing.T) {
	p := &Proxy{fences: newFenceReader(DefaultHeaders())}
	for _, h := range []http.Header{{"A": {"b\r\nX: y"}}, {"A": {"1", "b\nX: y"}}, {"A\nX": {"y"}}, {"A: b\r": {"y"}}, {"A:b": {"y"}}} {
		req := &http.Request{Method: http.MethodPost, URL: &url.URL{Opaque: "/"}, Host: "upstream", Header: h}
		if b, err := compose(nil, req, &Send{}); !errors.Is(err, errNewline) {
			t.Errorf("%q with a map: got %q and %v", h, b, err)
		}
		from := &http.Request{Method: http.MethodPost, Header: h}
		req.Header = nil
		if b, err := compose(nil, req, &Send{Fields: appender{p, &route{}, from}}); !errors.Is(err, errNewline) {
			t.Errorf("%q without: got %q and %v", h, b, err)
		}
	}
	// The server lets no such Host in either.
	from := &http.Request{Method: http.MethodPost, Host: "a\r\nX: y", Header: http.Header{}}
	if b, err := p.appendHeader(nil, &route{}, from, false); !errors.Is(err, errNewline) {
		t.Errorf("host: got %q and %v", b, err)
	}
}
