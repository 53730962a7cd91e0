package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
)

// listening is printed, with the address, by a child that can be connected to.
const listening = "listening"

func localListener() (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

func listen() (net.Listener, error) {
	ln, err := localListener()
	if err != nil {
		return nil, err
	}
	fmt.Println(listening, ln.Addr())
	return ln, nil
}

// reply is about what a small service answers.
const reply = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"charged\": true}"

// runUpstream answers every write the same, as cheaply as Go can. GET is answered with
// the number of connections so far.
func runUpstream([]string) error {
	ln, err := listen()
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		c, err := ln.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer func() { _ = c.Close() }() // the other side has gone
			br := bufio.NewReaderSize(c, 4<<10)
			for {
				first, err := skipMessage(br)
				if err != nil {
					return
				}
				answer := []byte(reply)
				if bytes.HasPrefix(first, []byte("GET ")) {
					body := strconv.Itoa(n)
					answer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				}
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

// peerIdle is how many unused connections each proxy keeps to its upstream.
const peerIdle = 512

// copyBuffers implements httputil.BufferPool.
type copyBuffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (p *copyBuffers) Get() []byte { return *p.pool.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (p *copyBuffers) Put(b []byte) { p.pool.Put(&b) }

// runPeer is the bare proxy: what one writes in an afternoon, well tuned, with no fence,
// no metrics, no limits and no care for what a repeated write does. With "default" after
// the upstream's URL it is what one writes in five minutes.
func runPeer(args []string) error {
	untuned := len(args) == 2 && args[1] == "default"
	if len(args) != 1 && !untuned {
		return fmt.Errorf("role-peer wants the upstream's URL, not %q", args)
	}
	target, err := url.Parse(args[0])
	if err != nil {
		return fmt.Errorf("parse upstream: %w", err)
	}
	ln, err := listen()
	if err != nil {
		return err
	}
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			DisableCompression:  true,
			MaxIdleConns:        peerIdle,
			MaxIdleConnsPerHost: peerIdle,
		},
		BufferPool: &copyBuffers{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}},
	}
	if untuned {
		p.Transport, p.BufferPool = nil, nil
	}
	return http.Serve(ln, p)
}
