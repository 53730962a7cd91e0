package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/spf13/cobra"
)

func newCheckConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check a configuration file and print what it comes to",
		Long: `check-config prints every fault of a configuration file with file, line and key,
and exits with 1. If there is none it prints the effective configuration, with the
defaults and the FENCEPROXY_ variables applied and without secrets.

The files that it names are read too: a key has to fit its certificate. One that has
expired is a warning.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(args[0], os.Environ())
			var files *material
			if err == nil {
				files, err = readMaterial(cfg, time.Now())
			}
			var faults config.Faults
			if errors.As(err, &faults) {
				for _, f := range faults {
					fmt.Fprintln(cmd.ErrOrStderr(), f)
				}
				return exitCode(1)
			}
			if err != nil {
				return err
			}
			for _, w := range files.warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+w.String())
			}
			out, err := cfg.Redacted()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
}
