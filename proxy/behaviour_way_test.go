package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/listen"
)

// way is one way from the caller to the upstream.
type way struct {
	name string
	// open returns the address that the caller speaks to.
	open func(t *testing.T, s *scene) string
	// added tells which headers the contract adds to what the upstream or the caller sees.
	added func(f field) bool
}

const (
	direct    = "direct"
	bare      = "bare"
	ours      = "fenced, direct sender"
	transport = "fenced, transport sender"
	plain     = "not fenced"
)

// fencedMethods makes every row a write, so that the senders see them all.
var fencedMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO", "get"}

func ways() []way {
	proxied := func(change func(*Route)) func(t *testing.T, s *scene) string {
		return func(t *testing.T, s *scene) string {
			f := newFixture(t, "http://"+s.upstream(), func(rt *Route) {
				rt.Methods, rt.Timeout, rt.IdleTimeout = fencedMethods, sceneTime/2, sceneTime/2
			}, change, func(rt *Route) {
				if s.row.route != nil {
					s.row.route(rt)
				}
			})
			return serveData(t, f.proxy)
		}
	}
	return []way{
		{direct, func(_ *testing.T, s *scene) string { return s.upstream() }, func(field) bool { return false }},
		{bare, openBare, addedByNobody},
		{ours, proxied(func(*Route) {}), addedByUs},
		{transport, proxied(func(rt *Route) { rt.Sender = NewTransportSender(nil, 8) }), addedByUs},
		{plain, proxied(func(rt *Route) { rt.Fencing = FencingOff }), addedByUs},
	}
}

// serveData serves as the program does.
func serveData(t *testing.T, p *Proxy) string {
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opt := listen.Options{MaxHead: 64 << 10, Refusal: p.Unread, Logger: slog.New(slog.DiscardHandler)}
	srv := listen.NewServer(p, opt)
	srv.BaseContext = func(net.Listener) context.Context { return p.Base() }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(listen.New(under, opt)) // ends when it is closed
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), sceneTime)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil { // also what the server still lets a caller read
			t.Error(err)
		}
		<-done
	})
	return under.Addr().String()
}

// openBare serves with the proxy of the standard library, tuned as one would for speed.
func openBare(t *testing.T, s *scene) string {
	u := &url.URL{Scheme: "http", Host: s.upstream()}
	rt := Route{}
	if s.row.route != nil {
		s.row.route(&rt)
	}
	tuned := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ExpectContinueTimeout: time.Second, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10}
	quietly := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			if rt.PreserveHost {
				r.Out.Host = r.In.Host
			}
			if s.row.forwarding {
				r.SetXForwarded()
			}
		},
		Transport: tuned,
		ErrorLog:  quietly,
	})
	srv.Config.ErrorLog = quietly
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		tuned.CloseIdleConnections()
	})
	return srv.Listener.Addr().String()
}

func addedByNobody(field) bool { return false }

// addedByUs are the headers of section "a fenced write" of docs/protocol.md.
func addedByUs(f field) bool {
	switch canonical(f.name) {
	case "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded":
		return true
	case "Fence-Decision", "Fence-Generation", "Fence-Outcome":
		return f.value != "spoofed"
	}
	return false
}

// observe plays a row one way and returns the canonical text of what both sides saw.
func observe(t *testing.T, row *behaviour, w way) (seen []string) {
	var s *scene
	t.Run(w.name, func(t *testing.T) {
		s = newScene(t, row)
		if w.name == bare && row.held {
			s.patience = bareTime
		}
		s.play(w.open(t, s))
	})
	return s.text(w)
}

// text is what was observed, in canonical form.
func (s *scene) text(w way) (out []string) {
	skip := func(f field) bool {
		switch canonical(f.name) {
		case "Fence-Job-Id":
			return true // never sent on by default; the rows of its own are elsewhere
		case "Fence-Generation":
			return f.value != "spoofed"
		case "Date":
			return !strings.Contains(f.value, "2015") // that of the rows; another one was added
		}
		return !s.row.forwarding && w.added(f)
	}
	for _, m := range s.seen {
		first := strings.Split(m.first, " ")
		m.first = strings.Join(first[:len(first)-1], " ")
		out = append(out, m.lines("upstream:", skip)...)
	}
	for _, m := range s.got {
		if m.get("Fence-Decision") == "refused" {
			out = append(out, "caller: "+m.first[:3]+" "+m.get("Fence-Reason")+" by the proxy")
			continue
		}
		if strings.HasPrefix(m.first, "1") {
			m.length = "none"
		}
		out = append(out, m.lines("caller:", func(f field) bool { return skip(f) || w.added(f) })...)
	}
	out = append(out, s.notes...)
	for i := range out {
		out[i] = strings.NewReplacer(s.upstream(), "UPSTREAM", s.proxy, "PROXY").Replace(out[i])
	}
	return out
}

// difference is what has to be taken from one text, and added, to make the other.
func difference(from, to []string) (out []string) {
	common := make([][]int, len(from)+1)
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i, a := range slices.Backward(from) {
		for j, b := range slices.Backward(to) {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a == b {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			i, j = i+1, j+1
		case j == len(to) || i < len(from) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+from[i])
			i++
		default:
			out = append(out, "+ "+to[j])
			j++
		}
	}
	return out
}
