package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/certs"
	"github.com/fenceproxy/fenceproxy/internal/listen"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// headTimeout bounds the reception of a request's head on the control listener,
	// keepTimeout an idle connection to it.
	headTimeout = 10 * time.Second
	keepTimeout = 120 * time.Second
	// awayTime is for callers that keep their connections: as long as a busy one is
	// likely to pause between two requests.
	awayTime = 250 * time.Millisecond
	// closeTimeout bounds each step of the shutdown that comes after the drain.
	closeTimeout = 2 * time.Second
)

var errDraining = errors.New("the proxy is draining")

// daemon is the running proxy. It is built in order and stopped in order; both orders
// have reasons, which stand where they happen.
type daemon struct {
	cfg         atomic.Pointer[config.Config] // that is in effect
	log         *slog.Logger
	level       *slog.LevelVar // of log
	metrics     *telemetry.Metrics
	stopTraces  func(context.Context) error
	store       tokens.Store
	authority   *tokens.Authority
	proxy       *proxy.Proxy
	reloading   sync.Mutex
	senders     *senders      // under reloading
	api         swap          // the control listener's handler
	principals  *auth.Current // of the control listener; the proxy has its own
	data        *http.Server
	control     *http.Server
	dataTLS     *certs.Listener // nil for plain HTTP
	controlTLS  *certs.Listener // nil for plain HTTP
	dataLn      *listen.Listener
	controlLn   net.Listener
	sweeper     *sweeper
	away        time.Duration // awayTime, but in tests
	dataDone    chan struct{}
	controlDone chan struct{}
}

// newDaemon opens the store and both listeners. Nothing is served before start. level is
// log's, and follows the configuration.
func newDaemon(ctx context.Context, cfg *config.Config, log *slog.Logger, level *slog.LevelVar) (_ *daemon, err error) {
	d := &daemon{log: log, level: level, principals: &auth.Current{}, away: awayTime}
	d.cfg.Store(cfg)
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	files, err := readMaterial(cfg, time.Now())
	if err != nil {
		return nil, err
	}
	files.warn(log)
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
	d.metrics = telemetry.NewMetrics(buildInfo(), names, codes)
	tracer, stopTraces, err := telemetry.NewTracer(ctx, cfg.Telemetry.Traces, os.Getenv, buildInfo())
	if err != nil {
		return nil, fmt.Errorf("start traces: %w", err)
	}
	d.stopTraces = stopTraces
	telemetry.ReportExportErrors(log)

	// The store comes before the listeners: a second process on the same
	// directory must end here, not steal the port first.
	if d.store, err = openStore(cfg, d.metrics, log); err != nil {
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
	d.metrics.Observe(
		func() float64 { return float64(d.authority.Held()) },
		func() float64 { return float64(d.authority.Jobs()) },
	)
	d.senders = newSenders(nil)
	routes, err := proxyRoutes(cfg, files, d.senders)
	if err != nil {
		return nil, err
	}
	var admits func(*tls.ConnectionState) bool
	if files.data != nil {
		d.dataTLS = certs.NewListener(files.data, tls.RequireAndVerifyClientCert, "h2", "http/1.1")
		admits = d.dataTLS.Admits
	}
	d.proxy, err = proxy.New(proxy.Options{
		Authority: d.authority, Routes: routes, Headers: proxy.Headers(cfg.Headers),
		Principals: who, Admits: admits, MaxInFlight: cfg.Limits.MaxInFlight, Metrics: d.metrics, Tracer: tracer, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	d.metrics.ObserveUnknown(newUnknownGauge(d.authority).read)
	d.api.use(d.controlHandler(cfg))
	d.sweeper = newSweeper(d.authority, d.store, d.metrics, log)
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	if files.control != nil {
		// A bearer token is as good as a certificate there.
		d.controlTLS = certs.NewListener(files.control, tls.VerifyClientCertIfGiven, "h2", "http/1.1")
	}
	forData, forControl := mostCallers()
	dataOptions := listen.Options{MaxHead: int(cfg.Limits.MaxHeader), MaxConns: forData, Refusal: d.proxy.Unread, Logger: log}
	if d.dataTLS != nil {
		dataOptions.TLS = d.dataTLS.Config()
	}
	d.data = listen.NewServer(guarded(d.dataTLS, d.proxy), dataOptions)
	d.data.ErrorLog = errorLog
	d.data.BaseContext = func(net.Listener) context.Context { return d.proxy.Base() }
	d.control = &http.Server{
		Handler: guarded(d.controlTLS, &d.api), ErrorLog: errorLog,
		ReadHeaderTimeout: headTimeout, IdleTimeout: keepTimeout, MaxHeaderBytes: int(cfg.Limits.MaxHeader),
		ConnState: listen.Follow, HTTP2: listen.HTTP2(),
	}
	if d.controlTLS != nil {
		d.control.TLSConfig = d.controlTLS.Config()
	}
	dataLn, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for data: %w", err)
	}
	d.dataLn = listen.New(dataLn, dataOptions)
	controlLn, err := net.Listen("tcp", cfg.Control.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	d.controlLn = listen.Bound(controlLn, forControl)
	return d, nil
}

// controlHandler is the lease API by a configuration.
func (d *daemon) controlHandler(cfg *config.Config) http.Handler {
	return control.New(control.Options{
		Authority: d.authority, Metrics: d.metrics, Logger: d.log, Principals: d.principals,
		MinTTL: cfg.Leases.MinTTL, MaxTTL: cfg.Leases.MaxTTL, Ready: d.ready,
		Retention: cfg.Defaults.Idempotency.Retention,
	})
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
		serve := s.Serve
		if s.TLSConfig != nil {
			serve = func(ln net.Listener) error { return s.ServeTLS(ln, "", "") }
		}
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
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
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Load().Drain)
	clean := d.proxy.Drain(ctx)
	cancel()
	d.sendAway()
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

// sendAway goes on refusing for a moment, until nobody is connected. A caller whose idle
// connection is closed under its next request gets no answer, and can not tell whether
// the request was taken; from a refusal it learns that it was not, and that it has to go
// elsewhere.
func (d *daemon) sendAway() {
	enough := time.After(min(d.away, d.cfg.Load().Drain))
	look := time.NewTicker(awayTime / 50)
	defer look.Stop()
	for d.dataLn.Open() > 0 {
		select {
		case <-look.C:
		case <-enough:
			return
		}
	}
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
	// A server has closed it already, if there was one.
	if d.dataLn != nil {
		_ = d.dataLn.Close()
	}
	if d.controlLn != nil {
		_ = d.controlLn.Close()
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
