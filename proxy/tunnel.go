package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// duplex is what the body of a reply with status 101 is: the upstream's connection, with what
// came together with the reply's head. Whatever is written to it passes the gate.
type duplex interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// tunnel passes bytes on in both directions until both sides have ended, or until the
// exchange is stopped. The attempt stays open for as long, and never counts as sent
// whole: so a takeover cuts it, and no byte of the caller's gets past the gate after it.
func (ex *exchange) tunnel(res *http.Response) {
	ex.headCame()
	ex.seal()
	up := res.Body.(duplex)
	defer func() { _ = up.Close() }() // it was given up, or closed before
	caller, early, err := ex.hijack()
	if err != nil {
		ex.failed(err)
		return
	}
	defer func() { _ = caller.Close() }() // nobody is left to tell
	_, err = caller.Write(ex.switching(res))
	ex.took = time.Since(ex.start)
	if err != nil {
		ex.stop(errTunnel)
	} else {
		ex.join(caller, early, up)
	}
	ex.endTunnel(res.StatusCode)
}

// hijack takes the caller's connection from the server, with what had been read ahead.
// From here on stop ends that connection as well.
func (ex *exchange) hijack() (net.Conn, []byte, error) {
	if cause := ex.stopped(); cause != nil {
		return nil, nil, cause
	}
	c, buf, err := ex.rc.Hijack()
	if err != nil {
		return nil, nil, errors.Join(errTunnel, err)
	}
	early, _ := buf.Reader.Peek(buf.Reader.Buffered()) // it is there
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.caller = c
	ex.lasts()
	if ex.cause != nil {
		_ = c.SetDeadline(longAgo) // else the idle timeout ends it
	}
	return c, bytes.Clone(early), nil
}

// join copies in both directions until both have ended. An error in one ends the other.
func (ex *exchange) join(caller net.Conn, early []byte, up duplex) {
	upwards := make(chan struct{})
	go func() {
		defer close(upwards)
		ex.pass(up, io.MultiReader(bytes.NewReader(early), caller))
	}()
	ex.pass(caller, up)
	<-upwards
}

// pass copies one direction to its end, and then ends that direction only: the other one
// may go on. The idle timeout runs while both are silent.
func (ex *exchange) pass(dst io.Writer, src io.Reader) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := src.Read(*buf)
		ex.timer.Reset(ex.rt.IdleTimeout)
		if n > 0 {
			if _, werr := dst.Write((*buf)[:n]); werr != nil {
				ex.stop(errTunnel)
				return
			}
			ex.timer.Reset(ex.rt.IdleTimeout) // it was taken, so nobody was silent
		}
		if err == nil {
			continue
		}
		half, ok := dst.(interface{ CloseWrite() error })
		if err != io.EOF || !ok || half.CloseWrite() != nil {
			ex.stop(errTunnel)
		}
		return
	}
}

// endTunnel settles what was a tunnel: as applied if both sides have ended it, else as
// unknown. Nothing of it is left in the kernel when a newer generation may go on: the
// upstream's has taken it, or it was dropped.
func (ex *exchange) endTunnel(status int) {
	ex.timer.Reset(ex.rt.IdleTimeout) // an upstream that does not read is silent as well
	if ex.stopped() == nil && !ex.send.Finish() {
		ex.stop(errTunnel)
	}
	cause := ex.stopped() // also while it finished
	if cause != nil {
		ex.send.Abort()
	}
	if !ex.fenced {
		return
	}
	ex.noteOvertaken()
	if cause == nil {
		ex.outcome = tokens.Applied
		ex.record(tokens.Settlement{Outcome: ex.outcome, Status: status})
		ex.settle(ex.outcome)
	} else {
		ex.settleGone()
	}
	ex.span.SetFence("", 0, 0, "", "", ex.outcome.String())
	reason := "both sides have ended it"
	switch {
	case errors.Is(cause, errStalled):
		reason = "both directions were silent for too long"
	case cause != nil:
		reason = cause.Error()
	}
	ex.p.log.Info("tunnel ended", ex.attrs("reason", reason, "seconds", time.Since(ex.start).Seconds())...)
}
