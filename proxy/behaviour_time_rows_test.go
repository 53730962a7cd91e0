package proxy

import (
	"fmt"
	"strings"
)

// flushRows are about when something arrives. The upstream goes on only when the caller has what was sent before.
func flushRows() []behaviour {
	get := request("GET /x HTTP/1.1")
	paced := func(head, end string, frame func(...string) string, pieces ...string) func(*served) {
		return func(u *served) {
			u.read()
			u.write(head)
			u.await("head")
			for _, p := range pieces {
				u.write(frame(p))
				u.await("piece " + p)
			}
			u.write(end)
			if strings.Contains(head, "Connection: close") {
				u.close()
			}
		}
	}
	raw := func(p ...string) string { return strings.Join(p, "") }
	chunked := reply200("Transfer-Encoding: chunked")
	return []behaviour{
		{name: "each chunk arrives before the next is made", send: get, serve: paced(chunked, "0\r\n\r\n", chunks, "one", "two", "three")},
		{name: "each chunk of the reply to a write arrives before the next is made", varies: "it may close the upstream's connection when the reply begins, and break the reply off", send: sent(), serve: paced(chunked, "0\r\n\r\n", chunks, "one", "two", "three")},
		{name: "server-sent events", send: request("GET /x HTTP/1.1", "Accept: text/event-stream"),
			serve: paced(reply200("Content-Type: text/event-stream", "Transfer-Encoding: chunked"), "0\r\n\r\n", chunks, "data: 1\n\n", ": ping\n\n", "data: 2\n\n")},
		{name: "server-sent events until the connection closes", send: get,
			serve: paced(reply200("Content-Type: text/event-stream; charset=utf-8", "Connection: close"), "", raw, "data: 1\n\n", "data: 2\n\n")},
		{name: "parts of a body of known length arrive as they are made", held: true, send: get, serve: paced(reply200("Content-Length: 11"), "", raw, "one", "two", "three")},
		{name: "parts of the reply to a write arrive as they are made", held: true, send: sent(), serve: paced(reply200("Content-Length: 11"), "", raw, "one", "two", "three")},
		{name: "the head of a redirect does not wait for its body", held: true, send: sent(),
			serve: paced(response("303 See Other", "Location: /y", "Content-Type: a/b", "Content-Length: 3"), "", raw, "one")},
	}
}

func interimRows() []behaviour {
	early := response("103 Early Hints", "Link: </a>; rel=preload", "Link: </b>; rel=preload")
	final := reply200("Content-Length: 2", "Link: </c>") + "ok"
	upload := fmt.Sprintf("Content-Length: %d", 2<<20)
	return []behaviour{
		{name: "103 Early Hints", send: request("GET /x HTTP/1.1"), serve: answering(early + final)},
		{name: "several 1xx replies to a write", send: sent(), serve: answering(early + response("102 Processing") + response("103 Early Hints", "X-A: 1") + final)},
		{name: "103 before the body was read", send: request("PUT /x HTTP/1.1", upload) + filler(2<<20), serve: func(u *served) {
			u.write(early)
			u.read()
			u.write(final)
		}},
		{name: "103 and then an error", send: sent(), serve: answering(early + response("404 Not Found", "Content-Length: 0"))},
		{name: "a 1xx reply that nobody has defined", send: sent(), serve: answering(response("150 Almost", "X-A: 1") + final),
			because: "The number is passed on, the phrase is not (RFC 9112, section 4)."},
		{name: "103 arrives before the final reply is made", client: func(c *caller) {
			c.send(sent())
			if m, err := readHead(c.in); err == nil {
				c.got = append(c.got, m)
				_, m.first, _ = strings.Cut(m.first, " ")
				c.tell("hints")
			}
			c.reply()
		}, serve: func(u *served) {
			u.read()
			u.write(early)
			u.await("hints")
			u.write(final)
		}},
		{name: "103 to an HTTP/1.0 caller", send: request("GET /x HTTP/1.0"), serve: answering(early + final),
			because: "It knows no 1xx reply (RFC 9110, section 15.2)."},
		{name: "100 that nobody has asked for", send: sent(), serve: answering(response("100 Continue") + final),
			because: "It is the proxy that waits for it (RFC 9110, section 15.2.1)."},
	}
}

func failureRows() []behaviour {
	broken := func(text string) func(*served) {
		return func(u *served) {
			u.read()
			u.write(text)
			u.close()
		}
	}
	chunked := reply200("Transfer-Encoding: chunked")
	large := request("PUT /x HTTP/1.1", fmt.Sprintf("Content-Length: %d", 32<<20)) + filler(32<<20)
	return []behaviour{
		{name: "the upstream ends before the body of known length does", send: sent(), serve: broken(reply200("Content-Length: 500") + "half")},
		{name: "the upstream ends before a large body does", varies: "what is in its buffers is lost", send: sent(), serve: broken(reply200("Content-Length: 500000") + filler(100_000))},
		{name: "the upstream ends before its last chunk", send: request("GET /x HTTP/1.1"), serve: broken(chunked + chunks("hello"))},
		{name: "the upstream ends within a chunk", send: sent(), serve: broken(chunked + "9\r\nhello")},
		{name: "the upstream sends a chunk that is none", send: sent(), serve: broken(chunked + chunks("hello") + "zz\r\nworld\r\n")},
		{name: "the upstream closes without a reply", send: sent(), serve: broken(""), because: becauseCode},
		{name: "the upstream resets without a reply", send: sent(), serve: func(u *served) { u.read(); u.reset() }, because: becauseCode},
		{name: "the upstream closes within the head", send: sent(), serve: broken("HTTP/1.1 200 OK\r\nX-A: "), because: becauseCode},
		{name: "the upstream does not speak HTTP", send: sent(), serve: broken("SSH-2.0-OpenSSH_9\r\n\r\n"), because: becauseCode},
		{name: "the upstream sends more than its length", varies: "it may take what follows a reply for the next one's", send: sent(), serve: broken(reply200("Content-Length: 2") + "okHTTP/1.1 666 Beast\r\nContent-Length: 0\r\n\r\n"),
			because: "What follows a reply belongs to no request."},
		{name: "a final reply while the body is still being sent", varies: "it may see the broken upload before the reply", send: large, serve: func(u *served) {
			u.write(response("413 Request Entity Too Large", "Content-Length: 3", "Connection: close") + "no!")
			u.close()
			u.await("head") // and reads nothing more
		}},
	}
}
