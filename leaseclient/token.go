package leaseclient

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxToken bounds what is read as a token, in bytes.
const maxToken = 8 << 10

// TokenFile returns a function for Config.TokenSource that reads a bearer token from a file, anew for each call: a token
// that is replaced there (by a rename, so that nobody reads half of it) is used from then on. White space around it
// counts for nothing. The errors name the file and never hold what is in it.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		raw, err := io.ReadAll(io.LimitReader(f, maxToken+1))
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		token := strings.TrimSpace(string(raw))
		if token == "" {
			return "", fmt.Errorf("read token: %s is empty", path)
		}
		if why := checkToken(token); why != "" {
			return "", fmt.Errorf("read token: %s %s", path, why)
		}
		return token, nil
	}
}

// checkToken says what keeps a text from being a token in a header, without showing it.
func checkToken(token string) string {
	if len(token) > maxToken {
		return fmt.Sprintf("has more than %d bytes", maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "has blanks or characters that no token has (RFC 6750, section 2.1)"
	}
	return ""
}
