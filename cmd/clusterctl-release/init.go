package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/discover"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

func newInitCommand() *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use:   "init [TREE]",
		Short: "Write the release file of a source tree by looking at it",
		Long: `Init builds the kustomizations of a tree, takes those that give a Deployment with a container
"manager" for providers, and writes clusterctl-release.yaml with what it found: their names, types and
images, metadata.yaml, cluster templates and ClusterClasses. Makefiles, workflows, Dockerfiles and
scripts say which of them are released. What it could not tell is in comments.`,
		Example: `  clusterctl release init
  clusterctl release init ../cluster-api-provider-demo --output -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "."
			if len(args) > 0 {
				root = args[0]
			}
			if output == "" {
				output = filepath.Join(root, release.ConfigFile)
			}
			return runInit(cmd, root, output, force)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, - for standard output (default: clusterctl-release.yaml in TREE)")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

func runInit(cmd *cobra.Command, root, output string, force bool) error {
	if output != "-" && !force {
		if _, err := os.Lstat(output); err == nil {
			return fmt.Errorf("%s is there already: edit it, or replace it with --force", output)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for %s: %w", output, err)
		}
	}
	t, err := tree.Open(root)
	if err != nil {
		return err
	}
	progress := newProgress(cmd.ErrOrStderr())
	fetching := progress.show
	if !isTerminal(cmd.ErrOrStderr()) {
		fetching = func(doing string) { fmt.Fprintln(cmd.ErrOrStderr(), doing) } // it may take long, and nothing else shows it
	}
	found, err := discover.Look(cmd.Context(), t, discover.Watch{Building: progress.show, Fetching: fetching})
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
	fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n%s", output, found.Summary())
	return nil
}

// noteDeprecations prints in one line what kustomize warned of.
func noteDeprecations(cmd *cobra.Command, t *tree.Tree) {
	if line := t.Deprecations(); line != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", line)
	}
}
