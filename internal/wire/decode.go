package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deeply a value of any JSON may be nested. Readers with less stack
// than ours have to read it back.
const maxDepth = 64

// ErrTooLarge is returned by Decode when the body is longer than the limit.
var ErrTooLarge = errors.New("request body too large")

// FieldError says what is wrong with a request body.
type FieldError struct {
	// Field is the path of the field, as in "leases[3].ttl_ms"; empty if the
	// body as a whole is meant.
	Field string
	// Reason is a clause that follows the field's name or "the body".
	Reason string
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return "the body " + e.Reason
	}
	return e.Field + " " + e.Reason
}

// Decode reads one JSON object of at most limit bytes into v, a pointer to a struct of
// this package. It is stricter than encoding/json where leniency hides a mistake that
// costs a lease: names are compared by case, an unknown or repeated name, a value of
// another type, a missing or null required field and anything after the object are
// errors. Text that would not survive the way (invalid UTF-8, half a surrogate pair)
// is one too (RFC 8259, sections 8.1 and 8.2).
//
// The error is a *FieldError, ErrTooLarge, or what r returned. v is then undefined.
func Decode(r io.Reader, limit int64, v any) error {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if int64(len(body)) > limit {
		return ErrTooLarge
	}
	if !utf8.Valid(body) {
		return &FieldError{Reason: "is not valid UTF-8"}
	}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return &FieldError{Reason: "is empty; a JSON object is wanted"}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := object(dec, reflect.ValueOf(v).Elem(), ""); err != nil {
		return err
	}
	if rest := bytes.TrimLeft(body[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return &FieldError{Reason: fmt.Sprintf("goes on after the object, with %q", clip(string(rest)))}
	}
	return nil
}

// object reads one object into the struct s.
func object(dec *json.Decoder, s reflect.Value, path string) error {
	open, err := dec.Token()
	if err != nil {
		return syntax(path, err)
	}
	if open != json.Delim('{') {
		return &FieldError{Field: path, Reason: "must be a JSON object, not " + describe(open)}
	}
	seen := make([]bool, s.NumField())
	last := "" // the field that was read last
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return after(path, last, err)
		}
		name, ok := token.(string)
		if !ok {
			return &FieldError{Field: path, Reason: "is not valid JSON"}
		}
		i := fieldNamed(s.Type(), name)
		at := join(path, clip(name))
		last = at
		if i < 0 {
			return &FieldError{Field: at, Reason: "is not a known field; known are " + strings.Join(names(s.Type()), ", ")}
		}
		if seen[i] {
			return &FieldError{Field: at, Reason: "is given twice"}
		}
		seen[i] = true
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return syntax(at, err)
		}
		if err := value(raw, s.Field(i), s.Type().Field(i).Tag.Get("wire"), at); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return after(path, last, err)
	}
	for i := range seen {
		if f := s.Type().Field(i); !seen[i] && f.Tag.Get("wire") == "required" {
			return &FieldError{Field: join(path, jsonName(f)), Reason: "is required and missing"}
		}
	}
	return nil
}

// value reads raw, one whole JSON value, into f.
func value(raw json.RawMessage, f reflect.Value, tag, path string) error {
	if f.Type() == reflect.TypeFor[json.RawMessage]() {
		if depth(raw) > maxDepth {
			return &FieldError{Field: path, Reason: fmt.Sprintf("is nested more than %d deep", maxDepth)}
		}
		f.SetBytes(bytes.Clone(raw))
		return nil
	}
	if string(raw) == "null" {
		if tag == "required" {
			return &FieldError{Field: path, Reason: "is required and null"}
		}
		return nil
	}
	if f.Kind() == reflect.Pointer {
		f.Set(reflect.New(f.Type().Elem()))
		f = f.Elem()
	}
	var err error
	switch f.Kind() {
	case reflect.String:
		err = text(raw, f, path)
	case reflect.Bool:
		if json.Unmarshal(raw, f.Addr().Interface()) != nil {
			err = &FieldError{Field: path, Reason: "must be true or false, not " + show(raw)}
		}
	case reflect.Int64, reflect.Uint64:
		err = whole(raw, f, path)
	case reflect.Struct:
		return object(json.NewDecoder(bytes.NewReader(raw)), f, path)
	case reflect.Slice:
		return array(raw, f, path)
	default:
		panic("wire: no way to decode a " + f.Type().String())
	}
	if err == nil && tag == "nonzero" && f.IsZero() {
		err = &FieldError{Field: path, Reason: "is " + show(raw) + "; give a value or leave the field out"}
	}
	return err
}

func array(raw json.RawMessage, f reflect.Value, path string) error {
	if raw[0] != '[' {
		return &FieldError{Field: path, Reason: "must be an array, not " + show(raw)}
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return syntax(path, err)
	}
	f.Set(reflect.MakeSlice(f.Type(), len(parts), len(parts)))
	for i, part := range parts {
		if err := value(part, f.Index(i), "required", fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func text(raw json.RawMessage, f reflect.Value, path string) error {
	if raw[0] != '"' {
		return &FieldError{Field: path, Reason: "must be a string, not " + show(raw)}
	}
	if halfSurrogate(raw) {
		return &FieldError{Field: path, Reason: `holds a \u escape that is half of a surrogate pair`}
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return syntax(path, err)
	}
	f.SetString(s)
	return nil
}

// whole takes plain decimal integers only: 1.0 and 1e3 are numbers, but whoever sends
// them computes in floats, and 2^53+1 would become 2^53 on the way.
func whole(raw json.RawMessage, f reflect.Value, path string) error {
	s := string(raw)
	if c := s[0]; c != '-' && (c < '0' || c > '9') {
		return &FieldError{Field: path, Reason: "must be a whole number, not " + show(raw)}
	}
	if strings.ContainsAny(s, ".eE") {
		return &FieldError{Field: path, Reason: "is " + show(raw) + ", which is not written as a whole number"}
	}
	if f.Kind() == reflect.Uint64 {
		if s[0] == '-' {
			return &FieldError{Field: path, Reason: "is " + show(raw) + "; it can not be negative"}
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return &FieldError{Field: path, Reason: "is " + show(raw) + ", which is too large"}
		}
		f.SetUint(n)
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return &FieldError{Field: path, Reason: "is " + show(raw) + ", which is out of range"}
	}
	f.SetInt(n)
	return nil
}
