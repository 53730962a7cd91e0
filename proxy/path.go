package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// checkTarget refuses request targets that two servers may understand differently.
func checkTarget(r *http.Request) error {
	absolute := (r.URL.Scheme == "http" || r.URL.Scheme == "https") && r.URL.Host != "" && r.URL.Opaque == ""
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.RequestURI, "/") && !absolute {
		return errPathForm
	}
	if strings.IndexByte(r.URL.Path, 0) >= 0 {
		return errPathNUL
	}
	if dotSegments(r.URL.Path) {
		return errPathDots
	}
	return nil
}

// dotSegments reports whether a decoded path has a segment that is . or .., also when
// it is set off by a backslash or followed by parameters, as some servers read it.
func dotSegments(path string) bool {
	if !strings.Contains(path, ".") {
		return false
	}
	for seg := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		seg, _, _ = strings.Cut(seg, ";")
		if seg == "." || seg == ".." {
			return true
		}
	}
	return false
}

// rawTarget returns the path and the query of the request target byte for byte.
func rawTarget(r *http.Request) (path, query string) {
	t := r.RequestURI
	if !strings.HasPrefix(t, "/") {
		// The absolute form (RFC 9112, section 3.2.2).
		_, rest, _ := strings.Cut(t, "://")
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			return "/", ""
		}
		if t = rest[i:]; t[0] == '?' {
			t = "/" + t
		}
	}
	path, query, found := strings.Cut(t, "?")
	if found {
		query = "?" + query
	}
	return path, query
}

// outURL is the URL that makes net/http send exactly path and query to the upstream.
func outURL(scheme, host, path, query string) (*url.URL, error) {
	u := &url.URL{Scheme: scheme, Host: host}
	if query != "" {
		u.RawQuery, u.ForceQuery = query[1:], len(query) == 1
	}
	if !strings.HasPrefix(path, "//") {
		// Opaque is sent as it is, also where its bytes are not what
		// URL.EscapedPath would make of them.
		u.Opaque = path
		return u, nil
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return nil, errPathBytes
	}
	u.Path, u.RawPath = decoded, path
	if u.EscapedPath() != path {
		return nil, errPathBytes
	}
	return u, nil
}
