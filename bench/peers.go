package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// What a fenced write may cost in CPU time, over the same write through a plain proxy.
const (
	bareGoal  = 0.55
	caddyGoal = 0.3
	nginxGoal = 2.0
)

// contender is a proxy that is measured beside the others.
type contender struct {
	name string
	// goal is the most that ours may cost over it; zero for none.
	goal  float64
	child *child // nil if it is not installed
	hop   hop
}

// benchPeers measures the real program beside plain proxies that know nothing of
// fences, all before the same upstream. In each round each has its turn; the others are
// idle.
func benchPeers(ctx context.Context, s settings, r *report) (err error) {
	binary, err := s.program(ctx)
	if err != nil {
		return err
	}
	upstream, err := serving(ctx, "role-upstream")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, upstream.stop()) }()
	ours := &contender{name: "fenceproxy"}
	others := []*contender{
		{name: "httputil.ReverseProxy, tuned", goal: bareGoal},
		{name: "httputil.ReverseProxy, default Transport"},
		{name: "Caddy", goal: caddyGoal},
		{name: "nginx", goal: nginxGoal},
	}
	all := append([]*contender{ours}, others...)
	defer func() {
		for _, c := range all {
			if c.child != nil {
				err = errors.Join(err, c.child.stop())
			}
		}
	}()
	target := "http://" + upstream.addr
	starts := []func() (*child, error){
		func() (*child, error) { return fenceproxy(ctx, binary, s.dir, upstream.addr) },
		func() (*child, error) { return serving(ctx, "role-peer", target) },
		func() (*child, error) { return serving(ctx, "role-peer", target, "default") },
		func() (*child, error) { return startCaddy(ctx, s, upstream.addr) },
		func() (*child, error) { return startNginx(ctx, s, upstream.addr) },
	}
	for i, start := range starts {
		if all[i].child, err = start(); errors.Is(err, exec.ErrNotFound) {
			r.note("peers: %s is not installed here.", all[i].name)
		} else if err != nil {
			return err
		}
	}
	if err := fences(ctx, ours.child.addr); err != nil {
		return err
	}
	for range s.rounds {
		for _, c := range all {
			if c.child == nil {
				continue
			}
			if err := hopRound(ctx, s, c.child, hopConnections, &c.hop); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	for _, c := range others {
		r.beside(ours, c)
	}
	r.note("peers: writes of %d bytes on %d connections, fenced by ours and just passed on by the others; CPU time is of all processes of a proxy, user and system. All keep up to %d unused connections to the upstream, except the default Transport, which keeps 2; all set X-Forwarded-For, -Host and -Proto, and write no access log.", hopBody, hopConnections, peerIdle)
	r.note("peers: Caddy is without compression and admin endpoint; nginx has %d workers with a listening socket each, and connections that never end for their number of requests.", runtime.NumCPU())
	return nil
}

// beside adds the rows of one peer.
func (r *report) beside(ours, peer *contender) {
	what := "CPU per write, beside " + peer.name
	oc := median(ours.hop.cpu)
	mine := fmt.Sprintf("%.1f us", oc)
	if peer.child == nil {
		r.add(what, mine, "not installed", "")
		return
	}
	pc := median(peer.hop.cpu)
	r.progress("peers: %.1f us %s beside %.1f us %s of %s", oc, spread(ours.hop.cpu, "%.1f"), pc, spread(peer.hop.cpu, "%.1f"), peer.name)
	other, ratio := fmt.Sprintf("%.1f us", pc), times(oc/pc)
	if peer.goal > 0 {
		r.judge(what, mine, other, ratio, fmt.Sprintf("<= %.2fx", peer.goal), oc/pc <= peer.goal)
	} else {
		r.add(what, mine, other, ratio)
	}
	os, ps := median(ours.hop.perSecond), median(peer.hop.perSecond)
	r.add("  writes", fmt.Sprintf("%.0f/s", os), fmt.Sprintf("%.0f/s", ps), times(os/ps))
	ot, pt := median(ours.hop.p50), median(peer.hop.p50)
	r.add("  p50", micros(ot), micros(pt), times(float64(ot)/float64(pt)))
	ot, pt = median(ours.hop.p99), median(peer.hop.p99)
	r.add("  p99", micros(ot), micros(pt), times(float64(ot)/float64(pt)))
}

// caddyfile takes the address to listen on and the upstream's.
const caddyfile = `{
	admin off
	auto_https off
	persist_config off
	log {
		level ERROR
	}
}
http://%s {
	reverse_proxy %s {
		transport http {
			compression off
			keepalive_idle_conns %d
			keepalive_idle_conns_per_host %[3]d
		}
	}
}
`

// nginxConf takes a directory, the number of workers, the upstream's address, the number
// of unused connections and the address to listen on.
const nginxConf = `daemon off;
pid %[1]s/nginx.pid;
error_log stderr error;
worker_processes %[2]d;
events {
	worker_connections 4096;
}
http {
	access_log off;
	tcp_nodelay on;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	upstream service {
		server %[3]s;
		keepalive %[4]d;
		keepalive_requests 1000000000;
	}
	server {
		listen %[5]s reuseport;
		location / {
			proxy_pass http://service;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Host $host;
			proxy_set_header X-Forwarded-Proto $scheme;
		}
	}
}
`

// startCaddy starts Caddy before an upstream. The error is exec.ErrNotFound if it is not
// installed.
func startCaddy(ctx context.Context, s settings, upstream string) (*child, error) {
	program, err := exec.LookPath(s.caddy)
	if err != nil {
		return nil, exec.ErrNotFound
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "Caddyfile")
	if err := os.WriteFile(file, fmt.Appendf(nil, caddyfile, addr, upstream, peerIdle), 0o600); err != nil {
		return nil, fmt.Errorf("configure caddy: %w", err)
	}
	return startPlain(ctx, addr, program, "run", "--config", file, "--adapter", "caddyfile")
}

// startNginx starts nginx before an upstream. The error is exec.ErrNotFound if it is not
// installed.
func startNginx(ctx context.Context, s settings, upstream string) (*child, error) {
	program, err := exec.LookPath(s.nginx)
	if err != nil {
		return nil, exec.ErrNotFound
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "nginx.conf")
	text := fmt.Appendf(nil, nginxConf, s.dir, runtime.NumCPU(), upstream, peerIdle, addr)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	return startPlain(ctx, addr, program, "-e", "stderr", "-p", s.dir, "-c", file)
}

// freeAddr is a loopback address that nobody listens on. Where all of 127.0.0.0/8 is loopback it stays free: nobody else
// takes this host.
func freeAddr() (string, error) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	ln, err := net.Listen("tcp", host+":0")
	if err != nil {
		return "", fmt.Errorf("find a free address: %w", err)
	}
	return ln.Addr().String(), ln.Close()
}

// startPlain starts a program that prints nothing, and waits until it listens.
func startPlain(ctx context.Context, addr, name string, args ...string) (*child, error) {
	c, err := startChild(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	c.addr = addr
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return c, conn.Close()
		}
		select {
		case _, more := <-c.lines:
			if !more {
				return nil, errors.Join(fmt.Errorf("%s ended: %s", name, strings.TrimSpace(c.errs.String())), c.stop())
			}
		default:
		}
		if time.Since(began) > startLimit {
			return nil, errors.Join(fmt.Errorf("%s does not listen: %w", name, err), c.stop())
		}
	}
}
