package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// syntax makes the error of a JSON reader one that names the field.
func syntax(path string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &FieldError{Field: path, Reason: "is not valid JSON: it ends too early"}
	}
	return &FieldError{Field: path, Reason: "is not valid JSON: " + err.Error()}
}

// after is syntax for a fault that was met behind a field, as in 30s or 030: it names
// that field, because its value is what people mistype.
func after(path, last string, err error) error {
	if last == "" || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return syntax(path, err)
	}
	return &FieldError{Field: last, Reason: "is followed by what is not valid JSON: " + err.Error()}
}

// fieldNamed returns the index of the field with that JSON name, or -1.
func fieldNamed(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if jsonName(t.Field(i)) == name {
			return i
		}
	}
	return -1
}

func names(t reflect.Type) []string {
	all := make([]string, t.NumField())
	for i := range all {
		all[i] = jsonName(t.Field(i))
	}
	return all
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// describe names the type of a value that begins with the token.
func describe(token json.Token) string {
	switch t := token.(type) {
	case nil:
		return "null"
	case json.Delim:
		return "an array"
	case string:
		return "a string"
	case bool:
		return strconv.FormatBool(t)
	default:
		return "a number"
	}
}

// show returns a value for a message, short enough for any input.
func show(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return clip(string(raw))
}

func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// depth returns how deeply valid JSON is nested.
func depth(raw json.RawMessage) int {
	now, most, inString := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			most = max(most, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// halfSurrogate reports whether a valid JSON string has a \u escape from D800 to DFFF
// that is no part of a pair. encoding/json would replace it, and two names would
// become one.
func halfSurrogate(raw json.RawMessage) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		r, ok := escaped(raw[i:])
		switch {
		case !ok:
			i++ // a short escape, such as \\ or \n
		case r >= 0xdc00 && r <= 0xdfff:
			return true
		case r >= 0xd800 && r < 0xdc00:
			low, ok := escaped(raw[i+6:])
			if !ok || low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		default:
			i += 5
		}
	}
	return false
}

// escaped reads a \uXXXX at the start of b.
func escaped(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return r, err == nil
}

// CheckText returns why s can not be a name or a reason of at most most bytes, as a
// clause that follows the field's name; empty if it can. Control characters are
// refused because names end in logs and on terminals.
func CheckText(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(s), most)
	}
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for i, r := range s {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return fmt.Sprintf("has a control character (%q) at byte %d; remove it", r, i+1)
		}
	}
	return ""
}
