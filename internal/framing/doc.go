// Package framing judges how HTTP/1 requests are framed, on the bytes as they come from the
// connection and before net/http reads them.
//
// net/http stays the parser, and gets every byte unchanged. It is lenient where RFC 9112 lets a
// server be lenient: bare LF, obsolete folding, repeated lengths that are equal, chunk extensions.
// Each of these is read differently by some other server, and where two servers read one stream
// differently a request can be hidden in the body of another one (request smuggling, RFC 9112,
// section 11.2). What passes here has exactly one reading, whoever reads it.
//
// A request whose head has a fault still reaches its handler, which learns of the fault by
// [Verdict] and refuses it. Behind such a head the connection delivers nothing. A fault in a body
// breaks the body off. What net/http would refuse in words of its own, before any handler, is
// refused in those of [Options].
package framing
