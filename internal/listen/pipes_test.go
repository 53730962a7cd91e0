package listen

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
)

// pipes is a listener in memory. What is written to one of its connections in a piece is never read
// together with the next one.
type pipes struct {
	made   chan net.Conn
	closed chan struct{}
	once   sync.Once
	heard  atomic.Int64 // requests that a handler or the Refusal has heard of
}

func newPipes() *pipes { return &pipes{made: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial makes a connection. Each direction is a pipe of its own, so that one can end alone.
func (p *pipes) dial() *pipe {
	up, down := new(pipe), new(pipe)
	up.Conn, down.in = net.Pipe()
	down.Conn, up.in = net.Pipe()
	p.made <- down
	return up
}

type pipe struct {
	net.Conn // writes
	in       net.Conn
}

func (p *pipe) Read(b []byte) (int, error)        { return p.in.Read(b) }
func (p *pipe) SetReadDeadline(t time.Time) error { return p.in.SetReadDeadline(t) }
func (p *pipe) CloseWrite() error                 { return p.Conn.Close() }

func (p *pipe) SetDeadline(t time.Time) error {
	_ = p.Conn.SetDeadline(t) // a pipe has them
	return p.in.SetDeadline(t)
}

func (p *pipe) Close() error {
	_ = p.Conn.Close() // a pipe's never fails
	return p.in.Close()
}

// Who answered.
const (
	byHandler = "handler"
	byRefusal = "refusal"
)

// heard is an answer.
type heard struct {
	status   int
	by, text string
}

// say says a stream in pieces of the given sizes, in turn, and then nothing more. It returns all answers.
func (p *pipes) say(stream string, sizes ...int) (all []heard) {
	c := p.dial()
	defer func() { _ = c.Close() }()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for k := 0; len(stream) > 0; k++ {
			n := min(max(sizes[k%len(sizes)], 1), len(stream))
			if _, err := io.WriteString(c, stream[:n]); err != nil {
				break // the server has closed, the answers count
			}
			stream = stream[n:]
		}
		_ = c.CloseWrite() // a pipe's never fails
	}()
	br := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			break
		}
		b, _ := io.ReadAll(res.Body) // what there is
		all = append(all, heard{res.StatusCode, res.Header.Get("X-By"), string(b)})
	}
	_ = c.Close() // before the wait: nobody reads any more
	<-written
	return all
}

// answering reads a request to its end and says so.
func answering(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-By", byHandler)
	if err := framing.Verdict(r.Context()); err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "the body is broken", http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, r.Method) // the caller may be gone
}

// inWords is a Refusal for tests.
func inWords(_ net.Addr, why error) []byte {
	return []byte("HTTP/1.1 400 Bad Request\r\nX-By: " + byRefusal + "\r\nConnection: close\r\n\r\n" + why.Error())
}

// serveIn serves in memory by a listener and a server of ours.
func serveIn(t testing.TB, h http.HandlerFunc) *pipes {
	p := newPipes()
	refusal := func(remote net.Addr, why error) []byte {
		p.heard.Add(1)
		return inWords(remote, why)
	}
	counted := func(w http.ResponseWriter, r *http.Request) {
		p.heard.Add(1)
		h(w, r)
	}
	opt := Options{MaxHead: 64 << 10, Refusal: refusal, Logger: slog.New(slog.DiscardHandler)}
	serveOn(t, NewServer(http.HandlerFunc(counted), opt), New(p, opt))
	return p
}

// serveBare serves in memory by net/http alone.
func serveBare(t testing.TB) *pipes {
	p := newPipes()
	serveOn(t, &http.Server{Handler: http.HandlerFunc(answering), MaxHeaderBytes: 64 << 10, DisableGeneralOptionsHandler: true}, p)
	return p
}

func serveOn(t testing.TB, srv *http.Server, ln net.Listener) {
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends when it is closed
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		<-done
	})
}
