package main

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
)

// loader reads the configuration anew, in the way in which it was read at the start.
type loader func() (*config.Config, error)

// reloadOn reloads at each signal until ended is closed. It has a goroutine of its own,
// so that files which can not be read for long keep nothing from stopping the proxy.
func (d *daemon) reloadOn(hup <-chan os.Signal, ended <-chan struct{}, load loader) {
	for {
		select {
		case <-hup:
			_ = d.reload(load) // logged and counted
		case <-ended:
			return
		}
	}
}

// reload goes over to what load returns, as a whole or not at all, and says which. The
// error names every fault. Reloads come one after the other.
func (d *daemon) reload(load loader) error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	before := d.cfg.Load()
	err := d.goOver(before, load)
	d.metrics.Reload(err == nil)
	if err != nil {
		d.log.Error("reload refused", "faults", faultLines(err), "effect", "the running configuration stays")
		return err
	}
	now := d.cfg.Load()
	d.log.Info("reloaded", "routes", len(now.Routes),
		"added", routesMissingIn(before, now), "removed", routesMissingIn(now, before))
	return nil
}

// goOver checks everything before it changes anything.
func (d *daemon) goOver(before *config.Config, load loader) error {
	if d.proxy.Draining() {
		return errDraining
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	var faults config.Faults
	files, err := readMaterial(cfg, time.Now())
	for _, err := range []error{err, cfg.CheckReload(before)} {
		var found config.Faults
		errors.As(err, &found)
		faults = append(faults, found...)
	}
	if err := faults.ErrorOrNil(); err != nil {
		return err
	}
	who, err := principalsOf(cfg)
	if err != nil {
		return err
	}
	pool := newSenders(d.senders)
	routes, err := proxyRoutes(cfg, files, pool)
	if err != nil {
		return err
	}
	// From here on only this can fail, and then it changes nothing.
	if err := d.proxy.SetRoutes(routes, cfg.Limits.MaxInFlight, who); err != nil {
		return err
	}
	d.senders = pool
	d.principals.Swap(who)
	d.authority.SetMaxPerJob(cfg.Limits.MaxInFlightPerJob)
	if d.dataTLS != nil {
		d.dataTLS.Use(files.data)
	}
	if d.controlTLS != nil {
		d.controlTLS.Use(files.control)
	}
	d.proxy.Recheck() // now that routes, principals and authorities are all of now
	d.api.use(d.controlHandler(cfg))
	files.warn(d.log)
	warnOfOpenDoors(cfg, d.log)
	d.level.Set(logLevel(cfg))
	d.cfg.Store(cfg)
	return nil
}

// faultLines is one line for each fault.
func faultLines(err error) []string {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return []string{err.Error()}
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = f.String()
	}
	return lines
}

// routesMissingIn are the names of the routes that b has and a has not.
func routesMissingIn(a, b *config.Config) []string {
	names := []string{}
	for _, r := range b.Routes {
		if !slices.ContainsFunc(a.Routes, func(other config.Route) bool { return other.Name == r.Name }) {
			names = append(names, r.Name)
		}
	}
	return names
}
