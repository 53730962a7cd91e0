package proxy

import (
	"net/http"
	"strconv"
	"strings"
)

// checkArrival refuses what net/http takes and what would not reach an HTTP/1.1 upstream as the
// same request. Framing has been judged for HTTP/1; a stream of HTTP/2 says the same things in
// fields of its own, which may hold blanks, and may contradict each other (RFC 9113, sections 8.1.1
// and 8.3.1). It leaves one name of the host, Request.Host.
func checkArrival(r *http.Request) error {
	if !isToken(r.Method) {
		return errMethodToken
	}
	for i := range len(r.RequestURI) {
		if c := r.RequestURI[i]; c <= ' ' || c == 0x7f {
			return errTargetBytes
		}
	}
	if r.URL.User != nil {
		return errUserinfo
	}
	if !isHost(r.Host) {
		return errHostBytes
	}
	if e := r.Header["Expect"]; len(e) > 1 || len(e) == 1 && !strings.EqualFold(e[0], "100-continue") {
		return errExpect
	}
	if r.ProtoMajor < 2 {
		return nil
	}
	if r.Method != http.MethodConnect && !strings.HasPrefix(r.RequestURI, "/") {
		return errTargetPath
	}
	if r.Host == "" {
		return errNoHost
	}
	for _, host := range r.Header["Host"] {
		if !strings.EqualFold(host, r.Host) {
			return errTwoHosts
		}
	}
	delete(r.Header, "Host") // as on HTTP/1, where r.Host is all there is
	for name := range r.Header {
		if as := undisguised(name); as != name && (as == "Content-Length" || as == "Transfer-Encoding") {
			return errLengthAlias
		}
	}
	if cl := r.Header["Content-Length"]; len(cl) > 1 || len(cl) == 1 && cl[0] != strconv.FormatInt(r.ContentLength, 10) {
		return errLengthHeader
	}
	return nil
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isHost reports whether every byte of s may stand in a host and port (RFC 3986, section 3.2).
func isHost(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && strings.IndexByte("-._~!$&'()*+,;=:[]%", c) < 0 {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}
