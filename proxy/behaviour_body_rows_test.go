package proxy

import (
	"fmt"
	"strings"
	"time"
)

// filler is a body of n bytes in which every block of 4 KiB has a number of its own.
func filler(n int) string {
	const block = 4 << 10
	b := make([]byte, 0, n+block)
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, "%d,", i)
		for len(b)%block != 0 {
			b = append(b, byte('a'+len(b)%26))
		}
	}
	return string(b[:n])
}

// chunks frames pieces of a body; what follows the last one is up to the caller of it.
func chunks(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	return b.String()
}

func requestBodyRows() (rows []behaviour) {
	const buffer = 1 << 20 // the route's
	for _, n := range []int{1, 4095, 4096, 4097, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000, buffer - 1, buffer, buffer + 1, 3 << 20} {
		rows = append(rows, behaviour{name: fmt.Sprintf("a body of %d B", n),
			send: request("PUT /x HTTP/1.1", fmt.Sprintf("Content-Length: %d", n)) + filler(n)})
	}
	chunked := func(name, because string, pieces ...string) behaviour {
		return behaviour{name: name, because: because, send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked") + chunks(pieces...) + "0\r\n\r\n"}
	}
	rows = append(rows,
		chunked("a chunked body of no bytes", becauseFramed),
		chunked("a chunked body of one byte", becauseFramed, "1"),
		chunked("a chunked body of 200,000 bytes", becauseFramed, filler(100_000), filler(99_999), "1"),
		chunked("a chunked body above the buffer", "", filler(buffer), filler(200_000)),
		behaviour{name: "chunks with extensions", because: "`request-invalid`: not every server reads over them alike (RFC 9112, section 7.1.1).",
			send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked") + "5;a=b;c\r\nhello\r\n0;d\r\n\r\n"},
		behaviour{name: "an announced request trailer",
			send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked", "Trailer: X-Sum, X-More") + chunks("hello") + "0\r\nX-Sum: abc\r\nX-More: d\r\n\r\n"},
		behaviour{name: "a request trailer that was not announced", because: becauseLate,
			send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked") + chunks("hello") + "0\r\nX-Sum: abc\r\n\r\n"},
		behaviour{name: "a request trailer that was not announced, above the buffer", because: becauseLate,
			send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked") + chunks(filler(buffer), filler(10)) + "0\r\nX-Sum: abc\r\n\r\n"},
		behaviour{name: "one request trailer announced, another one not",
			send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked", "Trailer: X-Sum") + chunks("hello") + "0\r\nX-Sum: abc\r\nX-More: d\r\n\r\n"},
		behaviour{name: "request trailers that belong to the head", because: "A fence there counts for nothing, and what servers look for at the head must not come past its checks (RFC 9110, section 6.5.1).",
			send: request("PUT /x HTTP/1.1", "Transfer-Encoding: chunked", "Trailer: X-Sum, Fence-Generation, Authorization") + chunks("hello") +
				"0\r\nX-Sum: abc\r\nFence-Generation: 9\r\nIdempotency-Key: k\r\nAuthorization: Basic x\r\nContent-Type: a/b\r\nX-Forwarded-For: 6.6.6.6\r\nX_Real_Ip: 6.6.6.6\r\n\r\n"},
		behaviour{name: "a body in two parts with a pause", client: func(c *caller) {
			c.send(request("PUT /x HTTP/1.1", "Content-Length: 10") + "hello")
			time.AfterFunc(50*time.Millisecond, func() { c.send("world") })
			c.reply()
		}},
		behaviour{name: "pieces of a large body reach the upstream as they come", client: func(c *caller) {
			c.send(request("PUT /x HTTP/1.1", fmt.Sprintf("Content-Length: %d", 2*buffer)) + filler(buffer))
			c.await("the first half")
			c.send(filler(buffer))
			c.reply()
		}, serve: func(u *served) {
			total := 0
			u.readBody(u.in, func(piece string) {
				if total += len(piece); total == buffer {
					u.tell("the first half")
				}
			})
			u.write(reply200("Content-Length: 0"))
		}},
	)
	return rows
}

func expectRows() []behaviour {
	upload := request("PUT /x HTTP/1.1", "Content-Length: 5", "Expect: 100-continue")
	// polite sends the body only when it may, or when nobody has said anything for a while.
	polite := func(head, body string) func(c *caller) {
		return func(c *caller) {
			c.send(head)
			_ = c.conn.SetReadDeadline(time.Now().Add(c.patience))
			first, err := c.in.Peek(12)
			_ = c.conn.SetReadDeadline(time.Now().Add(sceneTime))
			if err != nil || strings.HasPrefix(string(first), "HTTP/1.1 100") {
				if err != nil {
					c.note("the caller waited for 100 in vain")
				}
				c.send(body)
			} else {
				c.ended = true
			}
			c.reply()
		}
	}
	accept := func(u *served) {
		if u.get("Expect") != "" {
			u.write("HTTP/1.1 100 Continue\r\n\r\n")
		}
		u.read()
		u.write(reply200("Content-Length: 0"))
	}
	reject := func(status string) func(u *served) {
		return func(u *served) {
			if u.get("Expect") == "" {
				u.read()
			}
			u.write(response(status, "Connection: close", "Content-Length: 0"))
			u.close()
		}
	}
	large := fmt.Sprintf("Content-Length: %d", 2<<20)
	const twice = "it may pass the upstream's 100 on beside its own"
	return []behaviour{
		{name: "Expect: 100-continue, accepted", varies: twice, client: polite(upload, "hello"), serve: accept, because: becauseExpect},
		{name: "Expect: 100-continue, rejected with 417", client: polite(upload, "hello"), serve: reject("417 Expectation Failed"), because: becauseExpect},
		{name: "Expect: 100-continue with a large body, accepted", varies: twice, serve: accept,
			client: polite(request("PUT /x HTTP/1.1", large, "Expect: 100-continue"), filler(2<<20))},
		{name: "Expect: 100-continue with a large body, rejected with 413", serve: reject("413 Request Entity Too Large"),
			client: polite(request("PUT /x HTTP/1.1", large, "Expect: 100-continue"), filler(2<<20))},
		{name: "Expect: 100-continue, and the body is sent at once", varies: twice, send: upload + "hello", serve: accept, because: becauseExpect},
		{name: "an expectation that nobody knows", send: request("PUT /x HTTP/1.1", "Content-Length: 0", "Expect: payment"),
			because: "`request-invalid`: no other expectation than `100-continue` can be met."},
	}
}
