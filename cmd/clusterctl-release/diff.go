package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
)

func newDiffCommand() *cobra.Command {
	var format, tokenFile string
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what changed between two releases",
		Long: `Diff shows what changed from one release of a provider to another: kinds with their schemas field by
field, variables, flavors and ClusterClasses, permissions, flags, images and webhooks, the contract and
the release series.

Changes that break users come first, marked "Breaking" or, where only users can tell, "May break"; the
JSON report marks them too. Versions that are now deprecated follow them, and then new limits of values.

A version of a kind that is new is compared with the one that was stored, and a
field whose schema says that it was called otherwise, or was elsewhere, is renamed or moved. Whether the
upgrade itself is refused is a matter of check --previous.

Metadata of OLD that can't be read is named and left out; components, and files of NEW, that can't be
read are errors.

OLD and NEW are version folders (<label>/<version>), folders with one version of each of several
providers, or clusterctl's own URLs of a provider.

It ends with status 0 whether there are differences or not; the JSON report says whether there are any.`,
		Example: `  # What is new since the last release?
  clusterctl release diff out/repository/infrastructure-demo/v0.4.0 out/release/infrastructure-demo/v0.5.0

  # For the release notes
  clusterctl release diff \
    https://github.com/example/cluster-api-provider-demo/releases/v0.4.0/infrastructure-components.yaml \
    out/release/infrastructure-demo/v0.5.0 --format markdown`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := readOptions(tokenFile, args...)
			if err != nil {
				return err
			}
			before, err := readReleasesWith(cmd, args[:1], options)
			if err != nil {
				return err
			}
			after, err := readReleasesWith(cmd, args[1:], options)
			if err != nil {
				return err
			}
			differences, err := diff.Sets(before, after)
			if errors.Is(err, diff.ErrSeveral) {
				return &usageError{err: err}
			}
			if err != nil {
				return err
			}
			if len(differences.Differences) == 0 {
				return &usageError{err: fmt.Errorf("%s and %s have no provider in common: there is nothing to compare", args[0], args[1])}
			}
			return differences.Write(format, cmd.OutOrStdout())
		},
	}
	addFormatFlag(cmd, &format, diff.Formats.Parse, fmt.Sprintf("how to show the differences, one of %v", diff.Formats.Names()))
	addTokenFileFlag(cmd, &tokenFile)
	return cmd
}
