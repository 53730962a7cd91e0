package main

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/internal/auth"
)

// principalsOf returns who may do something by the configuration; nil if it has no auth
// file.
func principalsOf(cfg *config.Config) (*auth.Principals, error) {
	if cfg.Auth.File == "" {
		return nil, nil
	}
	entries := make([]auth.Entry, 0, len(cfg.Principals))
	for _, p := range cfg.Principals {
		e := auth.Entry{Name: p.Name, Certificate: p.Certificate, Namespace: p.Namespace, Jobs: p.Jobs}
		if p.TokenSHA256 != "" {
			hash, err := hex.DecodeString(p.TokenSHA256)
			if err != nil || len(hash) != len(auth.Hash{}) {
				return nil, fmt.Errorf("read %s: token_sha256 of %q is not a SHA-256", cfg.Auth.File, p.Name)
			}
			token := auth.Hash(hash)
			e.Token = &token
		}
		for _, name := range p.Roles {
			role, ok := auth.RoleNamed(name)
			if !ok {
				return nil, fmt.Errorf("read %s: %q of %q is not a role", cfg.Auth.File, name, p.Name)
			}
			e.Roles |= role
		}
		entries = append(entries, e)
	}
	ps, err := auth.New(entries, cfg.TLS.ClientCAFile != "")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", cfg.Auth.File, err)
	}
	return ps, nil
}

// warnOfOpenDoors logs what the configuration leaves open though it has an auth file.
func warnOfOpenDoors(cfg *config.Config, log *slog.Logger) {
	if cfg.Auth.File == "" {
		return
	}
	if cfg.Control.TLS.CertFile == "" && !isLoopback(cfg.Control.Listen) {
		log.Warn("the control listener takes bearer tokens without TLS: whoever can read its network can take them; set control.tls, or put it behind a proxy that has TLS",
			"control_addr", cfg.Control.Listen)
	}
	if cfg.TLS.ClientCAFile != "" {
		return
	}
	for _, r := range cfg.Routes {
		if r.Fencing != config.FencingOff && !r.RequireLease {
			log.Warn("writes of this route need no credential: whoever reaches the data listener and knows a job and its generation can write; set require_lease, or tls.client_ca_file", "route", r.Name)
		}
	}
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
