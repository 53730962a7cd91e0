// Package proxy is the data plane: it reads the fence headers of a write, has the
// authority admit it, forwards it exactly once, and settles its outcome.
//
// Everything that reaches an upstream passes Proxy.admit, and the first byte of every
// fenced write passes the gate (tokens.Attempt.Gate) inside the upstream connection's
// Write. Nothing here decides about generations; that is the authority's.
package proxy
