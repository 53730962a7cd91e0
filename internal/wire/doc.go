// Package wire is what fenceproxy and its clients have to agree on: header names, the one
// table of refusal codes, the form of a refusal, and the JSON of the lease API. The proxy,
// the control listener, the lease client and the command line use it, so that a name or a
// number is written down once.
package wire
