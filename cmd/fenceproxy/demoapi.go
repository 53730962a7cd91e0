package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// slowWrite is the one write over which the payment API takes its time.
const slowWrite = "status open"

// paymentAPI is the upstream of the demo: it does what anybody asks, as often as they
// ask, and remembers it. Safe for concurrent use.
type paymentAPI struct {
	server *http.Server
	ln     net.Listener
	done   chan struct{}
	// hurry ends the slow write.
	hurry context.CancelFunc

	mu     sync.Mutex
	visits []visit
	conns  int
	// changed is closed and replaced whenever a visit comes or ends.
	changed chan struct{}
	watcher func(visit)
}

// visit is a write that reached the API.
type visit struct {
	// worker is the caller's User-Agent.
	worker string
	// order and what name the thing written, as in "order-42" and "instalment 1".
	order, what   string
	arrived, left time.Time
	state         visitState
}

func (v visit) String() string {
	return fmt.Sprintf("%s's %s of %s (%s)", v.worker, v.what, v.order, v.state)
}

type visitState string

const (
	visitOpen visitState = "under way"
	visitDone visitState = "done"
	// visitCut: the body did not come whole, and nothing was done.
	visitCut visitState = "cut off"
)

// startPaymentAPI serves a payment API on a free port. Close it.
func startPaymentAPI() (*paymentAPI, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the payment API: %w", err)
	}
	slow, hurry := context.WithCancel(context.Background())
	a := &paymentAPI{ln: ln, hurry: hurry, done: make(chan struct{}), changed: make(chan struct{})}
	write := func(w http.ResponseWriter, r *http.Request) { a.write(w, r, slow.Done()) }
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}/{what...}", write)
	mux.HandleFunc("PUT /orders/{order}/{what...}", write)
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: headTimeout, ConnState: a.connection}
	// Every request comes on a connection of its own, so that "no connection was
	// opened" says something.
	a.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(a.done)
		_ = a.server.Serve(ln) // callers see a listener that fails
	}()
	return a, nil
}

func (a *paymentAPI) url() string { return "http://" + a.ln.Addr().String() }

func (a *paymentAPI) close() {
	a.hurry()
	shut(a.server)
	<-a.done
}

func (a *paymentAPI) write(w http.ResponseWriter, r *http.Request, slow <-chan struct{}) {
	v := visit{
		worker: r.UserAgent(), order: r.PathValue("order"), what: strings.ReplaceAll(r.PathValue("what"), "/", " "),
		arrived: time.Now(), state: visitOpen,
	}
	i := a.enter(v)
	_, err := io.Copy(io.Discard, r.Body)
	if err == nil && v.what == slowWrite {
		<-slow
	}
	v.state = visitDone
	if err != nil {
		v.state = visitCut
	}
	v.left = time.Now()
	a.leave(i, v)
	if err == nil {
		_, _ = fmt.Fprintf(w, "%s of %s: done\n", v.what, v.order) // a caller that is gone does not undo it
	}
}

func (a *paymentAPI) connection(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conns++
	}
}

func (a *paymentAPI) enter(v visit) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.visits = append(a.visits, v)
	a.wake()
	return len(a.visits) - 1
}

func (a *paymentAPI) leave(i int, v visit) {
	a.mu.Lock()
	a.visits[i] = v
	a.wake()
	watcher := a.watcher
	a.mu.Unlock()
	if watcher != nil {
		watcher(v)
	}
}

// wake needs the lock.
func (a *paymentAPI) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// watch has f called with every visit that ends from now on.
func (a *paymentAPI) watch(f func(visit)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watcher = f
}

// record returns the visits in the order in which they arrived.
func (a *paymentAPI) record() []visit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.visits)
}

// traffic is how much reached an API.
type traffic struct{ requests, connections int }

func (t traffic) minus(u traffic) traffic {
	return traffic{t.requests - u.requests, t.connections - u.connections}
}

func (a *paymentAPI) traffic() traffic {
	a.mu.Lock()
	defer a.mu.Unlock()
	return traffic{len(a.visits), a.conns}
}

// await waits until the worker's write has arrived.
func (a *paymentAPI) await(ctx context.Context, worker, order string) error {
	return a.until(ctx, func(visits []visit) bool {
		return slices.ContainsFunc(visits, func(v visit) bool { return v.worker == worker && v.order == order })
	})
}

// settle waits until nothing is under way.
func (a *paymentAPI) settle(ctx context.Context) error {
	return a.until(ctx, func(visits []visit) bool {
		return !slices.ContainsFunc(visits, func(v visit) bool { return v.state == visitOpen })
	})
}

func (a *paymentAPI) until(ctx context.Context, met func([]visit) bool) error {
	for {
		a.mu.Lock()
		ok, changed := met(a.visits), a.changed
		a.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("wait for the payment API: what was expected did not come")
		}
	}
}
