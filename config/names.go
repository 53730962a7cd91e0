package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The functions named ...Problem return what is wrong with a text, or "".

// address is a listener's host:port.
type address struct {
	host string
	port int
}

func parseAddress(text string) (address, string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, fmt.Sprintf("%q is not an address: write host:port, as in 127.0.0.1:8080", text)
	}
	if !isPort(port, 0) {
		return address{}, fmt.Sprintf("%q has no port from 0 to 65535", text)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !isHostName(host) {
		return address{}, fmt.Sprintf("%q has no valid host", text)
	}
	number, _ := strconv.Atoi(port) // isPort
	return address{host: host, port: number}, ""
}

// isPort says whether text is a decimal port number of at least least.
func isPort(text string, least int) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && int(n) >= least
}

// isLoopback says whether only this machine can reach the address. A name other
// than localhost could come to mean anything.
func (a address) isLoopback() bool {
	if strings.EqualFold(a.host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.Unmap().IsLoopback()
}

// isEvery says whether the address is every interface.
func (a address) isEvery() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || (err == nil && ip.Unmap().IsUnspecified())
}

func isHostName(text string) bool {
	return len(text) <= 253 && regexp.MustCompile(`^([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?$`).MatchString(text)
}

// hostProblem judges a host that a route answers.
func hostProblem(host string) string {
	if isHostName(host) {
		return ""
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(bare); err == nil {
		return ""
	}
	switch {
	case strings.Contains(host, "*"):
		return fmt.Sprintf("%q has a wildcard: name each host, or none for every host", host)
	case strings.Contains(host, ":"):
		return fmt.Sprintf("%q: a host is written without scheme and port", host)
	}
	return fmt.Sprintf("%q is not a host name", host)
}

// pathProblem judges a path prefix. It is compared byte for byte with requests,
// of which those with dot segments are refused.
func pathProblem(path string) string {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Sprintf("%q does not begin with /", path)
	case strings.ContainsAny(path, "?#"):
		return fmt.Sprintf("%q has a query or a fragment", path)
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Sprintf("%q has characters that a request percent-encodes", path)
	}
	plain := strings.NewReplacer("%2e", ".", "%2E", ".").Replace(path)
	for segment := range strings.SplitSeq(plain, "/") {
		if segment == "." || segment == ".." {
			return fmt.Sprintf("%q has a dot segment", path)
		}
	}
	return ""
}

// namespaceProblem judges a namespace: written like a job id, or empty.
func namespaceProblem(namespace string) string {
	if len(namespace) > 256 {
		return "is longer than 256 bytes"
	}
	if strings.ContainsFunc(namespace, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`,"\`, r) }) {
		return fmt.Sprintf("%q has more than printable ASCII, or a comma, a quote, a backslash or a blank", namespace)
	}
	return ""
}

// isToken says whether text is a token of RFC 9110, section 5.6.2.
func isToken(text string) bool {
	return regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$").MatchString(text)
}

// headerProblem judges the name of a header that carries the fence.
func headerProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case !isToken(name):
		return fmt.Sprintf("%q is not a header name", name)
	case strings.ContainsAny(name, "_."):
		return fmt.Sprintf("%q has an underscore or a dot, which servers take for a dash", name)
	case slices.Contains(reservedHeaders(), strings.ToLower(name)), strings.HasPrefix(strings.ToLower(name), "proxy-"):
		return fmt.Sprintf("%q has another meaning already", name)
	}
	return ""
}

// reservedHeaders are the headers that the connection, the request or the
// proxy's own answers need: hop-by-hop fields and framing (RFC 9110 section
// 7.6.1, RFC 9112), credentials, trace context, and the Fence-* of replies.
func reservedHeaders() []string {
	return []string{
		"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
		"host", "content-length", "content-type", "content-encoding", "content-range", "expect", "date", "via",
		"accept", "accept-encoding", "range", "if-match", "if-none-match", "if-modified-since",
		"if-unmodified-since", "if-range", "authorization", "cookie", "set-cookie", "location", "retry-after",
		"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
		"traceparent", "tracestate", "baggage", "user-agent", "origin", "referer",
		"fence-decision", "fence-reason", "fence-outcome", "fence-would-refuse", "idempotent-replayed",
	}
}
