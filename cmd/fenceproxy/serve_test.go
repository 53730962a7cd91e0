package main

import "testing"

func TestAFlagWinsOverAVariable(t *testing.T) {
	env := flagsBefore([]string{"FENCEPROXY_LISTEN=127.0.0.1:1", "FENCEPROXY_CONTROL_LISTEN=127.0.0.1:2"},
		map[string]string{"FENCEPROXY_LISTEN": "127.0.0.1:3", "FENCEPROXY_CONTROL_LISTEN": ""})
	cfg, err := loadConfig("", "http://127.0.0.1:9", env)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "127.0.0.1:3" || cfg.Control.Listen != "127.0.0.1:2" {
		t.Errorf("got %s and %s", cfg.Listen, cfg.Control.Listen)
	}
}
