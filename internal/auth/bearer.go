package auth

import "strings"

// BearerToken returns the token in the values of an Authorization header (RFC 6750,
// section 2.1). False means that there is not exactly one value, or that it is no bearer
// token.
func BearerToken(values []string) (token string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	// Schemes have no case (RFC 9110, section 11.1).
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimLeft(token, " ")
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", false
	}
	return token, true
}
