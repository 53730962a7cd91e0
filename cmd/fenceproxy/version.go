package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/spf13/cobra"
)

// version is the release; see CHANGELOG.md.
const version = "0.1.0"

// buildInfo says what this binary was built from, as far as the toolchain recorded it.
func buildInfo() telemetry.Build {
	b := telemetry.Build{Version: version, GoVersion: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	return b
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildInfo()
			line := "fenceproxy " + b.Version
			if b.Commit != "" {
				line += " (" + b.Commit + ")"
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), line, b.GoVersion, runtime.GOOS+"/"+runtime.GOARCH)
			return err
		},
	}
}
