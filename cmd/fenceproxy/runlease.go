//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

const (
	// claimLimit bounds how long the lease API may be silent, beyond --wait: long enough for a restart of it.
	claimLimit = 10 * time.Second
	// endLimit bounds the completion or the release, lostLimit the release of a lease that is as good as lost.
	endLimit  = 10 * time.Second
	lostLimit = time.Second
	// onLostLimit bounds the command of --on-lost.
	onLostLimit = 30 * time.Second
	// lookEvery is how often the lease is looked at: timers stand still while a machine is suspended.
	lookEvery = time.Second
)

// errNoContact is why a program is stopped while its lease is not over yet.
var errNoContact = errors.New("no renewal succeeded, and the lease is about to run out")

// signalError is a signal that ended the wait for the lease.
type signalError struct{ syscall.Signal }

// Error implements error.
func (e signalError) Error() string { return "ended by signal: " + e.String() }

// passedOn are the signals that the program gets too. One that is ignored (nohup) stays ignored, for the program as well.
func passedOn() (out []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		if !signal.Ignored(s) {
			out = append(out, s)
		}
	}
	return out
}

// run claims, runs the program, and gives the job back.
func (w *wrapping) run(ctx context.Context) error {
	path, err := exec.LookPath(w.command[0])
	if err != nil {
		return w.fail(startFailure(err), err)
	}
	proxy, err := proxyURL(w.proxy)
	if err != nil {
		return w.fail(exitOwn, err)
	}
	secure, err := w.tls()
	if err != nil {
		return w.fail(exitOwn, err)
	}
	token := w.token()
	if _, err := token(); err != nil {
		return w.fail(exitOwn, err) // later it is waited for
	}
	client, err := leaseclient.New(leaseclient.Config{Endpoint: w.control, TTL: w.ttl, Margin: margin(w.ttl), Drain: endLimit / 2, TokenSource: token, TLS: secure})
	if err != nil {
		return w.fail(exitOwn, err)
	}
	signals := make(chan os.Signal, 16)
	if passed := passedOn(); len(passed) > 0 { // of none, Notify would make all
		signal.Notify(signals, passed...)
		defer signal.Stop(signals)
	}
	l, err := w.claim(ctx, client, signals)
	if err != nil {
		_ = client.Close() // the error above is the one that matters
		var s signalError
		if errors.As(err, &s) {
			return exitCode(128 + int(s.Signal))
		}
		return w.fail(claimFailure(err), err)
	}
	code, lost := w.under(ctx, l, func() (*forwarder, error) { return startForwarder(l, proxy, secure) }, path, signals)
	if lost {
		return exitCode(exitLost) // what is left to release runs out by itself; the network may be gone
	}
	if err := client.Close(); err != nil {
		w.say("%v", err)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// claim waits for the lease, or for a signal that ends.
func (w *wrapping) claim(ctx context.Context, client *leaseclient.Client, signals <-chan os.Signal) (*leaseclient.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(w.wait+claimLimit, func() {
		cancel(fmt.Errorf("no answer from %s; is fenceproxy running, and does --control name its control listener?", w.control))
	})
	defer limit.Stop()
	type result struct {
		l   *leaseclient.Lease
		err error
	}
	done := make(chan result, 1)
	go func() {
		l, err := client.Claim(ctx, w.job, leaseclient.WithWait(w.wait))
		done <- result{l, err}
	}()
	for {
		select {
		case r := <-done:
			return r.l, r.err
		case s := <-signals:
			switch s {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				cancel(signalError{s.(syscall.Signal)})
				if r := <-done; r.err == nil {
					w.release(ctx, r.l, endLimit)
				}
				return nil, signalError{s.(syscall.Signal)}
			}
		}
	}
}

// under runs the program under a lease and ends the lease. It returns the exit code, and whether the lease was lost.
func (w *wrapping) under(ctx context.Context, l *leaseclient.Lease, forward func() (*forwarder, error), path string, signals <-chan os.Signal) (code int, lost bool) {
	fwd, err := forward()
	if err != nil {
		w.release(ctx, l, endLimit)
		w.say("%v", err)
		return exitOwn, false
	}
	defer fwd.close()
	cmd := exec.Command(path, w.command[1:]...)
	cmd.Args[0] = w.command[0]
	cmd.Env = environment(l, fwd.url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.stdin, w.stdout, w.stderr
	c, err := startChild(cmd)
	if err != nil {
		w.release(ctx, l, endLimit)
		w.say("%v", err)
		return startFailure(err), false
	}
	if cause := w.watch(l, c, signals); cause != nil {
		w.lost(ctx, l, cause)
		return exitLost, true
	}
	if code := c.code(); code != 0 {
		w.release(ctx, l, endLimit)
		return code, false
	}
	ending, cancel := giveUp(ctx, endLimit)
	defer cancel()
	switch err := l.Complete(ending, nil); {
	case errors.Is(err, leaseclient.ErrLost):
		w.lost(ctx, l, err)
		return exitLost, true
	case err != nil:
		w.say("the program is done, but %v", err)
		return exitOwn, false
	}
	return 0, false
}

// watch returns when the program and all of its group have ended: nil if the program did by itself while it had the
// lease, or else why it has lost it.
func (w *wrapping) watch(l *leaseclient.Lease, c *child, signals <-chan os.Signal) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	interrupts := 0
	for {
		select {
		case <-c.exited:
			w.stop(c, l)
			return l.Err() // it may have ended because its writes were refused
		case s := <-signals:
			c.pass(s.(syscall.Signal))
			if s == syscall.SIGINT {
				if interrupts++; interrupts == 2 {
					c.toGroup(syscall.SIGKILL)
				}
			}
			continue
		case <-l.Context().Done():
		case <-timer.C:
		}
		err := l.Err()
		if left := time.Until(l.Deadline()); err == nil && left > w.grace {
			timer.Reset(min(left-w.grace, lookEvery))
			continue
		}
		if err == nil {
			err = errNoContact
		}
		w.say("%v; stopping the program", err)
		w.stop(c, l)
		return err
	}
}

// stop ends what is left of the group, before the deadline that the lease has now: a renewal that comes through later
// changes nothing any more.
func (w *wrapping) stop(c *child, l *leaseclient.Lease) {
	if !c.stop(time.Now().Add(min(w.grace, time.Until(l.Deadline())))) {
		w.say("processes of group %d are still there after KILL", c.cmd.Process.Pid)
	}
}

// lost gives back what may be left of the lease, and calls --on-lost. A line like those of cron(8)
// wants its variables and redirections, so a shell reads it, unlike the program's own arguments.
func (w *wrapping) lost(ctx context.Context, l *leaseclient.Lease, cause error) {
	w.release(ctx, l, lostLimit)
	if strings.TrimSpace(w.onLost) == "" {
		return
	}
	cmd := exec.Command("/bin/sh", "-c", w.onLost)
	cmd.Env = append(inherited(), "FENCE_JOB_ID="+l.JobID(), fmt.Sprintf("FENCE_GENERATION=%d", l.Generation()), "FENCE_LOST="+cause.Error())
	cmd.Stdout, cmd.Stderr = w.stdout, w.stderr
	c, err := startChild(cmd)
	if err != nil {
		w.say("run --on-lost: %v", err)
		return
	}
	limit := time.NewTimer(onLostLimit)
	defer limit.Stop()
	select {
	case <-c.exited:
	case <-limit.C:
		w.say("--on-lost is ended after %v", onLostLimit)
	}
	c.stop(time.Now())
}

// release gives the job back. A lease that is lost already needs no word about it.
func (w *wrapping) release(ctx context.Context, l *leaseclient.Lease, within time.Duration) {
	ctx, cancel := giveUp(ctx, within)
	defer cancel()
	if err := l.Release(ctx); err != nil && !errors.Is(err, leaseclient.ErrLost) {
		w.say("%v; the lease runs out by itself", err)
	}
}

func leaseID(l *leaseclient.Lease) string {
	h := http.Header{}
	l.Header(h)
	return h.Get(wire.HeaderLease)
}
