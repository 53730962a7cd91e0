package proxy

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// field is one header line, as it was on the wire.
type field struct{ name, value string }

// message is a request or a reply, read from a socket without net/http, which would put in order what the tests are about.
type message struct {
	first    string // the request line or the status line
	fields   []field
	length   string // as announced: "none", "unknown", or a number of bytes
	body     []byte
	trailers []field
	broken   bool // the connection ended before the message did
	closed   bool // the body ended with the connection, as it may
}

// get returns all values of a header, joined.
func (m *message) get(name string) string {
	var all []string
	for _, f := range m.fields {
		if strings.EqualFold(f.name, name) {
			all = append(all, f.value)
		}
	}
	return strings.Join(all, ", ")
}

// readHead reads a first line and header lines.
func readHead(in *bufio.Reader) (*message, error) {
	first, err := readLine(in)
	if err != nil {
		return nil, err
	}
	m := &message{first: first, length: "none"}
	m.fields, err = readFields(in)
	return m, err
}

func readFields(in *bufio.Reader) (out []field, _ error) {
	for {
		line, err := readLine(in)
		if err != nil || line == "" {
			return out, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return out, fmt.Errorf("a header line without a colon: %q", line)
		}
		out = append(out, field{name, strings.Trim(value, " \t")})
	}
}

func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}

// frame reads what the head says of the length. untilClose tells that a body without one ends with the connection.
func (m *message) frame(untilClose bool) {
	switch {
	case strings.EqualFold(m.get("Transfer-Encoding"), "chunked"):
		m.length = "unknown"
	case m.get("Content-Length") != "":
		m.length = m.get("Content-Length")
	case untilClose:
		m.length, m.closed = "unknown", true
	}
}

// readBody reads the body and tells each piece to see, which may be nil.
func (m *message) readBody(in *bufio.Reader, see func(piece string)) {
	take := func(n int64) error {
		piece := make([]byte, 16<<10)
		for n != 0 {
			max := int64(len(piece))
			if n > 0 {
				max = min(max, n)
			}
			k, err := in.Read(piece[:max])
			m.body = append(m.body, piece[:k]...)
			if see != nil && k > 0 {
				see(string(piece[:k]))
			}
			if n > 0 {
				n -= int64(k)
			}
			if err != nil && n != 0 {
				return err
			}
		}
		return nil
	}
	var err error
	switch {
	case m.closed:
		if err = take(-1); errors.Is(err, io.EOF) {
			err = nil
		}
	case m.length == "unknown":
		err = m.readChunks(in, take)
	case m.length != "none":
		var n int64
		if n, err = strconv.ParseInt(m.length, 10, 64); err == nil {
			err = take(n)
		}
	}
	m.broken = err != nil
}

func (m *message) readChunks(in *bufio.Reader, take func(int64) error) error {
	for {
		line, err := readLine(in)
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 64)
		if err != nil {
			return err
		}
		if n == 0 {
			m.trailers, err = readFields(in)
			return err
		}
		if err := take(n); err != nil {
			return err
		}
		if _, err := readLine(in); err != nil {
			return err
		}
	}
}

// lines is the canonical text of the message: without its version, with its headers in the order of their names (those
// of one name in the order in which they came), and without what belongs to one hop and counts for nothing else.
func (m *message) lines(mark string, skip func(field) bool) []string {
	out := []string{mark + " " + m.first}
	fields := joined(slices.Clone(m.fields), "Trailer")
	slices.SortStableFunc(fields, func(a, b field) int { return strings.Compare(canonical(a.name), canonical(b.name)) })
	for _, f := range fields {
		switch canonical(f.name) {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Content-Length":
			continue
		case "Trailer":
			names := strings.FieldsFunc(f.value, func(r rune) bool { return r == ',' || r == ' ' })
			slices.Sort(names)
			f.value = strings.Join(names, ", ")
		}
		if !skip(f) {
			out = append(out, mark+" "+canonical(f.name)+": "+shortly(f.value))
		}
	}
	out = append(out, mark+" length: "+m.length)
	switch {
	case m.broken:
		out = append(out, fmt.Sprintf("%s body: broken off, %s", mark, shortly(string(m.body))))
	case len(m.body) > 0:
		out = append(out, mark+" body: "+shortly(string(m.body)))
	}
	slices.SortStableFunc(m.trailers, func(a, b field) int { return strings.Compare(canonical(a.name), canonical(b.name)) })
	for _, f := range m.trailers {
		out = append(out, mark+" trailer "+canonical(f.name)+": "+shortly(f.value))
	}
	return out
}

// joined makes one line of the lines of a list.
func joined(fields []field, name string) []field {
	first := -1
	return slices.DeleteFunc(fields, func(f field) bool {
		if canonical(f.name) != name {
			return false
		}
		if first < 0 {
			first = slices.IndexFunc(fields, func(f field) bool { return canonical(f.name) == name })
			return false
		}
		fields[first].value += "," + f.value
		return true
	})
}

func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// shortly shows a text, or what tells it from others if it is long or no text.
func shortly(s string) string {
	if len(s) <= 120 && utf8.ValidString(s) {
		return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(s)
	}
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("(%d bytes, sha256 %x…)", len(s), sum[:6])
}
