package framing

import (
	"bytes"
	"io"
	"net"
	"time"
)

const (
	// PartTime is how long a caller that is still sending gets to read its answer.
	PartTime = 500 * time.Millisecond
	// maxDiscard is how much of what it sends is read meanwhile, in bytes. With what the
	// server has read ahead (4 KiB) it stays below the 64 KiB that are promised.
	maxDiscard = 48 << 10
	// refusalTime bounds the writing of a refusal.
	refusalTime = 5 * time.Second
)

// Serve tells that a handler is being called for a request. False means that the request was refused
// already: net/http had not got enough of it to see that it is none, and takes it for one all the same.
func (c *Conn) Serve() bool {
	if c.refused {
		return false
	}
	c.serving.Store(true)
	return true
}

// Rest tells that a request is done with and the next one is awaited. What is written from here on until
// Serve is not a handler's.
func (c *Conn) Rest() { c.serving.Store(false) }

// Write implements net.Conn. net/http refuses some requests by itself, before a handler has heard of
// them, in a text that is its own. Whatever it says while no handler runs is left out, and the
// refusal stands in its place: so nothing has to be known of what net/http does not like.
func (c *Conn) Write(p []byte) (int, error) {
	if c.refusal == nil || c.serving.Load() || c.free.Load() {
		return c.Conn.Write(p)
	}
	c.refuse(c.blamed(p))
	return len(p), nil
}

// blamed returns why net/http wants to say p.
func (c *Conn) blamed(p []byte) Fault {
	switch f := Fault(c.judge.fault.Load()); {
	case bytes.HasPrefix(p, []byte("HTTP/1.1 417 ")):
		return FaultExpectation
	case c.served < c.judge.heads.Load():
		return FaultUnreadable // what was blamed is a request behind it
	case f != noFault:
		return f
	case bytes.HasPrefix(p, []byte("HTTP/1.1 431 ")):
		return FaultTooLarge
	case c.cut:
		return FaultCut
	}
	return FaultUnreadable // net/http does not wait for the end of the head
}

// refuse answers the request that is being read, once, and parts from its caller. It is for the
// goroutine that reads the heads.
func (c *Conn) refuse(f Fault) {
	if c.refused {
		return
	}
	c.refused = true
	_ = c.SetWriteDeadline(time.Now().Add(refusalTime)) // else the caller's patience decides
	if _, err := c.Conn.Write(c.refusal(c.RemoteAddr(), f)); err == nil {
		Part(c.Conn, nil)
	}
}

// Part closes a connection that has had its last answer so that a caller which is still sending
// reads that and not a reset: first our side only, the other one after a while, or when over is closed.
func Part(c net.Conn, over <-chan struct{}) {
	defer func() { _ = c.Close() }() // nobody is left to tell
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(PartTime)) // without it the read below fails or ends
	if n, _ := io.CopyN(io.Discard, c, maxDiscard); n < maxDiscard {
		return
	}
	// It goes on sending: let it fill the buffers and find the answer.
	wait := time.NewTimer(PartTime)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
	}
}
