package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// patience is how long the story looks on while a write waits for an older one.
const patience = 500 * time.Millisecond

// story plays the three takeovers.
type story struct {
	*stage
	fenced, bare         *paymentAPI
	proxyURL, controlURL string

	workers []*demoWorker
	told    []demoAnswer
	stale   traffic
}

// close waits for what is still being sent. A story that was broken off leaves slow
// writes behind.
func (s *story) close() {
	s.fenced.hurry()
	s.bare.hurry()
	for _, w := range s.workers {
		w.close()
	}
}

// play returns what the fence let through and what its callers were told.
func (s *story) play(ctx context.Context) (demoRecord, error) {
	for _, name := range []string{"A", "B", "C"} {
		w, err := newDemoWorker(name, s.proxyURL, s.bare.url(), s.controlURL)
		if err != nil {
			return demoRecord{}, err
		}
		s.workers = append(s.workers, w)
	}
	a, b, c := s.workers[0], s.workers[1], s.workers[2]
	s.opening()
	if err := s.pausedWorker(ctx, a, b); err != nil {
		return demoRecord{}, err
	}
	if err := s.slowUpstream(ctx, a, c); err != nil {
		return demoRecord{}, err
	}
	if err := s.halfAnUpload(ctx, a, c); err != nil {
		return demoRecord{}, err
	}
	if err := errors.Join(s.fenced.settle(ctx), s.bare.settle(ctx)); err != nil {
		return demoRecord{}, err
	}
	return demoRecord{visits: s.fenced.record(), told: s.told, stale: s.stale}, nil
}

// pausedWorker: A loses its lease while it stands still, and goes on before its
// successor has written anything.
func (s *story) pausedWorker(ctx context.Context, a, b *demoWorker) error {
	const order = "order-42"
	s.scene("1  A worker stands still, loses its lease, and goes on", "two instalments of "+order+" are due")
	if err := s.first(ctx, a, order); err != nil {
		return err
	}
	if err := s.charge(ctx, a, "charges", 1); err != nil {
		return err
	}
	s.row(a.name, "stands still: GC, swap, a frozen VM", blank, blank)
	if err := s.takeOver(ctx, b, order); err != nil {
		return err
	}
	before, beforeBare := s.fenced.traffic(), s.bare.traffic()
	if err := s.charge(ctx, a, "goes on, and charges", 2); err != nil {
		return err
	}
	s.stale = s.fenced.traffic().minus(before)
	s.row("", "  what the API saw of that", seen(s.stale, good), seen(s.bare.traffic().minus(beforeBare), bad))
	// The claim's answer says how far its predecessor came.
	next := int(b.lease.Predecessor.Writes.Applied) + 1
	return s.charge(ctx, b, fmt.Sprintf("learns A did %d, charges", next-1), next)
}

// slowUpstream: a write of A is still under way when C has taken over.
func (s *story) slowUpstream(ctx context.Context, a, c *demoWorker) error {
	const order = "order-43"
	s.scene("2  A write is under way when the lease passes on", "the API is slow")
	if err := s.first(ctx, a, order); err != nil {
		return err
	}
	older, olderBare := a.both(ctx, demoWrite{method: http.MethodPut, what: slowWrite})
	if err := s.arrived(ctx, a, order); err != nil {
		return err
	}
	s.row(a.name, `sets the status to "open"`, cell{"under way", plain}, cell{"under way", plain})
	if err := s.takeOver(ctx, c, order); err != nil {
		return err
	}
	sent := time.Now()
	newer, newerBare := c.both(ctx, demoWrite{method: http.MethodPut, what: "status paid"})
	atOnce := <-newerBare
	next, early := within(newer, patience)
	waiting := cell{"waits for A's write", plain}
	if early {
		waiting = replied(next) // a fence that lets it pass; the record shows it
	}
	s.rowAt(sent, c.name, `sets the status to "paid"`, waiting, replied(atOnce))
	s.fenced.hurry()
	s.bare.hurry()
	got, gotBare := <-older, <-olderBare
	s.answered(a, slowWrite, got)
	s.row(a.name, "has its answer", cell{got.String() + ", Fence-Generation: " + got.floor, plain}, late(gotBare, `overwrites "paid"`))
	if !early {
		next = <-newer
		s.row(c.name, "has its answer", replied(next), blank)
	}
	s.answered(c, "status paid", next)
	return anyError(ctx, atOnce, gotBare)
}

// halfAnUpload: A has sent half of a body when C has taken over.
func (s *story) halfAnUpload(ctx context.Context, a, c *demoWorker) error {
	const order = "order-44"
	s.scene("3  An upload is half done when the lease passes on", "its rest would come late")
	if err := s.first(ctx, a, order); err != nil {
		return err
	}
	rest := make(chan struct{})
	resume := sync.OnceFunc(func() { close(rest) })
	older, olderBare := a.both(ctx, upload(ctx, rest))
	if err := s.arrived(ctx, a, order); err != nil {
		return err
	}
	s.row(a.name, "uploads a statement, 1 of 2 MiB so far", cell{"under way", plain}, cell{"under way", plain})
	if err := s.takeOver(ctx, c, order); err != nil {
		return err
	}
	cut, ok := within(older, patience)
	if ok {
		s.row(a.name, "is answered in the middle of it", cell{cut.String() + ", cut", good}, cell{"under way", plain})
	}
	newer, newerBare := c.both(ctx, upload(ctx, nil))
	wholeBare := <-newerBare
	if !ok { // a fence that cuts nothing; the record shows it
		resume()
		cut = <-older
		s.row(a.name, "has sent all of it", replied(cut), blank)
	}
	whole := <-newer
	s.row(c.name, "uploads its own, whole", replied(whole), replied(wholeBare))
	resume()
	gotBare := <-olderBare
	s.row(a.name, "sends the rest", blank, late(gotBare, "overwrites C's"))
	s.answered(a, "statement", cut)
	s.answered(c, "statement", whole)
	return anyError(ctx, wholeBare, gotBare)
}

// within waits so long for a reply.
func within(c <-chan reply, d time.Duration) (reply, bool) {
	select {
	case r := <-c:
		return r, true
	case <-time.After(d):
		return reply{}, false
	}
}

// first takes a job that nobody holds.
func (s *story) first(ctx context.Context, w *demoWorker, job string) error {
	if err := w.claim(ctx, job); err != nil {
		return err
	}
	s.row(w.name, fmt.Sprintf("claims %s, a lease of %v", job, demoTTL), generation(w), blank)
	return nil
}

// takeOver takes a job when the lease of its holder has run out.
func (s *story) takeOver(ctx context.Context, w *demoWorker, job string) error {
	if err := w.claim(ctx, job); err != nil {
		return err
	}
	if w.lease.Predecessor == nil {
		return fmt.Errorf("claim %s for %s: the answer names no predecessor", job, w.name)
	}
	s.row(w.name, "has waited out the lease, and claims", generation(w), blank)
	return nil
}

// charge is one write both ways, to its end.
func (s *story) charge(ctx context.Context, w *demoWorker, does string, instalment int) error {
	wr := demoWrite{method: http.MethodPost, what: fmt.Sprint("instalment ", instalment)}
	fenced, bare := w.both(ctx, wr)
	got, gotBare := <-fenced, <-bare
	s.answered(w, wr.what, got)
	doubled := replied(gotBare)
	if got.reason != "" {
		doubled.tone = bad
	}
	s.row(w.name, fmt.Sprintf("%s instalment %d", does, instalment), replied(got), doubled)
	return anyError(ctx, gotBare)
}

func (s *story) answered(w *demoWorker, what string, r reply) {
	s.told = append(s.told, demoAnswer{w.name, w.lease.JobID, what, r.String(), r.floor})
}

// arrived waits until both APIs have begun with the worker's write.
func (s *story) arrived(ctx context.Context, w *demoWorker, order string) error {
	return errors.Join(s.fenced.await(ctx, w.name, order), s.bare.await(ctx, w.name, order))
}

// anyError tells whether the story can go on. What the fence answered, errors too, is the
// record's.
func anyError(ctx context.Context, bare ...reply) error {
	all := []error{context.Cause(ctx)}
	for _, r := range bare {
		all = append(all, r.err)
	}
	return errors.Join(all...)
}
