package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// version is set by the Makefile; a `go install` of a tagged module has its version in the build info.
var version = ""

// toolVersion returns the version of this program.
func toolVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "v0.0.0-dev"
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and of the clusterctl code in it",
		Example: `  clusterctl release version`,
		Args:    cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "clusterctl-release %s", toolVersion())
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, dep := range info.Deps {
					if dep.Path == "sigs.k8s.io/cluster-api" {
						fmt.Fprintf(cmd.OutOrStdout(), " (clusterctl %s, %s)", dep.Version, info.GoVersion)
					}
				}
			}
			fmt.Fprintln(cmd.OutOrStdout())
		},
	}
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the release file, for editors",
		Example: `  clusterctl release schema > clusterctl-release.schema.json

  # then, as the first line of clusterctl-release.yaml:
  # yaml-language-server: $schema=clusterctl-release.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(release.ConfigSchema())
			return err
		},
	}
}
