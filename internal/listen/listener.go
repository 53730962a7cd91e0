package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
)

const (
	// handshakeTimeout bounds a TLS handshake.
	handshakeTimeout = 10 * time.Second
	// maxHandshakes bounds the handshakes at a time. One more ends the oldest: an honest one
	// takes milliseconds, so the oldest are those that keep silent.
	maxHandshakes = 4096
	// headSlack is what the judge allows a head beyond the server's own limit (net/http adds
	// 4 KiB to it), in bytes. So the server is the first to say no.
	headSlack = 16 << 10
)

// Options of the data listener.
type Options struct {
	// TLS is how it speaks TLS; nil means plain HTTP/1 and HTTP/2 with prior knowledge. A
	// configuration that its GetConfigForClient returns has to name Protocols as well.
	TLS *tls.Config
	// MaxHead bounds a request's head, in bytes.
	MaxHead int
	// MaxConns bounds the connections that are open at a time; zero means no bound. At the
	// bound the connection that has been idle for longest makes room.
	MaxConns int
	// MaxHandshakes bounds the TLS handshakes at a time; 4096 if zero.
	MaxHandshakes int
	// Refusal makes the answer, whole with its head, to a request that no handler hears of: one
	// that net/http does not take, or HTTP on a TLS port. Nil leaves net/http its own words.
	Refusal func(remote net.Addr, why error) []byte
	Logger  *slog.Logger
}

// errPlain is why who speaks HTTP to a TLS port is refused.
var errPlain = errors.New("this port speaks HTTPS only")

// Protocols are what is spoken over TLS, for tls.Config.NextProtos.
func Protocols() []string { return []string{"h2", "http/1.1"} }

// Listener accepts connections for the server of [NewServer]. It is safe for concurrent use.
type Listener struct {
	net.Listener
	opt    Options
	judged framing.Options
	conns  register

	// The rest is for TLS. Handshakes run beside each other, and what they make is accepted
	// from made.
	made    chan net.Conn
	failed  chan error
	closed  chan struct{}
	once    sync.Once
	pending handshakes
	all     sync.WaitGroup
}

// New accepts from ln. The Listener closes it.
func New(ln net.Listener, opt Options) *Listener {
	l := &Listener{Listener: ln, opt: opt, closed: make(chan struct{})}
	l.judged = framing.Options{MaxHead: opt.MaxHead + headSlack, HTTP2: opt.TLS == nil}
	if opt.Refusal != nil {
		l.judged.Refusal = func(remote net.Addr, f framing.Fault) []byte { return opt.Refusal(remote, f) }
	}
	l.conns.most = opt.MaxConns
	if opt.TLS == nil {
		return l
	}
	if l.opt.TLS.NextProtos == nil {
		l.opt.TLS = opt.TLS.Clone()
		l.opt.TLS.NextProtos = Protocols()
	}
	if l.pending.most = opt.MaxHandshakes; l.pending.most == 0 {
		l.pending.most = maxHandshakes
	}
	l.made, l.failed = make(chan net.Conn), make(chan error)
	l.all.Go(l.accept)
	return l
}

// Accept implements net.Listener. The connections are of types that the server knows.
func (l *Listener) Accept() (net.Conn, error) {
	if l.opt.TLS == nil {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		return framing.NewConn(l.conns.add(c), l.judged), nil
	}
	select {
	case c := <-l.made:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Open is how many connections are open now.
func (l *Listener) Open() int { return l.conns.count() }

// Close implements net.Listener. It ends the handshakes that are under way, and waits for that.
// Connections that were accepted stay open.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { close(l.closed) })
	l.pending.closeAll()
	l.all.Wait()
	return err
}

// accept begins a handshake on each new connection.
func (l *Listener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			// The server decides whether it goes on, and when.
			select {
			case l.failed <- err:
				continue
			case <-l.closed:
				return
			}
		}
		tracked := l.conns.add(c)
		if done := l.pending.begin(tracked); done != nil {
			l.all.Go(func() { l.offer(l.handshake(tracked, done)) })
		}
	}
}

// offer hands a connection to Accept.
func (l *Listener) offer(c net.Conn) {
	if c == nil {
		return
	}
	select {
	case l.made <- c:
	case <-l.closed:
		_ = c.Close() // nobody was promised an answer
	}
}

// handshake makes a connection that the server can serve. If it can not it closes it, and returns
// nil. done is called when the handshake is over.
func (l *Listener) handshake(c *conn, done func()) net.Conn {
	t := tls.Server(c, l.opt.TLS)
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout)) // else the bound on their number ends it
	err := t.Handshake()
	done()
	if err != nil {
		l.refused(c, err)
		return nil
	}
	_ = c.SetDeadline(time.Time{}) // the server sets its own
	state := t.ConnectionState()
	if state.NegotiatedProtocol == "h2" {
		return t
	}
	return &secure{Conn: framing.NewConn(t, l.judged), state: state}
}

// refused ends a connection whose handshake failed. Who speaks HTTP to a TLS port is told so.
func (l *Listener) refused(c *conn, err error) {
	l.opt.Logger.Debug("TLS handshake failed", "remote", c.RemoteAddr().String(), "error", err.Error())
	var plain tls.RecordHeaderError
	if l.opt.Refusal != nil && errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
		if _, err := c.Write(l.opt.Refusal(c.RemoteAddr(), errPlain)); err == nil {
			framing.Part(c, l.closed)
		}
	}
	_ = c.Close() // it was of no use
}

// looksLikeHTTP reports whether a connection begins like a request line: with a method in capital
// letters.
func looksLikeHTTP(head [5]byte) bool {
	method, rest, _ := bytes.Cut(head[:], []byte(" "))
	for _, b := range method {
		if b < 'A' || b > 'Z' {
			return false
		}
	}
	return len(method) > 0 && (len(rest) == 0 || rest[0] > ' ' && rest[0] < 0x7f)
}

// secure is HTTP/1 over TLS. net/http asks it for the state of TLS.
type secure struct {
	*framing.Conn
	state tls.ConnectionState
}

// ConnectionState makes net/http set Request.TLS.
func (s *secure) ConnectionState() tls.ConnectionState { return s.state }
