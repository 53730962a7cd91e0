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
data on 127.0.0.1:8080 and the lease API on 127.0.0.1:8081.

SIGHUP reads the file again, and the files that it names. What is at fault, or needs a
restart, is logged, and the running configuration stays.`,
		Example: `  fenceproxy serve --upstream http://127.0.0.1:9000
  fenceproxy serve --config fenceproxy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := flagsBefore(os.Environ(), map[string]string{
				"FENCEPROXY_LISTEN": listen, "FENCEPROXY_CONTROL_LISTEN": control, "FENCEPROXY_STORE_BADGER_DIR": data,
			})
			load := func() (*config.Config, error) { return loadConfig(file, upstream, env) }
			cfg, err := load()
			if err != nil {
				return err
			}
			level := new(slog.LevelVar)
			level.Set(logLevel(cfg))
			log, err := telemetry.NewLogger(cmd.OutOrStdout(), level, cfg.Log.Format)
			if err != nil {
				return err
			}
			// net/http has things to say of upstreams that it tells nobody but package log.
			slog.SetLogLoggerLevel(slog.LevelDebug)
			slog.SetDefault(log)
			again := load
			if file == "" {
				again = func() (*config.Config, error) {
					log.Info("started without a file: only the files that FENCEPROXY_ variables name are read again")
					return load()
				}
			}
			return serve(cmd.Context(), cfg, log, level, again)
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

// flagsBefore puts the flags that were given before the environment. Of two variables of
// a name the first one counts, so flags win.
func flagsBefore(environ []string, flags map[string]string) (all []string) {
	for name, value := range flags {
		if value != "" {
			all = append(all, name+"="+value)
		}
	}
	return append(all, environ...)
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

// logLevel is the level of a configuration, which has been checked.
func logLevel(cfg *config.Config) slog.Level {
	level, err := telemetry.ParseLevel(cfg.Log.Level)
	if err != nil {
		return slog.LevelInfo
	}
	return level
}

// serve runs a daemon until a signal, or until ctx ends, and then drains it. A second
// signal ends the process at once; SIGHUP reloads.
func serve(ctx context.Context, cfg *config.Config, log *slog.Logger, level *slog.LevelVar, load loader) error {
	// Before anything else: a SIGHUP that nobody listens to ends the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	defer paceCollector(os.Getenv)()
	d, err := newDaemon(ctx, cfg, log, level)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go d.reloadOn(hup, ended, load)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	failed := d.start()
	log.Info("ready", "data_addr", d.dataAddr(), "control_addr", d.controlAddr(), "store", d.authority.Info().ID,
		"engine", d.authority.Info().Engine, "version", version)
	select {
	case <-ctx.Done():
		log.Info("draining", "drain_ms", d.cfg.Load().Drain.Milliseconds())
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
