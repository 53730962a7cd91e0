package proxy

import "strings"

// Why ours may differ. Sections without a document are those of docs/protocol.md.
const (
	becauseFramed   = "A body up to `body.buffer` is read whole before it is admitted, so its length is known (RFC 9112, section 6.1: framing belongs to one hop)."
	becauseLate     = "It is announced where it has come before the head is sent on, as it should be (RFC 9110, section 6.6.2)."
	becauseHop      = "It is meant for one hop (RFC 9110, section 7.6.1)."
	becauseOrigin   = "Path and query are sent on byte for byte, in the form that origin servers expect (RFC 9112, section 3.2.1)."
	becauseRefused  = "`request-invalid`: servers read it differently."
	becauseCode     = "The caller is told what is known, see the codes."
	becauseExpect   = "A body up to `body.buffer` is read whole before it is admitted, and the caller hears 100 only after the fence said yes."
	becauseLength   = "A request without a body is announced as such (RFC 9110, section 8.6)."
	becauseForwards = "`Forwarded` and `X-Forwarded-*` tell where the request came from; what the caller made up is dropped."
)

func methodRows() []behaviour {
	rows := []behaviour{
		{name: "a DELETE with a body", send: request("DELETE /x HTTP/1.1", "Content-Length: 3") + "all"},
		{name: "a DELETE with Content-Length: 0", send: request("DELETE /x HTTP/1.1", "Content-Length: 0")},
		{name: "a PROPFIND with a body", send: request("PROPFIND /x HTTP/1.1", "Content-Length: 4", "Depth: 1", "Content-Type: text/xml") + "<a/>"},
		{name: "a GET with a body", send: request("GET /x HTTP/1.1", "Content-Length: 5") + "hello"},
		{name: "a POST without a length", send: request("POST /x HTTP/1.1"), because: becauseLength},
		{name: "a POST with Content-Length: 0", send: request("POST /x HTTP/1.1", "Content-Length: 0")},
		{name: "OPTIONS *", send: request("OPTIONS * HTTP/1.1"), because: becauseRefused + " No route matches it."},
		{name: "the absolute form", send: request("GET http://$HOST/x%2Fy?q HTTP/1.1"), because: becauseOrigin},
		{name: "an HTTP/1.0 caller", send: request("GET /x HTTP/1.0")},
		{name: "an HTTP/1.0 caller with a body", send: request("POST /x HTTP/1.0", "Content-Length: 5") + "hello"},
		{name: "two requests in one packet", client: func(c *caller) {
			c.send(request("POST /1 HTTP/1.1", "Content-Length: 1") + "1" + request("POST /2 HTTP/1.1", "Content-Length: 1") + "2")
			c.reply()
			c.reply()
		}},
	}
	for _, method := range []string{"GET", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO", "get"} {
		rows = append(rows, behaviour{name: "a bare " + method, send: request(method + " /x HTTP/1.1")})
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "FOO"} {
		rows = append(rows, behaviour{name: "a " + method + " with a body", send: request(method+" /x HTTP/1.1", "Content-Length: 5", "Content-Type: text/plain") + "hello"})
	}
	return rows
}

func targetRows() (rows []behaviour) {
	for _, t := range []struct{ name, target string }{
		{"escapes in path and query", "/b/a%2Fb%20c?x=%2B&y=%20"},
		{"lower-case escapes", "/%e2%82%ac?%e2%82%ac"},
		{"a path that begins with two slashes", "//double/slash?x"},
		{"empty segments", "/a//b///"},
		{"path parameters", "/a;p=1/b;q;r=2"},
		{"an empty query", "/a?"},
		{"a query in its order", "/a?b=1&a=2&b=3&a"},
		{"plus signs", "/a+b?c+d=e+f"},
		{"bytes beyond ASCII", "/ä/ö?ü=€"},
		{"semicolons and bad escapes in the query", "/a?a=1;b=2&c=%zz&&=&d"},
		{"question marks and slashes in the query", "/a?b?c=/d//e/../f"},
		{"every mark that a path may have", "/~!$&'()*,:@-._=x"},
		{"marks that are not allowed in a path", "/a|b\"c<d>^`{e}"},
		{"a long query", "/a?q=" + strings.Repeat("0123456789", 800)},
		{"a hash sign", "/a#b?c"},
	} {
		rows = append(rows, behaviour{name: t.name, send: request("PUT "+t.target+" HTTP/1.1", "Content-Length: 1") + "1"})
	}
	return append(rows,
		behaviour{name: "a broken escape in the path", send: request("PUT /a%zz HTTP/1.1", "Content-Length: 1") + "1", because: "It is answered with 400 before a route is looked for: servers read it differently."},
		behaviour{name: "an absolute form without a path", send: request("GET http://$HOST?q HTTP/1.1"), because: becauseOrigin},
	)
}

func requestHeaderRows() []behaviour {
	post := func(lines ...string) string {
		return request("POST /x HTTP/1.1", append(lines, "Content-Length: 2")...) + "hi"
	}
	get := func(lines ...string) string { return request("GET /x HTTP/1.1", lines...) }
	return []behaviour{
		{name: "repeated request headers in their order", send: post("X-A: 1", "X-B: 9", "X-A: 3", "X-A: 2", "Accept: a", "Accept: b")},
		{name: "an empty request header", send: post("X-Empty:")},
		{name: "blanks and commas within a value", send: post("X-Blanks: a  b ,, c\t;d ")},
		{name: "bytes beyond ASCII in a request header", send: post("X-Utf: grün €", "X-Latin: gr\xfcn")},
		{name: "a request header of 30,000 bytes", send: post("X-Long: " + strings.Repeat("x", 30_000))},
		{name: "a hundred request headers", send: post(manyHeaders(100)...)},
		{name: "no User-Agent", send: post("User-Agent: -")},
		{name: "an empty User-Agent", send: post("User-Agent:"), because: "An empty product says nothing (RFC 9110, section 10.1.5)."},
		{name: "no Accept-Encoding", send: post("Accept-Encoding: -")},
		{name: "no Accept-Encoding in a GET", send: get("Accept-Encoding: -")},
		{name: "Accept-Encoding of the caller", send: get("Accept-Encoding: gzip;q=0.5, br")},
		{name: "Authorization", send: post("Authorization: Bearer abc.def==")},
		{name: "two Cookie lines", send: post("Cookie: a=1; b=2", "Cookie: c=3")},
		{name: "conditions and ranges", send: get("Range: bytes=0-9", "If-Range: \"e\"", "If-Match: \"e\", W/\"f\"", "If-None-Match: *",
			"If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT")},
		{name: "the body's own headers", send: post("Content-Type: a/b; c=\"d\"", "Content-Encoding: gzip", "Content-Language: de", "Content-Md5: abc", "Digest: sha-256=x")},
		{name: "names with underscores and dots", send: post("X_Custom_Name: 1", "X.Dotted: 2", "x-lower: 3")},
		{name: "a method override", send: post("X-Http-Method-Override: DELETE")},
		{name: "an Idempotency-Key", send: post("Idempotency-Key: k-1"), because: "The key is echoed."},
		{name: "a quoted Idempotency-Key", send: post("Idempotency-Key: \"k-1\""), because: "The key is echoed."},
		{name: "trace context", send: post("Traceparent: 00-11111111111111111111111111111111-2222222222222222-01", "Tracestate: a=b", "Baggage: c=d")},
		{name: "Via and Max-Forwards", send: post("Via: 1.0 a", "Via: 1.1 b (x)", "Max-Forwards: 3")},
		{name: "the caller closes its connection after the request", send: get("Connection: close")},
		{name: "Keep-Alive and Proxy-Connection", send: get("Connection: keep-alive", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive")},
		{name: "a request header named in Connection", send: get("Connection: X-Hop, keep-alive", "X-Hop: 1", "X-End: 2"), because: becauseHop},
		{name: "Proxy-Authorization", send: get("Proxy-Authorization: Basic x"), because: becauseHop},
		{name: "TE: trailers", send: get("Te: trailers", "Connection: TE")},
		{name: "TE: gzip", send: get("Te: gzip, trailers;q=0.5", "Connection: TE"), because: becauseHop + " Only `trailers` is passed on, which both hops understand."},
		{name: "Pragma: no-cache", send: get("Pragma: no-cache"), because: "`Cache-Control: no-cache` is added, which means the same (RFC 9111, section 5.4)."},
		{name: "Host is the upstream's", send: get("Host: api.example"), forwarding: false, because: "`preserve_host` is false."},
		{name: "Host is preserved", send: get("Host: api.example:8443"), route: func(rt *Route) { rt.PreserveHost = true }},
		{name: "Upgrade: h2c", send: get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "Http2-Settings: AAMAAABkAAQAAP__"), because: "`request-invalid`: only `Upgrade: websocket` is ever let through, and only where the route says so."},
		{name: "a signature of version 4 (AWS), Host preserved", send: signedRequest(), serve: verifySignature, route: func(rt *Route) { rt.PreserveHost = true }},
	}
}

func manyHeaders(n int) (out []string) {
	for i := range n {
		out = append(out, "X-"+string(rune('A'+i%26))+string(rune('a'+i/26))+": "+strings.Repeat("v", i))
	}
	return out
}

func forwardingRows() []behaviour {
	return []behaviour{
		{name: "forwarding headers are set", send: request("GET /x HTTP/1.1", "Host: api.example:8080"), forwarding: true,
			route: func(rt *Route) { rt.PreserveHost = true }, because: becauseForwards},
		{name: "forwarding headers are not believed", forwarding: true, because: becauseForwards,
			send: request("GET /x HTTP/1.1", "Forwarded: for=6.6.6.6;proto=https", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 6.6.6.7", "X-Forwarded-Host: evil",
				"X-Forwarded-Proto: https", "X-Forwarded-Port: 443", "X-Forwarded-Prefix: /evil", "X-Forwarded-Server: evil", "X-Forwarded-Uri: /evil",
				"X-Real-Ip: 6.6.6.6", "X_Forwarded_For: 6.6.6.6", "X.Forwarded.Proto: https", "X_Real_Ip: 6.6.6.6")},
	}
}
