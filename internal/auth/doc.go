// Package auth says who a caller is and what it may do: principals, their roles, and the
// part of the jobs that each of them has. It knows neither files nor HTTP.
//
// A principal shows a bearer token, of which only the SHA-256 is known here, or a client
// certificate that the listener has verified. It has one namespace and, within it, the
// jobs under its prefixes; it can neither change nor see anything else.
package auth
