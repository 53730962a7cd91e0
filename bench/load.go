package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// begun is the line that a load prints when its warm-up is over.
const begun = "begun"

// loaded is what a load found, in its last line.
type loaded struct {
	Requests int           `json:"requests"`
	Seconds  float64       `json:"seconds"`
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`
}

// runLoad is the load generator: connections that each send one write after the other.
// It speaks HTTP in prepared bytes, so that it leaves the processors to who is measured.
func runLoad(args []string) error {
	f := flag.NewFlagSet("role-load", flag.ContinueOnError)
	addr := f.String("addr", "", "where to send")
	connections := f.Int("connections", 64, "how many")
	size := f.Int("size", 256, "bytes of each body")
	jobs := f.Int("jobs", 0, "how many, shared out among the connections; one each if zero")
	keys := f.String("keys", "", "the first part of every write's own key; no keys if empty")
	replay := f.Bool("replay", false, "one key per job, so that all but the first writes are replays")
	warmUp := f.Duration("warm-up", 0, "not measured")
	window := f.Duration("window", time.Second, "measured")
	if err := f.Parse(args); err != nil {
		return err
	}
	var measuring, over atomic.Bool
	var answered atomic.Int64 // of those that are measured
	took := make([][]time.Duration, *connections)
	errs := make([]error, *connections)
	var wg, once sync.WaitGroup
	once.Add(*connections)
	for i := range *connections {
		var requests [][]byte
		for job := i; job < max(*jobs, *connections); job += *connections {
			requests = append(requests, request(*addr, job, *size, *keys))
		}
		wg.Go(func() {
			took[i], errs[i] = hammer(*addr, requests, *keys != "" && !*replay, &measuring, &over, &answered, sync.OnceFunc(once.Done))
		})
	}
	once.Wait() // what is replayed must have been made
	time.Sleep(*warmUp)
	fmt.Println(begun)
	start := time.Now()
	measuring.Store(true)
	// At least one answer, however busy the machine is.
	for time.Sleep(*window); answered.Load() == 0 && time.Since(start) < startLimit; {
		time.Sleep(time.Millisecond)
	}
	measuring.Store(false)
	seconds := time.Since(start).Seconds()
	over.Store(true)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return json.NewEncoder(os.Stdout).Encode(loaded{
		Requests: len(all), Seconds: seconds, P50: quantile(all, 0.5), P99: quantile(all, 0.99),
	})
}

// keyDigits is how many digits end a key.
const keyDigits = 10

// request is a fenced write of a job, the same generation for ever. With keys its last
// header is a key that ends in zeros.
func request(host string, job, size int, keys string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /charge HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", host)
	fmt.Fprintf(&b, "Fence-Job-Id: tenant/42/job-%06d\r\nFence-Generation: 7\r\nContent-Length: %d\r\n", job, size)
	if keys != "" {
		fmt.Fprintf(&b, "Idempotency-Key: %s-%0*d\r\n", keys, keyDigits, 0)
	}
	b.WriteString("\r\n")
	b.Write(bytes.Repeat([]byte("x"), size))
	return b.Bytes()
}

// count puts n into the key of a request.
func count(request []byte, n int) {
	end := bytes.Index(request, []byte("\r\n\r\n"))
	for i := end - 1; i >= end-keyDigits; i-- {
		request[i] = '0' + byte(n%10)
		n /= 10
	}
}

// hammer sends the requests in turn, over and over on one connection, and returns how
// long the measured ones took. With fresh each has a key of its own. It calls once when
// each was answered once, or cannot be. Any answer but 200 is an error: a refusal would be
// cheap.
func hammer(addr string, requests [][]byte, fresh bool, measuring, over *atomic.Bool, answered *atomic.Int64, once func()) (took []time.Duration, err error) {
	defer once()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = c.Close() }() // all is said
	br := bufio.NewReaderSize(c, 4<<10)
	for n := 0; !over.Load(); n++ {
		if n == len(requests) {
			once()
		}
		request := requests[n%len(requests)]
		if fresh {
			count(request, n)
		}
		measured := measuring.Load()
		start := time.Now()
		if _, err := c.Write(request); err != nil {
			return nil, fmt.Errorf("send write: %w", err)
		}
		head, err := skipMessage(br)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
			return nil, fmt.Errorf("the answer is %q", head)
		}
		if measured && measuring.Load() {
			took = append(took, time.Since(start))
			answered.Add(1)
		}
	}
	return took, nil
}

// skipMessage reads one message with a Content-Length and returns its first line, which
// is valid until the next read.
func skipMessage(br *bufio.Reader) (first []byte, err error) {
	length := 0
	var line [64]byte
	for n := 0; ; n++ {
		b, err := br.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if n == 0 {
			first = append(line[:0], b[:min(len(b), len(line))]...)
		}
		if len(b) <= 2 {
			break
		}
		const name = "content-length:"
		if len(b) > len(name) && bytes.EqualFold(b[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(b[len(name):]))); err != nil {
				return nil, fmt.Errorf("read length: %w", err)
			}
		}
	}
	if _, err := br.Discard(length); err != nil && err != io.EOF {
		return nil, err
	}
	return first, nil
}
