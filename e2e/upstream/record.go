// Package upstream is the service behind the proxy in the black box tests: it listens on real sockets, writes down
// everything that reaches it, and misbehaves on request.
//
// It knows nothing of the proxy. What it needs to know about a request it reads from X-Test-* headers, which the proxy
// passes on like any other header.
package upstream

import (
	"net/http"
	"time"
)

// The headers by which a test marks a request. They are ordinary end-to-end headers to the proxy.
const (
	HeaderJob        = "X-Test-Job"
	HeaderGeneration = "X-Test-Generation"
	HeaderID         = "X-Test-Id"
	HeaderDo         = "X-Test-Do"
	HeaderKey        = "X-Test-Key"
)

// Record is what the upstream saw of one request. Begin and End are ordinals taken from one counter, so that all events
// of one server are totally ordered, also those that fall into the same tick of the clock.
type Record struct {
	Begin   int64 // the handler's start, the earliest moment at which a server can act on a request; from 1
	End     int64 // the handler's return; 0 while it runs
	BeganAt time.Time
	EndedAt time.Time
	Conn    int64 // which accepted connection carried it, from 1

	ID         string
	Job        string
	Generation uint64 // 0: the request named none
	Key        string // names the intent within the job; empty: the request named none

	Method        string
	Path          string // as sent, with the query
	Header        http.Header
	Trailer       http.Header
	ContentLength int64 // -1: not announced
	Chunked       bool
	Bytes         int64
	Sum           [32]byte // SHA-256 of the body bytes that arrived

	Complete  bool // the body was seen to its end
	Executed  bool // the upstream did what the request asks for
	Cancelled bool // the connection died while the upstream was at work
}

// Conn is one accepted connection.
type Conn struct {
	ID    int64
	Bytes int64 // received on it so far
	Open  bool
}
