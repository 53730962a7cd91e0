package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// headBuffers are what requests are composed in.
var headBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 2*smallBody); return &b }}

// compose appends the whole request to b.
func compose(b []byte, req *http.Request, s *Send) ([]byte, error) {
	body := s.Body
	b = append(b, req.Method...)
	b = append(b, ' ')
	b = append(b, req.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, req.Host...)
	b = append(b, "\r\n"...)
	if s.Fields != nil {
		var err error
		if b, err = s.Fields.AppendFields(b); err != nil {
			return b, err
		}
	}
	for name, values := range req.Header {
		var err error
		if b, err = appendFields(b, name, values); err != nil {
			return b, err
		}
	}
	if len(body) > 0 || req.TransferEncoding != nil || req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, body...), nil
}

// appendFields appends the lines of a header, unless the sender makes them itself or they
// are not for this hop.
func appendFields(b []byte, name string, values []string) ([]byte, error) {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
		return b, nil
	case "User-Agent":
		if values[0] == "" {
			return b, nil
		}
	}
	for _, v := range values {
		var err error
		if b, err = appendField(b, name, v); err != nil {
			return b, err
		}
	}
	return b, nil
}

func appendField(b []byte, name, value string) ([]byte, error) {
	if lineBreak(value) || lineBreak(name) || strings.IndexByte(name, ':') >= 0 {
		return b, errNewline
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...), nil
}

func lineBreak(s string) bool {
	return strings.IndexByte(s, '\n') >= 0 || strings.IndexByte(s, '\r') >= 0
}
