package upstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Server is a recording upstream on a loopback port. All methods are safe for concurrent use.
type Server struct {
	lis  *listener
	http *http.Server
	quit chan struct{}
	once sync.Once
	runs sync.WaitGroup // handlers and the accept loop

	mu          sync.Mutex
	closed      bool
	keepHeaders bool
	ordinal     int64
	records     []*Record
	byID        map[string][]*Record
	gates       map[string]chan struct{} // closed: the request of that id may go on
	replies     map[string]http.HandlerFunc
	changed     chan struct{} // closed at the next event; nil while nobody waits
}

type connKey struct{}

// New starts a server on a free loopback port.
func New() (*Server, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open upstream: %w", err)
	}
	s := newServer(lis)
	s.serve()
	return s, nil
}

func newServer(lis net.Listener) *Server {
	s := &Server{
		lis:         &listener{Listener: lis},
		quit:        make(chan struct{}),
		keepHeaders: true,
		byID:        make(map[string][]*Record),
		gates:       make(map[string]chan struct{}),
		replies:     make(map[string]http.HandlerFunc),
	}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // aborted requests are the subject of the tests, not news
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	return s
}

func (s *Server) serve() {
	s.runs.Go(func() { _ = s.http.Serve(s.lis) }) // ends with ErrServerClosed, which Close caused
}

// Close ends every connection, lets hanging requests go and waits for all handlers.
func (s *Server) Close() {
	s.once.Do(func() { close(s.quit) })
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.http.Close()
	_ = s.lis.Close() // http.Server forgets a listener that it was never given
	s.runs.Wait()
}

// URL is the base address of the server, without a trailing slash.
func (s *Server) URL() string { return "http://" + s.lis.Addr().String() }

// Addr is the server's host and port.
func (s *Server) Addr() string { return s.lis.Addr().String() }

// ForgetHeaders makes the server keep no headers in its records, so that long runs stay small.
func (s *Server) ForgetHeaders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepHeaders = false
}

// Reply lets fn answer the requests to path, after they were recorded and their body was read.
func (s *Server) Reply(path string, fn http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[path] = fn
}

// Release lets the request with this id go on if its behaviour is "hang", also if it has yet to arrive.
func (s *Server) Release(id string) {
	gate := s.gate(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (s *Server) gate(id string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate, ok := s.gates[id]
	if !ok {
		gate = make(chan struct{})
		s.gates[id] = gate
	}
	return gate
}

// Accepted is the number of connections accepted so far.
func (s *Server) Accepted() int { n, _, _ := s.lis.counts(); return n }

// Open is the number of accepted connections that the server has not closed yet.
func (s *Server) Open() int { _, n, _ := s.lis.counts(); return n }

// Received is the number of bytes that arrived so far, on all connections.
func (s *Server) Received() int64 { _, _, n := s.lis.counts(); return n }

// Conns lists the accepted connections in the order of their arrival.
func (s *Server) Conns() []Conn { return s.lis.all() }

// Records lists what was seen so far, in the order of arrival.
func (s *Server) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshot(s.records)
}

// Seen lists the requests that carried this test id.
func (s *Server) Seen(id string) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshot(s.byID[id])
}

func snapshot(records []*Record) []Record {
	out := make([]Record, len(records))
	for i, r := range records {
		out[i] = *r
	}
	return out
}

// Executed counts how often the request with this id took effect.
func (s *Server) Executed(id string) int {
	n := 0
	for _, r := range s.Seen(id) {
		if r.Executed {
			n++
		}
	}
	return n
}

// ExecutedKey counts how often a request of this job under this key took effect.
func (s *Server) ExecutedKey(job, key string) int {
	n := 0
	for _, r := range s.Records() {
		if r.Executed && r.Job == job && r.Key == key {
			n++
		}
	}
	return n
}

// WaitBegin returns the first request with this id as soon as it has arrived, or ctx's error.
func (s *Server) WaitBegin(ctx context.Context, id string) (Record, error) {
	return s.wait(ctx, id, func(Record) bool { return true })
}

// WaitEnd returns the first request with this id that has been dealt with, or ctx's error.
func (s *Server) WaitEnd(ctx context.Context, id string) (Record, error) {
	return s.wait(ctx, id, func(r Record) bool { return r.End != 0 })
}

// WaitBody returns the first request with this id of which at least n bytes of body have arrived, or ctx's error.
func (s *Server) WaitBody(ctx context.Context, id string, n int64) (Record, error) {
	return s.wait(ctx, id, func(r Record) bool { return r.Bytes >= n })
}

func (s *Server) wait(ctx context.Context, id string, enough func(Record) bool) (Record, error) {
	for {
		s.mu.Lock()
		for _, r := range s.byID[id] {
			if enough(*r) {
				found := *r
				s.mu.Unlock()
				return found, nil
			}
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Record{}, fmt.Errorf("wait for request %q at the upstream: %w", id, ctx.Err())
		}
	}
}

// change runs fn under the lock and wakes everyone who waits.
func (s *Server) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// ServeHTTP records one request and serves it as its X-Test-Do header says.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.runs.Done()
	rec := s.begin(r)
	defer s.end(rec)

	how, err := parseBehaviour(r.Header.Get(HeaderDo))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	if how.early != 0 {
		w.Header().Set("Connection", "close")
		w.WriteHeader(how.early)
		return
	}
	if err := s.readBody(rec, r, how.resetMidway); err != nil {
		if errors.Is(err, errMidway) {
			s.hangUp(rec, w)
		}
		panic(http.ErrAbortHandler) // half a request gets no answer
	}
	if how.reset {
		s.hangUp(rec, w)
		return
	}
	reply := s.execute(rec, r, how)
	if how.resetAfterExecute {
		s.hangUp(rec, w)
		return
	}
	if !s.pause(rec, r, how) {
		panic(http.ErrAbortHandler)
	}
	if reply != nil {
		reply(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(how.status)
	if how.status != http.StatusNoContent && how.status != http.StatusNotModified {
		_, _ = fmt.Fprintf(w, "done %s\n", rec.ID) // the caller may be gone; the record says what was done
	}
}

// enter counts a handler in, unless Close already waits for the last one.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.runs.Add(1)
	return true
}

func (s *Server) begin(r *http.Request) *Record {
	rec := &Record{
		BeganAt:       time.Now(),
		ID:            r.Header.Get(HeaderID),
		Job:           r.Header.Get(HeaderJob),
		Key:           r.Header.Get(HeaderKey),
		Method:        r.Method,
		Path:          r.RequestURI,
		ContentLength: r.ContentLength,
		Chunked:       slices.Contains(r.TransferEncoding, "chunked"),
	}
	// A test that marks no generation gets 0, which the oracle leaves alone.
	rec.Generation, _ = strconv.ParseUint(r.Header.Get(HeaderGeneration), 10, 64)
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		rec.Conn = c.id
	}
	s.change(func() {
		s.ordinal++
		rec.Begin = s.ordinal
		if s.keepHeaders {
			rec.Header = r.Header.Clone()
		}
		s.records = append(s.records, rec)
		s.byID[rec.ID] = append(s.byID[rec.ID], rec)
	})
	return rec
}

func (s *Server) end(rec *Record) {
	now := time.Now()
	s.change(func() {
		if rec.End != 0 {
			return
		}
		s.ordinal++
		rec.End = s.ordinal
		rec.EndedAt = now
	})
}

var errMidway = errors.New("reset midway")

func (s *Server) readBody(rec *Record, r *http.Request, resetMidway int64) error {
	sum := sha256.New()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(buf)
		sum.Write(buf[:n])
		if n > 0 {
			s.change(func() { rec.Bytes += int64(n) })
		}
		switch {
		case resetMidway >= 0 && rec.Bytes >= resetMidway: // only this goroutine writes rec.Bytes
			return errMidway
		case errors.Is(err, io.EOF):
			s.change(func() {
				rec.Complete = true
				sum.Sum(rec.Sum[:0])
				if s.keepHeaders {
					rec.Trailer = r.Trailer.Clone()
				}
			})
			return nil
		case err != nil:
			return fmt.Errorf("read body: %w", err)
		}
	}
}

func (s *Server) execute(rec *Record, r *http.Request, how behaviour) http.HandlerFunc {
	var reply http.HandlerFunc
	s.change(func() {
		rec.Executed = how.executes()
		reply = s.replies[r.URL.Path]
	})
	return reply
}

// pause waits as asked and reports whether somebody is still there to answer.
func (s *Server) pause(rec *Record, r *http.Request, how behaviour) bool {
	var gate chan struct{}
	var timer <-chan time.Time
	switch {
	case how.hang:
		gate = s.gate(rec.ID)
	case how.delay > 0:
		t := time.NewTimer(how.delay)
		defer t.Stop()
		timer = t.C
	default:
		return true
	}
	select {
	case <-gate:
		return true
	case <-timer:
		return true
	case <-s.quit:
		return false
	case <-r.Context().Done():
		s.change(func() { rec.Cancelled = true })
		return false
	}
}

// hangUp resets the connection of the request under way. Nothing is done for the request afterwards, so it ends before its
// caller can know.
func (s *Server) hangUp(rec *Record, w http.ResponseWriter) {
	s.end(rec)
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http then closes the connection without an answer
	}
	reset(c)
}
