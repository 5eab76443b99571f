package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/git"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

type buildFlags struct {
	version   string
	config    string
	output    string
	images    []string
	providers []string

	gate gateFlags
}

func newBuildCommand() *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "build [--version vX.Y.Z]",
		Short: "Build a release from the source tree",
		Long: `Build creates DIR/<provider label>/<version>/ from the tree that the release file describes: the
components YAML (one namespace, provider labels, images of the release), metadata.yaml, the cluster
templates and the ClusterClasses. The folder has the layout of clusterctl's local repositories.

The release is checked first, also as an upgrade from the previous release. A release with errors is not
written. --previous names the previous release. Without it, it is the highest lower version that earlier
builds left in DIR/<provider label>/; for a final version, pre-releases are skipped. A new folder has no
previous release, and then publish checks the upgrade.

The tree is not changed, and the same tree results in the same bytes. The version's folder is replaced
as a whole.

In a git repository the commit and the repository are recorded next to the files, in
` + release.SourceFile + `, from which publish creates the provenance.`,
		Example: `  # Every provider of the tree
  clusterctl release build --version v0.1.0

  # The version that the commit is tagged with
  git tag v0.1.0
  clusterctl release build

  # One of several, with an image that was just pushed
  clusterctl release build --version v0.1.0 --provider bootstrap-demo --image controller=ghcr.io/example/demo:v0.1.0

  # With a check of the upgrade from the published release
  clusterctl release build --version v0.2.0 --previous https://github.com/example/cluster-api-provider-demo/releases/latest`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBuild(cmd, flags) },
	}
	cmd.Flags().StringVar(&flags.version, "version", "", "version of the release, e.g. v0.1.0 (default: the tag of the checked-out commit)")
	cmd.Flags().StringVar(&flags.config, "config", release.ConfigFile, "release file; its folder is the root of the tree")
	cmd.Flags().StringVarP(&flags.output, "output", "o", filepath.Join("out", "release"), "folder to write the release to")
	cmd.Flags().StringArrayVar(&flags.images, "image", nil, "image to release instead of the tree's, as NAME=REFERENCE (repeat for more)")
	cmd.Flags().StringSliceVar(&flags.providers, "provider", nil, "label of a provider to build, e.g. infrastructure-libvirt (default: all)")
	addGateFlags(cmd, &flags.gate, "the highest version below in the output folder")
	return cmd
}

func runBuild(cmd *cobra.Command, flags buildFlags) error {
	if flags.version != "" {
		if _, err := release.ParseVersion(flags.version); err != nil {
			return &usageError{err: err}
		}
	}
	images, err := parseImages(flags.images)
	if err != nil {
		return &usageError{err: err}
	}
	config, err := release.Load(flags.config)
	if err != nil {
		return err
	}
	if flags.version == "" {
		if flags.version, err = versionOfHead(cmd.Context(), filepath.Dir(flags.config)); err != nil {
			return &usageError{err: err}
		}
	}
	t, err := tree.Open(filepath.Dir(flags.config))
	if err != nil {
		return err
	}
	checkout := checkedOut(cmd, flags)
	progress := newProgress(cmd.ErrOrStderr())
	result, err := build.Build(cmd.Context(), t, build.Options{
		Config: config, Version: flags.version, Images: images, Providers: flags.providers, Progress: progress.show,
	})
	progress.close()
	noteDeprecations(cmd, t)
	if err != nil {
		return err
	}
	if checkout != nil {
		recordSource(cmd, t, checkout, result.Releases)
	}
	for _, note := range result.Notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", note)
	}
	previous, err := flags.gate.readPrevious(cmd, func() ([]*release.Release, error) {
		if flags.gate.previous != "" {
			options, done := watched(cmd, publish.Options{})
			defer done()
			return publish.PreviousAt(cmd.Context(), flags.gate.previous, result.Releases, options)
		}
		return publish.PreviousInFolder(cmd.Context(), flags.output, result.Releases)
	})
	if err != nil {
		return err
	}
	if err := flags.gate.requireChecked(cmd, result.Releases, previous, config); err != nil {
		return err
	}
	// All releases are built and checked before the first is written: a tree with a broken provider leaves no partial
	// release.
	for _, r := range result.Releases {
		if err := publish.WriteFolder(flags.output, r); err != nil {
			return err
		}
		printRelease(cmd, "built", filepath.Join(flags.output, r.Provider.Label(), r.Version), r)
	}
	return nil
}

// versionOfHead returns the version in the tag of the checked-out commit of a folder.
func versionOfHead(ctx context.Context, dir string) (string, error) {
	tags, err := git.TagsHere(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("no version given, and no tag names one: %w: set --version vX.Y.Z", err)
	}
	versions := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		_, err := release.ParseVersion(tag)
		return err != nil
	})
	switch {
	case len(versions) == 1:
		return versions[0], nil
	case len(versions) > 1:
		return "", fmt.Errorf("no version given, and the checked-out commit has several version tags: %s: set --version", strings.Join(versions, ", "))
	case len(tags) > 0:
		return "", fmt.Errorf("no version given, and the checked-out commit has no tag vX.Y.Z, only %s: set --version vX.Y.Z", strings.Join(tags, ", "))
	}
	return "", errors.New("no version given, and the checked-out commit has no tag: set --version vX.Y.Z, tag the commit with git tag vX.Y.Z, or fetch its tag with git fetch --tags")
}

// checkedOut returns the checkout of the tree, or nil if git does not know it.
func checkedOut(cmd *cobra.Command, flags buildFlags) *git.Checkout {
	root, rootErr := filepath.Abs(filepath.Dir(flags.config))
	output, outputErr := filepath.Abs(flags.output)
	output, relErr := filepath.Rel(root, output)
	if errors.Join(rootErr, outputErr, relErr) != nil {
		output = "." // no path within the tree
	}
	checkout, err := git.CheckedOut(cmd.Context(), flags.config, output)
	if err != nil {
		noteNotRecorded(cmd, err)
		return nil
	}
	return checkout
}

func noteNotRecorded(cmd *cobra.Command, err error) {
	if cmd.Context().Err() == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: the source is not recorded: %v; publish will create no provenance\n", err)
	}
}

// recordSource records the source of releases. It warns about sources that publish will refuse: uncommitted changes,
// and files of the build that git does not track.
func recordSource(cmd *cobra.Command, t *tree.Tree, checkout *git.Checkout, releases []*release.Release) {
	untracked, err := git.Untracked(cmd.Context(), t.Root(), t.FilesRead())
	if err != nil {
		noteNotRecorded(cmd, err)
		return
	}
	changes := slices.Concat(checkout.Changes, untracked)
	if n := len(changes); n > 0 {
		shown := strings.Join(changes[:min(n, 3)], ", ")
		if n > 3 {
			shown += fmt.Sprintf(" and %d more", n-3)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "note: the tree has files that differ from the commit %s (%s): publish refuses this build for servers; commit them and build again\n",
			checkout.Commit, shown)
	}
	for _, r := range releases {
		r.Record(release.Source{
			Repository: checkout.Repository, Commit: checkout.Commit, Modified: len(changes) > 0,
			MergeRef: checkout.MergeRef, Tool: toolVersion(),
		})
	}
}

// parseImages reads NAME=REFERENCE pairs.
func parseImages(pairs []string) (map[string]string, error) {
	images := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, ref, ok := strings.Cut(pair, "=")
		if !ok || name == "" || ref == "" {
			return nil, fmt.Errorf("--image %s: write NAME=REFERENCE, e.g. controller=ghcr.io/example/demo:v0.1.0", pair)
		}
		if _, twice := images[name]; twice {
			return nil, errors.New("--image " + name + " is given twice")
		}
		images[name] = ref
	}
	return images, nil
}

// printRelease lists a release's files.
func printRelease(cmd *cobra.Command, did, dir string, r *release.Release) {
	columns := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "%s %s in %s\n", did, r, dir)
	for _, f := range r.Files {
		fmt.Fprintf(columns, "  %s\t%9d bytes\n", f.Name, len(f.Data))
	}
	_ = columns.Flush() // the output remembers its error
}
