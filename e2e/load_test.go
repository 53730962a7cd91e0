package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/oracle"
)

// load is what many workers do to a proxy at once, and the notes that they take for the oracle. Workers keep their leases
// across restarts of the proxy: an old lease in the hand of a worker that does not know better is what the fence is for.
type load struct {
	jobs int
	// tireless workers go on when the proxy does not answer: it will be back.
	tireless bool
	ttls     []time.Duration
	workers  []*worker

	mu      sync.Mutex
	answers []oracle.Answer
	acks    []oracle.Ack
	granted int
	stale   int
	applied int
}

// worker is one client. Its fields are touched only by the goroutine that plays it.
type worker struct {
	load   *load
	name   string
	rand   *rand.Rand
	writes int
	claims int
	held   []daemon.Lease // leases that it believes in, the oldest first
}

func newLoad(workers, jobs int, seed uint64) *load {
	l := &load{jobs: jobs, ttls: []time.Duration{60 * time.Millisecond, 120 * time.Millisecond, 300 * time.Millisecond}}
	for i := range workers {
		l.workers = append(l.workers, &worker{load: l, name: fmt.Sprintf("worker-%02d", i),
			rand: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return l
}

// run lets all workers work until stop ends or the proxy is gone, and waits for them. Calls under way end with ctx only, so
// that a stop leaves none of them without its answer.
func (l *load) run(ctx, stop context.Context, control *daemon.Control, writer *daemon.Writer) {
	var all sync.WaitGroup
	for _, w := range l.workers {
		all.Go(func() {
			for stop.Err() == nil {
				if !w.step(ctx, control, writer) && !l.tireless {
					return // the proxy is gone
				}
			}
		})
	}
	all.Wait()
}

// step does one thing and reports whether the proxy still answers.
func (w *worker) step(ctx context.Context, control *daemon.Control, writer *daemon.Writer) bool {
	dice := w.rand.IntN(100)
	switch {
	case len(w.held) == 0 || dice < 20:
		return w.claim(ctx, control)
	case dice < 80:
		return w.write(ctx, writer)
	case dice < 84:
		return w.upload(ctx, writer)
	case dice < 88:
		return w.release(ctx, control)
	case dice < 90:
		return w.revoke(ctx, control)
	case dice < 93:
		return w.renew(ctx, control)
	default: // a stall, often beyond the lease: the worker goes on with what it held
		stall := time.NewTimer(time.Duration(w.rand.IntN(150)) * time.Millisecond)
		defer stall.Stop()
		select {
		case <-stall.C:
		case <-ctx.Done():
		}
		return true
	}
}

func (w *worker) lease() daemon.Lease { return w.held[w.rand.IntN(len(w.held))] }

func (w *worker) claim(ctx context.Context, control *daemon.Control) bool {
	w.claims++
	claim := fmt.Sprintf("%s-c%d", w.name, w.claims)
	job := fmt.Sprintf("job-%03d", w.rand.IntN(w.load.jobs))
	start := time.Now()
	r, err := control.Claim(ctx, job, w.name, w.load.ttls[w.rand.IntN(len(w.load.ttls))], daemon.Fields{"claim_id": claim})
	if err != nil {
		return false
	}
	if r.Status != 201 {
		return true
	}
	got := r.Lease()
	w.load.ack(oracle.Ack{Job: job, Floor: got.Generation, Start: start, End: time.Now(), Claim: claim})
	if w.held = append(w.held, got); len(w.held) > 6 {
		w.held = w.held[1:]
	}
	return true
}

func (w *worker) release(ctx context.Context, control *daemon.Control) bool {
	l := w.lease()
	start := time.Now()
	r, err := control.Release(ctx, l, nil)
	return w.ended(l, start, r, err)
}

func (w *worker) revoke(ctx context.Context, control *daemon.Control) bool {
	l := w.lease()
	start := time.Now()
	r, err := control.Revoke(ctx, l.Job, l.Generation, "load")
	return w.ended(l, start, r, err)
}

// ended notes that a generation was closed. The worker keeps the lease in its hand and goes on to write under it.
func (w *worker) ended(l daemon.Lease, start time.Time, r daemon.Reply, err error) bool {
	if err != nil {
		return false
	}
	if r.Status == 200 {
		w.load.ack(oracle.Ack{Job: l.Job, Floor: l.Generation + 1, Start: start, End: time.Now(), AtLeast: true})
	}
	return true
}

func (w *worker) renew(ctx context.Context, control *daemon.Control) bool {
	_, err := control.Renew(ctx, w.lease(), nil)
	return err == nil
}

func (w *worker) write(ctx context.Context, writer *daemon.Writer) bool {
	do := [...]string{"", "", "delay=2ms", "delay=15ms", "delay=60ms", "status=500", "status=404", "reset",
		"reset-after-execute"}
	write := daemon.Write{Do: do[w.rand.IntN(len(do))], Body: []byte("amount=1")}
	if w.rand.IntN(3) == 0 {
		// All workers draw from the same few keys of a job, and go on to new ones at about the same pace.
		write.Key = fmt.Sprintf("k%d", 4*(w.writes/8)+w.rand.IntN(4))
	}
	return w.send(ctx, writer, write)
}

// upload sends a body in pieces, larger than what the route buffers, so that a claim finds it half sent.
func (w *worker) upload(ctx context.Context, writer *daemon.Writer) bool {
	read, feed := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := bytes.Repeat([]byte("x"), 8<<10)
		for range 6 {
			if _, err := feed.Write(piece); err != nil {
				return // cut
			}
			wait := time.NewTimer(10 * time.Millisecond)
			select {
			case <-wait.C:
			case <-ctx.Done():
			}
		}
		_ = feed.Close() // never fails
	}()
	alive := w.send(ctx, writer, daemon.Write{Stream: read})
	_ = read.Close() // frees the feeder if nobody read to the end
	<-done
	return alive
}

func (w *worker) send(ctx context.Context, writer *daemon.Writer, write daemon.Write) bool {
	l := w.lease()
	w.writes++
	write.Job, write.Generation, write.ID = l.Job, l.Generation, fmt.Sprintf("%s-w%d", w.name, w.writes)
	note := oracle.Answer{ID: write.ID, Job: l.Job, Generation: l.Generation, Key: write.Key, Start: time.Now()}
	a, err := writer.Send(ctx, write)
	note.End = time.Now()
	if err == nil {
		note.Status, note.Decision, note.Reason, note.Outcome = a.Status, a.Decision(), a.Reason(), a.Outcome()
	} else { // without a whole answer the caller knows nothing
		note.Failure = fmt.Sprintf("%s, do %q, stream %v: %v", note.End.Sub(note.Start), write.Do, write.Stream != nil, err)
	}
	w.load.note(note)
	if err == nil && a.Floor() > 0 {
		w.load.ack(oracle.Ack{Job: l.Job, Floor: a.Floor(), Start: note.Start, End: note.End})
	}
	return err == nil
}

func (l *load) note(a oracle.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
	if a.Outcome == "applied" {
		l.applied++
	}
	if a.Reason == "stale-generation" {
		l.stale++
	}
}

func (l *load) ack(a oracle.Ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
	if a.Claim != "" {
		l.granted++
	}
}
