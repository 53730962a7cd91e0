package config

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const redacted = "REDACTED"

// Redacted returns the configuration in effect as YAML, every key included,
// with secrets replaced: the password in store.postgres.dsn, user and password
// in the URLs of upstreams and etcd members. Without secrets it reads back as
// the same configuration. The error is always nil today.
func (c *Config) Redacted() ([]byte, error) {
	var b strings.Builder
	renderBlock(&b, reflect.ValueOf(c).Elem(), "")
	return []byte(b.String()), nil
}

// renderBlock writes the keys of a struct, each on lines that begin with indent.
func renderBlock(b *strings.Builder, block reflect.Value, indent string) {
	for _, f := range fields(block.Type()) {
		v := block.FieldByIndex(f.index)
		b.WriteString(indent + f.key + ":")
		switch {
		case isBlock(f.typ):
			b.WriteByte('\n')
			renderBlock(b, v, indent+"  ")
		case isBlockList(f.typ):
			renderBlocks(b, v, indent)
		case f.typ.Kind() == reflect.Slice:
			texts := make([]string, v.Len())
			for i := range texts {
				texts[i] = renderScalar(v.Index(i), f.secret)
			}
			b.WriteString(" [" + strings.Join(texts, ", ") + "]\n")
		default:
			b.WriteString(" " + renderScalar(v, f.secret) + "\n")
		}
	}
}

// renderBlocks writes a list of blocks, the dash before the first key of each.
func renderBlocks(b *strings.Builder, list reflect.Value, indent string) {
	if list.Len() == 0 {
		b.WriteString(" []\n")
		return
	}
	b.WriteByte('\n')
	for i := range list.Len() {
		var inner strings.Builder
		renderBlock(&inner, list.Index(i), indent+"    ")
		b.WriteString(indent + "  - " + strings.TrimPrefix(inner.String(), indent+"    "))
	}
}

func renderScalar(v reflect.Value, secret string) string {
	switch {
	case isDuration(v.Type()):
		return formatDuration(time.Duration(v.Int()))
	case isSize(v.Type()):
		return Size(v.Int()).String()
	case v.Kind() == reflect.String:
		return quote(redact(v.String(), secret))
	}
	return fmt.Sprint(v.Interface())
}

// quote puts text into quotes unless it is plainly text to any YAML reader.
// Everything beyond ASCII is escaped, so no reader can take it for a break.
func quote(text string) string {
	plain := regexp.MustCompile(`^[A-Za-z./][A-Za-z0-9./_-]*(:[A-Za-z0-9./_-]+)*$|^[0-9]+(\.[0-9]+){3}:[0-9]+$`)
	// "off" and "no" are text, and written bare in every sample, but "true"
	// and "null" are not; ".5" and ".inf" are numbers.
	switch strings.ToLower(text) {
	case "true", "false", "null":
		return strconv.Quote(text)
	}
	if plain.MatchString(text) && (text[0] != '.' || strings.HasPrefix(text, "./")) {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// redact removes what is secret from a value. What it cannot read it replaces
// as a whole.
func redact(text, secret string) string {
	switch secret {
	case "userinfo":
		u, err := url.Parse(text)
		switch {
		case err != nil || (u.Host == "" && strings.Contains(text, "@")):
			return redacted
		case u.User == nil:
			return text
		}
		u.User = url.User(redacted)
		return u.String()
	case "dsn":
		return redactDSN(text)
	}
	return text
}

// redactDSN removes the passwords from a PostgreSQL connection string, which is
// a URL or a list of key=value pairs.
// https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING
func redactDSN(dsn string) string {
	if dsn == "" {
		return ""
	}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return redacted
		}
		if _, has := u.User.Password(); has {
			u.User = url.UserPassword(u.User.Username(), redacted)
		}
		query := u.Query()
		for key := range query {
			if strings.Contains(strings.ToLower(key), "password") {
				query.Set(key, redacted)
			}
		}
		if len(query) > 0 {
			u.RawQuery = query.Encode()
		}
		return u.String()
	}
	pairs := regexp.MustCompile(`^\s*(\w+\s*=\s*('(\\.|[^'\\])*'|(\\.|[^\s'\\])*)\s*)+$`)
	if !pairs.MatchString(dsn) {
		return redacted
	}
	password := regexp.MustCompile(`(?i)(\w*password\s*=\s*)('(\\.|[^'\\])*'|(\\.|[^\s'\\])*)`)
	return password.ReplaceAllString(dsn, "${1}"+redacted)
}
