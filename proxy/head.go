package proxy

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// readPlainHead reads a reply's head if it is a plain one: it is buffered whole, says
// HTTP/1.1, a final status and one Content-Length, and nothing in it changes how the
// message is framed or what becomes of its connection. So are nearly all replies to
// writes, and this costs a third of http.ReadResponse. What it takes it reads exactly as
// that does, except that Body is not set; of anything else it reads nothing, returns nil
// and leaves the judgement to net/http.
func readPlainHead(br *bufio.Reader, req *http.Request) *http.Response {
	if req.Method == http.MethodHead {
		return nil
	}
	buf, _ := br.Peek(br.Buffered()) // what is buffered can be looked at
	end := bytes.Index(buf, []byte("\r\n\r\n"))
	const version = "HTTP/1.1 "
	if end < len(version)+3 || string(buf[:len(version)]) != version {
		return nil
	}
	head := string(buf[:end+2])
	line, rest, _ := strings.Cut(head, "\r\n")
	status := line[len(version):]
	code, ok := parseDigits(status[:min(3, len(status))])
	if !ok || code < 200 || code == http.StatusNoContent || code == http.StatusNotModified ||
		len(status) > 3 && status[3] != ' ' || !plainText(status) {
		return nil
	}
	h, length := parsePlainFields(rest)
	if h == nil {
		return nil
	}
	_, _ = br.Discard(end + 4) // it is buffered
	return &http.Response{
		Status: status, StatusCode: int(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, ContentLength: length, Request: req,
	}
}

// parsePlainFields parses lines that each end with CRLF. Nil means that the head is not
// a plain one.
func parsePlainFields(lines string) (_ http.Header, length int64) {
	n := strings.Count(lines, "\n")
	h, values := make(http.Header, n), make([]string, 0, n)
	length = -1
	for lines != "" {
		var line string
		line, lines, _ = strings.Cut(lines, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if value = strings.Trim(value, " \t"); !ok || !isToken(name) || !plainText(value) {
			return nil, 0
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch name {
		case "Connection", "Transfer-Encoding", "Trailer", "Pragma":
			return nil, 0 // these are net/http's to understand
		case "Content-Length":
			if length >= 0 {
				return nil, 0
			}
			if length, ok = parseDigits(value); !ok {
				return nil, 0
			}
		}
		if had := h[name]; had != nil {
			h[name] = append(had, value)
			continue
		}
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if length < 0 {
		return nil, 0
	}
	return h, length
}

// parseDigits parses 1 to 18 decimal digits.
func parseDigits(s string) (n int64, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, 0 < len(s) && len(s) <= 18
}

// plainText reports whether s has no control characters, tabs apart (RFC 9110, section
// 5.5).
func plainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
