package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/discover"
	"github.com/clusterctl-release/clusterctl-release/pkg/pipeline"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

type initFlags struct {
	output   string
	force    bool
	pipeline string
}

func newInitCommand() *cobra.Command {
	var flags initFlags
	cmd := &cobra.Command{
		Use:   "init [TREE]",
		Short: "Write the release file of a source tree from its contents",
		Long: `Init builds the kustomizations of a tree, treats those with a Deployment with a container "manager" as
providers, and writes clusterctl-release.yaml with their names, types and images, metadata.yaml, cluster
templates and ClusterClasses. Makefiles, workflows, Dockerfiles and scripts show which of them are
released. Comments mark what init could not determine.

With --pipeline it also writes a pipeline that releases tagged commits, and targets for make, which the
tree's makefile includes. An existing release file is then used as it is. Init prints the remaining steps.`,
		Example: `  clusterctl release init
  clusterctl release init --pipeline github
  clusterctl release init ../cluster-api-provider-demo --output -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "."
			if len(args) > 0 {
				root = args[0]
			}
			if flags.pipeline != "" {
				return runInitPipeline(cmd, root, flags)
			}
			if flags.output == "" {
				flags.output = filepath.Join(root, release.ConfigFile)
			}
			return runInit(cmd, root, flags.output, flags.force)
		},
	}
	cmd.Flags().StringVarP(&flags.output, "output", "o", "", "file to write, - for standard output (default: clusterctl-release.yaml in TREE)")
	cmd.Flags().BoolVar(&flags.force, "force", false, "replace existing files")
	cmd.Flags().StringVar(&flags.pipeline, "pipeline", "", "also write a pipeline, for "+strings.Join(pipeline.Names, " or "))
	return cmd
}

func runInit(cmd *cobra.Command, root, output string, force bool) error {
	if output != "-" && !force {
		if _, err := os.Lstat(output); err == nil {
			return fmt.Errorf("%s already exists: edit it, or replace it with --force", output)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for %s: %w", output, err)
		}
	}
	t, err := tree.Open(root)
	if err != nil {
		return err
	}
	progress := newProgress(cmd.ErrOrStderr())
	found, err := discover.Look(cmd.Context(), t, discover.Watch{Building: progress.show, Fetching: progress.report})
	progress.close()
	noteDeprecations(cmd, t)
	if err != nil {
		return err
	}
	data := found.YAML()
	if output == "-" {
		_, err := cmd.OutOrStdout().Write(data)
		return err
	}
	if err := publish.WriteFile(output, data); err != nil {
		return err
	}
	foldText(cmd)
	fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n%s", output, found.Summary())
	return nil
}

// runInitPipeline writes the release file if it is missing, and the pipeline.
func runInitPipeline(cmd *cobra.Command, root string, flags initFlags) error {
	if !slices.Contains(pipeline.Names, flags.pipeline) {
		return &usageError{err: fmt.Errorf("--pipeline %s: use one of %s", flags.pipeline, strings.Join(pipeline.Names, ", "))}
	}
	if flags.output != "" {
		return &usageError{err: fmt.Errorf("--output and --pipeline exclude each other: a pipeline uses %s in the tree", release.ConfigFile)}
	}
	plan, err := pipeline.New(flags.pipeline, root, toolVersion())
	if err != nil {
		return err
	}
	for _, f := range plan.Files {
		if _, err := os.Lstat(filepath.Join(root, f.Path)); err == nil && !f.Extends && !flags.force {
			return fmt.Errorf("%s already exists: edit it, or replace it with --force", filepath.Join(root, f.Path))
		}
	}
	file := filepath.Join(root, release.ConfigFile)
	if _, err := os.Lstat(file); err != nil || flags.force {
		if err := runInit(cmd, root, file, flags.force); err != nil {
			return err
		}
	}
	config, err := release.Load(file)
	if err != nil {
		return err
	}
	for _, f := range plan.Files {
		path := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a part of the tree
			return fmt.Errorf("writing the pipeline: %w", err)
		}
		if err := publish.WriteFile(path, f.Data); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", path)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "left to do:")
	for _, text := range plan.Left(config) {
		fmt.Fprintf(cmd.OutOrStdout(), "  - %s\n", text)
	}
	return nil
}

// noteDeprecations prints the warnings of kustomize on one line.
func noteDeprecations(cmd *cobra.Command, t *tree.Tree) {
	if line := t.Deprecations(); line != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", line)
	}
}
