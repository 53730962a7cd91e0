package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// headTimeout bounds the reception of a request's head, keepTimeout an idle
	// connection from a caller.
	headTimeout = 10 * time.Second
	keepTimeout = 120 * time.Second
	// closeTimeout bounds each step of the shutdown that comes after the drain.
	closeTimeout = 2 * time.Second
)

var errDraining = errors.New("the proxy is draining")

// daemon is the running proxy. It is built in order and stopped in order; both orders
// have reasons, which stand where they happen.
type daemon struct {
	cfg         *config.Config
	log         *slog.Logger
	stopTraces  func(context.Context) error
	store       tokens.Store
	authority   *tokens.Authority
	proxy       *proxy.Proxy
	principals  *auth.Current
	data        *http.Server
	control     *http.Server
	dataLn      net.Listener
	controlLn   net.Listener
	sweeper     *sweeper
	dataDone    chan struct{}
	controlDone chan struct{}
}

// newDaemon opens the store and both listeners. Nothing is served before start.
func newDaemon(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{cfg: cfg, log: log, principals: &auth.Current{}}
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	who, err := principalsOf(cfg)
	if err != nil {
		return nil, err
	}
	d.principals.Swap(who)
	warnOfOpenDoors(cfg, log)
	names := []string{proxy.NoRoute}
	for _, r := range cfg.Routes {
		names = append(names, r.Name)
	}
	codes := make([]string, 0, len(wire.Codes()))
	for _, c := range wire.Codes() {
		codes = append(codes, c.Name)
	}
	metrics := telemetry.NewMetrics(buildInfo(), names, codes)
	tracer, stopTraces, err := telemetry.NewTracer(ctx, cfg.Telemetry.Traces, os.Getenv, buildInfo())
	if err != nil {
		return nil, fmt.Errorf("start traces: %w", err)
	}
	d.stopTraces = stopTraces
	telemetry.ReportExportErrors(log)

	// The store comes before the listeners: a second process on the same
	// directory must end here, not steal the port first.
	if d.store, err = openStore(cfg, metrics, log); err != nil {
		return nil, err
	}
	d.authority, err = tokens.NewAuthority(ctx, d.store, tokens.Options{
		RestartGrace:  cfg.Leases.RestartGrace,
		RestartLinger: longestLinger(cfg),
		MaxPerJob:     cfg.Limits.MaxInFlightPerJob,
	})
	if err != nil {
		return nil, err
	}
	metrics.Observe(
		func() float64 { return float64(d.authority.Held()) },
		func() float64 { return float64(d.authority.Jobs()) },
	)
	routes, err := proxyRoutes(cfg)
	if err != nil {
		return nil, err
	}
	d.proxy, err = proxy.New(proxy.Options{
		Authority: d.authority, Routes: routes, Headers: proxy.Headers(cfg.Headers),
		Principals: d.principals, MaxInFlight: cfg.Limits.MaxInFlight, Metrics: metrics, Tracer: tracer, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	metrics.ObserveUnknown(newUnknownGauge(d.authority).read)
	api := control.New(control.Options{
		Authority: d.authority, Metrics: metrics, Logger: log, Principals: d.principals,
		MinTTL: cfg.Leases.MinTTL, MaxTTL: cfg.Leases.MaxTTL, Ready: d.ready,
		Retention: cfg.Defaults.Idempotency.Retention,
	})
	d.sweeper = newSweeper(d.authority, d.store, metrics, log)
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	d.data = &http.Server{
		Handler: d.proxy, ErrorLog: errorLog,
		ReadHeaderTimeout: headTimeout, IdleTimeout: keepTimeout, MaxHeaderBytes: int(cfg.Limits.MaxHeader),
		// OPTIONS * and everything else is the proxy's to answer.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return d.proxy.Base() },
	}
	d.control = &http.Server{
		Handler: api, ErrorLog: errorLog,
		ReadHeaderTimeout: headTimeout, IdleTimeout: keepTimeout, MaxHeaderBytes: int(cfg.Limits.MaxHeader),
	}
	if d.dataLn, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("listen for data: %w", err)
	}
	if d.controlLn, err = net.Listen("tcp", cfg.Control.Listen); err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	return d, nil
}

// ready tells whether writes can be made durable.
func (d *daemon) ready() error {
	if d.proxy.Draining() {
		return errDraining
	}
	return d.authority.Err()
}

func (d *daemon) dataAddr() string    { return d.dataLn.Addr().String() }
func (d *daemon) controlAddr() string { return d.controlLn.Addr().String() }

// start serves both listeners. The channel tells when one of them fails.
func (d *daemon) start() <-chan error {
	failed := make(chan error, 2)
	d.dataDone, d.controlDone = make(chan struct{}), make(chan struct{})
	run := func(s *http.Server, ln net.Listener, done chan struct{}) {
		defer close(done)
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	d.sweeper.start()
	go run(d.control, d.controlLn, d.controlDone)
	go run(d.data, d.dataLn, d.dataDone)
	return failed
}

// stop drains and ends the daemon. It returns false if writes had to be broken off.
func (d *daemon) stop() bool {
	// First the writes: while they drain, the data listener still answers, so
	// that balancers see refusals and not resets.
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Drain)
	clean := d.proxy.Drain(ctx)
	cancel()
	shut(d.data)
	<-d.dataDone
	// The lease API goes on to the very end, so that workers can renew and
	// release while their last writes finish.
	shut(d.control)
	<-d.controlDone
	d.sweeper.stop()
	d.release()
	return clean
}

// shut closes a server: politely, then at once.
func shut(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close() // what is left are callers that do not read their answers
	}
}

// release gives back what newDaemon opened, as far as it came.
func (d *daemon) release() {
	if d.proxy != nil {
		d.proxy.Close()
	}
	for _, ln := range []net.Listener{d.dataLn, d.controlLn} {
		if ln != nil {
			_ = ln.Close() // a server has closed it already
		}
	}
	// The store last: nothing can want to commit any more.
	if d.store != nil {
		if err := d.store.Close(); err != nil {
			d.log.Error("close store", "error", err.Error())
		}
	}
	if d.stopTraces != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := d.stopTraces(ctx); err != nil {
			d.log.Warn("flush traces", "error", err.Error())
		}
	}
}
