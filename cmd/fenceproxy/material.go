package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/internal/certs"
)

// material is what a configuration names in other files: read, checked and ready for use.
type material struct {
	data, control *certs.Server   // nil for plain HTTP
	upstreams     []*certs.Client // of each route
	// warnings are faults that keep nothing from running.
	warnings config.Faults
}

// readMaterial reads the files that cfg names. Its error is config.Faults, all of them.
func readMaterial(cfg *config.Config, now time.Time) (*material, error) {
	m := &material{upstreams: make([]*certs.Client, len(cfg.Routes))}
	var faults config.Faults
	sort := func(block string, problems []certs.Problem) {
		for _, p := range problems {
			f := cfg.FaultOf(block+"."+p.Key, p.Message)
			if p.Warning {
				m.warnings = append(m.warnings, f)
			} else {
				faults = append(faults, f)
			}
		}
	}
	server := func(block string, t config.ServerTLS) *certs.Server {
		s, problems := certs.ReadServer(certs.ServerFiles{Cert: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile}, now)
		sort(block, problems)
		return s
	}
	m.data = server("tls", cfg.TLS)
	m.control = server("control.tls", cfg.Control.TLS)
	for i, r := range cfg.Routes {
		t := r.UpstreamTLS
		c, problems := certs.ReadClient(certs.ClientFiles{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, ServerName: t.ServerName}, now)
		sort(fmt.Sprintf("routes[%d].upstream_tls", i), problems)
		m.upstreams[i] = c
	}
	return m, faults.ErrorOrNil()
}

// warn logs what is wrong without keeping anything from running.
func (m *material) warn(log *slog.Logger) {
	for _, f := range m.warnings {
		log.Warn("doubtful configuration", "key", f.Key, "warning", f.String())
	}
}
