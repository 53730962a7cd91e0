package telemetry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// ParseLevel reads debug, info, warn or error; anything else is an error.
func ParseLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("read log level %q: want debug, info, warn or error", name)
}

// NewLogger returns a logger that writes one line per record to w. level may be a *slog.LevelVar, which changes what is
// logged from then on; format is json or text, anything else is an error. Times are RFC 3339 in UTC, down to the nanosecond.
//
// Values of attributes that are named like a secret (lease_id, authorization, token and the like) are blanked. It is a
// last line of defence against a careless call, not a licence: secrets inside messages or structs are not found.
func NewLogger(w io.Writer, level slog.Leveler, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: replace}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("read log format %q: want json or text", format)
	}
}

// HashKey returns the first 12 hex digits of the key's SHA-256: enough to find the lines of one idempotency key, too
// little to hand it on.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

func replace(groups []string, a slog.Attr) slog.Attr {
	// The text handler would otherwise print local time in milliseconds.
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.String(slog.TimeKey, a.Value.Time().UTC().Format(time.RFC3339Nano))
	}
	if secret(a.Key) {
		return slog.String(a.Key, "[redacted]")
	}
	return a
}

// secret knows the names under which credentials travel in the API, its headers and the configuration. A claim_id is one:
// whoever repeats it is given the lease.
func secret(name string) bool {
	switch strings.ToLower(name) {
	case "lease", "lease_id", "fence-lease", "claim_id", "idempotency_key", "idempotency-key",
		"authorization", "proxy-authorization", "cookie", "set-cookie", "token", "password", "dsn":
		return true
	}
	return false
}
