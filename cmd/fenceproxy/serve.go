package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/spf13/cobra"
)

func newServeCommand() *cobra.Command {
	var file, upstream, listen, control, data string
	cmd := &cobra.Command{
		Use:   "serve [--config FILE] [--upstream URL]",
		Short: "Run the proxy",
		Long: `serve runs the proxy until SIGTERM or SIGINT, then finishes what is in flight.

With --upstream alone it needs no file: one route for every path, the embedded store,
data on 127.0.0.1:8080 and the lease API on 127.0.0.1:8081.`,
		Example: `  fenceproxy serve --upstream http://127.0.0.1:9000
  fenceproxy serve --config fenceproxy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := os.Environ()
			for name, value := range map[string]string{
				"FENCEPROXY_LISTEN": listen, "FENCEPROXY_CONTROL_LISTEN": control, "FENCEPROXY_STORE_BADGER_DIR": data,
			} {
				if value != "" {
					env = append(env, name+"="+value)
				}
			}
			cfg, err := loadConfig(file, upstream, env)
			if err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.OutOrStdout(), cfg.Log.Level, cfg.Log.Format)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "configuration file")
	f.StringVar(&upstream, "upstream", "", "serve one route to this URL, without a file")
	f.StringVar(&listen, "listen", "", "address of the data listener, instead of the configured one")
	f.StringVar(&control, "control", "", "address of the control listener, instead of the configured one")
	f.StringVar(&data, "data", "", "directory of the embedded store, instead of the configured one")
	cmd.MarkFlagsMutuallyExclusive("config", "upstream")
	return cmd
}

func loadConfig(file, upstream string, env []string) (*config.Config, error) {
	switch {
	case file != "":
		return config.Load(file, env)
	case upstream != "":
		return config.ForUpstream(upstream, env)
	}
	return nil, errors.New("serve needs --config FILE or --upstream URL")
}

// serve runs a daemon until a signal, or until ctx ends, and then drains it. A second
// signal ends the process at once.
func serve(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	d, err := newDaemon(ctx, cfg, log)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	failed := d.start()
	log.Info("ready", "data_addr", d.dataAddr(), "control_addr", d.controlAddr(), "store", d.authority.Info().ID,
		"engine", d.authority.Info().Engine, "version", version)
	select {
	case <-ctx.Done():
		log.Info("draining", "drain_ms", cfg.Drain.Milliseconds())
	case err = <-failed:
		log.Error("listener failed", "error", err.Error())
	}
	stop() // the next signal has its default effect
	clean := d.stop()
	log.Info("stopped", "clean", clean)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
