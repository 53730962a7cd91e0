package proxy

import (
	"fmt"
	"strings"
)

const (
	old        = "Date: Thu, 01 Jan 2015 00:00:00 GMT"
	post       = "POST /x HTTP/1.1"
	becauseOwn = "What the upstream sends under the names of the proxy's own headers is replaced."
)

// answering is an upstream that reads the request whole and answers with text.
func answering(text string) func(*served) {
	return func(u *served) {
		u.read()
		u.write(text)
		if strings.Contains(text, "Connection: close") || strings.HasPrefix(text, "HTTP/1.0") {
			u.close()
		}
	}
}

// sent is the request of most rows: a small write.
func sent() string { return request(post, "Content-Length: 2") + "hi" }

func statusRows() (rows []behaviour) {
	row := func(status string, lines ...string) {
		body := "a body"
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)), old, "Content-Type: text/plain")
		rows = append(rows, behaviour{name: "status " + status, send: sent(), serve: answering(response(status, lines...) + body)})
	}
	row("200 OK")
	row("201 Created", "Location: /x/1")
	row("202 Accepted", "Location: /jobs/1", "Retry-After: 3")
	row("203 Non-Authoritative Information")
	row("206 Partial Content", "Content-Range: bytes 0-5/10", "Accept-Ranges: bytes")
	row("207 Multi-Status")
	for _, status := range []string{"300 Multiple Choices", "301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"} {
		row(status, "Location: http://elsewhere.example/a b?c#d")
	}
	row("400 Bad Request")
	row("401 Unauthorized", "Www-Authenticate: Basic realm=\"a\"", "Www-Authenticate: Bearer")
	row("403 Forbidden")
	row("404 Not Found")
	row("405 Method Not Allowed", "Allow: GET, HEAD")
	row("408 Request Timeout")
	row("409 Conflict")
	row("410 Gone")
	row("412 Precondition Failed", "Etag: \"e\"")
	row("413 Request Entity Too Large", "Retry-After: 10")
	row("416 Requested Range Not Satisfiable", "Content-Range: bytes */10")
	row("417 Expectation Failed")
	row("418 I'm a teapot")
	row("422 Unprocessable Entity")
	row("429 Too Many Requests", "Retry-After: Thu, 01 Jan 2015 00:00:00 GMT")
	row("451 Unavailable For Legal Reasons", "Link: <http://a>; rel=\"blocked-by\"")
	row("500 Internal Server Error")
	row("501 Not Implemented")
	row("502 Bad Gateway")
	row("503 Service Unavailable", "Retry-After: 120")
	row("504 Gateway Timeout")
	reason := "The number is passed on, the phrase is that of the standard: callers are not to read it (RFC 9112, section 4)."
	return append(rows,
		behaviour{name: "status 204", send: sent(), serve: answering(response("204 No Content", old, "Etag: \"e\""))},
		behaviour{name: "status 205", send: sent(), serve: answering(response("205 Reset Content", "Content-Length: 0"))},
		behaviour{name: "status 304", send: request("GET /x HTTP/1.1", "If-None-Match: \"e\""),
			serve: answering(response("304 Not Modified", old, "Etag: \"e\"", "Cache-Control: max-age=5", "Vary: Accept"))},
		behaviour{name: "status 304 with the length and type of what is not sent", send: request("GET /x HTTP/1.1", "If-None-Match: \"e\""),
			serve: answering(response("304 Not Modified", "Etag: \"e\"", "Content-Length: 500", "Content-Type: a/b"))},
		behaviour{name: "status 204 with a length", send: sent(), serve: answering(response("204 No Content", "Content-Length: 0")),
			because: "It must not have one (RFC 9110, section 8.6)."},
		behaviour{name: "status 407", send: sent(), serve: answering(response("407 Proxy Authentication Required", "Proxy-Authenticate: Basic", "Content-Length: 0")),
			because: becauseHop},
		behaviour{name: "status 599 and a reason of its own", send: sent(), serve: answering(response("599 Whatever", "Content-Length: 0")), because: reason},
		behaviour{name: "status 200 and a reason of its own", send: sent(), serve: answering(response("200 Fine, thanks", "Content-Length: 0")), because: reason},
		behaviour{name: "a status without a reason", send: sent(), serve: answering(response("404 ", "Content-Length: 0")), because: reason},
	)
}

func replyHeaderRows() []behaviour {
	with := func(name string, lines ...string) behaviour {
		return behaviour{name: name, send: sent(), serve: answering(reply200(append(lines, "Content-Length: 2")...) + "ok")}
	}
	differing := func(b behaviour, because string) behaviour { b.because = because; return b }
	return []behaviour{
		with("repeated reply headers in their order", "Set-Cookie: a=1; Path=/", "Link: <b>", "Set-Cookie: b=2; HttpOnly", "Link: <a>", "Via: 1.1 y", "Via: 1.0 x", "Warning: 199 - \"a, b\""),
		with("an empty reply header", "X-Empty:"),
		with("bytes beyond ASCII in a reply header", "X-Utf: grün €", "X-Latin: gr\xfcn"),
		with("a reply header of 30,000 bytes", "X-Long: "+strings.Repeat("x", 30_000)),
		with("a hundred reply headers", manyHeaders(100)...),
		with("no Content-Type", "Content-Type: -"),
		with("an empty Content-Type", "Content-Type:"),
		with("a Content-Type of its own", "Content-Type: application/vnd.x+json; charset=\"utf-8\""),
		with("Date of the upstream", old),
		with("Server and security headers", "Server: x/1", "X-Powered-By: y", "Strict-Transport-Security: max-age=1", "Alt-Svc: h2=\":443\"", "Content-Security-Policy: a; b"),
		with("caching headers", "Cache-Control: no-store", "Cache-Control: private", "Age: 3", "Expires: 0", "Etag: W/\"x\"", "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT", "Vary: *"),
		with("reply names in lower case", "x-lower-case: 1", "set-cookie: a"),
		with("Keep-Alive of the upstream", "Connection: keep-alive", "Keep-Alive: timeout=5"),
		with("the upstream closes its connection", "Connection: close"),
		differing(with("a reply header named in Connection", "Connection: X-Inner", "X-Inner: 1"), becauseHop),
		differing(with("Pragma: no-cache in a reply", "Pragma: no-cache"), "`Cache-Control: no-cache` is added, as old caches read it (RFC 9111, section 5.4)."),
		differing(with("the proxy's names in a reply", "Fence-Decision: spoofed", "Fence-Generation: spoofed", "Fence-Outcome: spoofed", "Fence-Reason: spoofed",
			"Fence-Would-Refuse: spoofed", "Idempotent-Replayed: true"), becauseOwn),
		differing(with("an upgrade that is offered", "Upgrade: h2c", "Connection: Upgrade"), becauseHop),
	}
}

func replyBodyRows() []behaviour {
	get := request("GET /x HTTP/1.1")
	gzip := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xcbH\xcd\xc9\xc9\x07\x00\x86\xa6\x106\x05\x00\x00\x00"
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	chunked := reply200("Transfer-Encoding: chunked")
	return []behaviour{
		{name: "a reply without a body", send: get, serve: answering(reply200("Content-Length: 0"))},
		{name: "a reply of 8 MiB", send: get, serve: answering(reply200(length(8<<20)) + filler(8<<20))},
		{name: "a reply of 8 MiB to a write", varies: "it may close the upstream's connection when the reply begins, and break the reply off", send: sent(), serve: answering(reply200(length(8<<20)) + filler(8<<20))},
		{name: "a chunked reply", send: sent(), serve: answering(chunked + chunks("hello", " ", "world") + "0\r\n\r\n")},
		{name: "a chunked reply of no bytes", varies: "it is announced as empty if its end is there with its head", send: sent(), serve: answering(chunked + "0\r\n\r\n")},
		{name: "a chunked reply of 1 MiB", send: get, serve: answering(chunked + chunks(filler(500_000), filler(1<<20-500_000)) + "0\r\n\r\n")},
		{name: "a reply with chunk extensions", send: get, serve: answering(chunked + "5;a=b\r\nhello\r\n0\r\n\r\n")},
		{name: "a reply that ends with its connection (HTTP/1.0)", send: get, serve: answering("HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nhello")},
		{name: "a reply that ends with its connection (HTTP/1.1)", send: sent(), serve: answering(reply200("Connection: close") + "hello")},
		{name: "a chunked reply to an HTTP/1.0 caller", send: request("GET /x HTTP/1.0"), serve: answering(chunked + chunks("hello") + "0\r\n\r\n")},
		{name: "HEAD with a length", send: request("HEAD /x HTTP/1.1"), serve: answering(reply200(length(500), "Content-Type: a/b", "Etag: \"e\""))},
		{name: "HEAD with a length of 0", send: request("HEAD /x HTTP/1.1"), serve: answering(reply200(length(0)))},
		{name: "HEAD without a length", send: request("HEAD /x HTTP/1.1"), serve: answering(reply200())},
		{name: "HEAD of what would be chunked", send: request("HEAD /x HTTP/1.1"), serve: answering(chunked)},
		{name: "HEAD of what is not there", send: request("HEAD /x HTTP/1.1"), serve: answering(response("404 Not Found", length(9)))},
		{name: "a compressed reply that was asked for", send: request("GET /x HTTP/1.1", "Accept-Encoding: gzip"), serve: answering(reply200("Content-Encoding: gzip", length(len(gzip))) + gzip)},
		{name: "a compressed reply that was not asked for", send: request("GET /x HTTP/1.1", "Accept-Encoding: -"), serve: answering(reply200("Content-Encoding: gzip", length(len(gzip))) + gzip)},
		{name: "an announced reply trailer", send: sent(), serve: answering(reply200("Transfer-Encoding: chunked", "Trailer: X-Sum, X-More") + chunks("hello") + "0\r\nX-Sum: abc\r\nX-More: d\r\n\r\n")},
		{name: "an announced reply trailer without a body", send: sent(), serve: answering(reply200("Transfer-Encoding: chunked", "Trailer: X-Sum") + "0\r\nX-Sum: abc\r\n\r\n")},
		{name: "a reply trailer that was not announced", send: sent(), serve: answering(chunked + chunks("hello") + "0\r\nX-Sum: abc\r\nX-Sum: def\r\n\r\n")},
		{name: "one reply trailer announced, another one not", send: get, serve: answering(reply200("Transfer-Encoding: chunked", "Trailer: X-Sum") + chunks("hello") + "0\r\nX-Sum: abc\r\nX-More: d\r\n\r\n")},
		{name: "the proxy's names in a trailer", send: sent(), because: becauseOwn,
			serve: answering(reply200("Transfer-Encoding: chunked", "Trailer: Fence-Outcome, X-Sum") + chunks("hello") + "0\r\nFence-Outcome: spoofed\r\nX-Sum: abc\r\n\r\n")},
	}
}
