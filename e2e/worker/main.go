// Command worker is a worker of the black box tests: it does what its standard input says, a command a line, and answers
// each with a line of JSON.
//
//	claim JOB [WAIT]  take the lease
//	write ID          send a write through the lease's transport
//	stalled ID        the same, but the process stops itself (SIGSTOP) between the transport's check and the sending
//	raw ID            send a write with the fence's headers and without the lease client
//	state             tell the state of the lease
//	release           give the job back
//	complete          mark the job as done
//
// WORKER_CONTROL, WORKER_PROXY, WORKER_OWNER and WORKER_TTL configure it. Whenever its lease is lost it says so unasked,
// with did "lost". The one command "post ID" as an argument is an unmodified program instead: it sends one write to
// FENCE_PROXY_URL without any header of the fence, and its exit code is 0 if that was applied.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/upstream"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

func main() {
	if err := work(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func work(args []string) error {
	if len(args) == 2 && args[0] == "post" {
		return post(args[1])
	}
	w, err := newWorker()
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if words := strings.Fields(in.Text()); len(words) > 0 {
			w.tell(w.do(words[0], words[1:]))
		}
	}
	return errors.Join(in.Err(), w.client.Close())
}

// answer is a line of the output.
type answer struct {
	Did        string
	ID         string
	Generation uint64
	State      string
	Status     int
	Reason     string // the proxy's
	Error      string
	Lost       bool   // the error is the loss of the lease
	Why        string // expired, superseded, or else
	// LeftMS is the time until the deadline.
	LeftMS int64
}

type worker struct {
	client *leaseclient.Client
	lease  *leaseclient.Lease
	proxy  string
	mu     sync.Mutex
	out    *json.Encoder
}

func newWorker() (*worker, error) {
	ttl, err := time.ParseDuration(os.Getenv("WORKER_TTL"))
	if err != nil {
		return nil, fmt.Errorf("read WORKER_TTL: %w", err)
	}
	c, err := leaseclient.New(leaseclient.Config{
		Endpoint: os.Getenv("WORKER_CONTROL"), Owner: os.Getenv("WORKER_OWNER"), TTL: ttl, Drain: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &worker{client: c, proxy: os.Getenv("WORKER_PROXY"), out: json.NewEncoder(os.Stdout)}, nil
}

func (w *worker) tell(a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(a) // who does not read does not want to know
}

func (w *worker) do(verb string, args []string) (a answer) {
	a.Did = verb
	ctx := context.Background()
	var err error
	switch {
	case verb == "claim":
		err = w.claim(ctx, args)
	case w.lease == nil:
		err = errors.New("nothing was claimed")
	case verb == "write", verb == "stalled", verb == "raw":
		a.ID = args[0]
		a.Status, a.Reason, err = w.write(verb, args[0])
	case verb == "release":
		err = w.lease.Release(ctx)
	case verb == "complete":
		err = w.lease.Complete(ctx, nil)
	}
	if err != nil {
		a.Error = err.Error()
		a.Lost, a.Why = errors.Is(err, leaseclient.ErrLost), why(err)
	}
	if w.lease != nil {
		a.Generation, a.State = uint64(w.lease.Generation()), w.lease.State().String()
		a.LeftMS = time.Until(w.lease.Deadline()).Milliseconds()
	}
	return a
}

func why(err error) string {
	for text, cause := range map[string]error{
		"expired": leaseclient.ErrExpired, "superseded": leaseclient.ErrSuperseded, "revoked": leaseclient.ErrRevoked,
		"released": leaseclient.ErrReleased, "completed": leaseclient.ErrCompleted, "held": leaseclient.ErrHeld,
		"too-late": leaseclient.ErrTooLate, "unavailable": leaseclient.ErrUnavailable,
	} {
		if errors.Is(err, cause) {
			return text
		}
	}
	return "else"
}

func (w *worker) claim(ctx context.Context, args []string) error {
	opts := []leaseclient.ClaimOption{leaseclient.WithOnLost(func(cause error) {
		w.tell(answer{Did: "lost", Error: cause.Error(), Lost: true, Why: why(cause)})
	})}
	if len(args) > 1 {
		wait, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		opts = append(opts, leaseclient.WithWait(wait))
	}
	l, err := w.client.Claim(ctx, args[0], opts...)
	if err == nil {
		w.lease = l
	}
	return err
}

// write sends one write.
func (w *worker) write(how, id string) (status int, reason string, err error) {
	req, err := http.NewRequest(http.MethodPost, w.proxy+"/charge", strings.NewReader("amount=1"))
	if err != nil {
		return 0, "", err
	}
	mark(req, w.lease.JobID(), uint64(w.lease.Generation()), id)
	send := w.lease.Transport(nil)
	switch how {
	case "raw":
		w.lease.Header(req.Header)
		send = http.DefaultTransport
	case "stalled":
		send = w.lease.Transport(stalling{w})
	}
	resp, err := send.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Fence-Reason"), err
}

// mark says for the record of the upstream whose write it is.
func mark(req *http.Request, job string, generation uint64, id string) {
	req.Header.Set(upstream.HeaderJob, job)
	req.Header.Set(upstream.HeaderGeneration, strconv.FormatUint(generation, 10))
	req.Header.Set(upstream.HeaderID, id)
}

// stalling is the moment at which a pause does the most harm: all checks of the holder are passed. It sends the write
// even if the lease has ended meanwhile, as a packet would that is in the network card.
type stalling struct{ w *worker }

// RoundTrip implements http.RoundTripper.
func (s stalling) RoundTrip(req *http.Request) (*http.Response, error) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	s.w.tell(answer{Did: "stalling"})
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return nil, err
	}
	<-continued // a signal takes its time: without this the write could still be sent before the pause
	return http.DefaultTransport.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
}

// post is what a program does that knows nothing of leases.
func post(id string) error {
	generation, err := strconv.ParseUint(os.Getenv("FENCE_GENERATION"), 10, 64)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, os.Getenv("FENCE_PROXY_URL")+"/charge?a=1;b", strings.NewReader("amount=1"))
	if err != nil {
		return err
	}
	mark(req, os.Getenv("FENCE_JOB_ID"), generation, id)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.Header.Get("Fence-Outcome") != "applied" {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}
