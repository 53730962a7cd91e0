// Package listen is the data listener: it accepts connections, takes TLS off them, and hands them to
// an http.Server, HTTP/1 judged by package framing and HTTP/2 as it is.
//
// It is made of a [Listener] and a [NewServer] that belong together. The listener does the TLS
// handshake by itself, for net/http knows TLS only on a *tls.Conn, and could not be given a judge
// between TLS and HTTP/1.
package listen
