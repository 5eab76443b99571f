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
		Long: `Diff shows the changes from one release of a provider to another: kinds with their schemas field by
field, variables, flavors and ClusterClasses, permissions, flags, images and webhooks, the contract and
the release series.

Changes that break users come first, marked "Breaking", or "May break" if it depends on the user; the
JSON report marks them too. Newly deprecated versions follow, and then new limits of values.

A new version of a kind is compared with the stored version of OLD. A field is shown as renamed or
moved if its schema names the old field. To find out whether the upgrade itself is refused, use
check --previous.

Unreadable metadata of OLD is named and skipped; unreadable components and files of NEW are errors.

OLD and NEW are version folders (<label>/<version>), folders with one version of each of several
providers, or URLs of a provider in the form of clusterctl's configuration.

It ends with status 0 with and without differences; the JSON report says whether there are any.`,
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
