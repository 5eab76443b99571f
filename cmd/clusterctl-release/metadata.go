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

	"github.com/clusterctl-release/clusterctl-release/pkg/git"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

func newMetadataCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metadata",
		Short: "Show, extend and check metadata.yaml",
		Long: `metadata.yaml maps each release series (major.minor) to its Cluster API contract. clusterctl refuses a
version whose series is missing, and so does every upgrade plan that includes the version.`,
		Example: `  clusterctl release metadata show
  clusterctl release metadata add --version v0.2.0 --contract v1beta2
  clusterctl release metadata check`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMetadataShowCommand(), newMetadataAddCommand(), newMetadataCheckCommand())
	return cmd
}

func newMetadataShowCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "List the release series, and the git tags of each",
		Example: `  clusterctl release metadata show --file provider/metadata.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := metadataPaths(file)
			if err != nil {
				return err
			}
			for i, path := range paths {
				f, err := readMetadata(path)
				if err != nil {
					return err
				}
				// Shown if there are any; a tree without git has none, and show reports no error.
				tags, err := git.Tags(cmd.Context(), filepath.Dir(path))
				if err != nil {
					tags = nil
				}
				if len(paths) > 1 {
					if i > 0 {
						fmt.Fprintln(cmd.OutOrStdout())
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", path)
				}
				fmt.Fprint(cmd.OutOrStdout(), f.Table(tags))
			}
			return nil
		},
	}
	addMetadataFileFlag(cmd, &file)
	return cmd
}

func newMetadataAddCommand() *cobra.Command {
	var file, version, contract string
	cmd := &cobra.Command{
		Use:   "add --version vX.Y.Z --contract CONTRACT",
		Short: "Add the release series of a version",
		Long: `Add inserts the series of a version in the order of the file; comments and all other bytes stay.
A missing file is created. Adding an existing series does nothing.`,
		Example: `  clusterctl release metadata add --version v0.2.0 --contract v1beta2`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runMetadataAdd(cmd, file, version, contract) },
	}
	addMetadataFileFlag(cmd, &file)
	cmd.Flags().StringVar(&version, "version", "", "version whose series to add, e.g. v0.2.0 (required)")
	cmd.Flags().StringVar(&contract, "contract", "", "Cluster API contract of the series, e.g. v1beta2 (required)")
	_ = cmd.MarkFlagRequired("version")
	_ = cmd.MarkFlagRequired("contract")
	return cmd
}

func runMetadataAdd(cmd *cobra.Command, file, version, contract string) error {
	if _, err := release.ParseVersion(version); err != nil {
		return &usageError{err: err}
	}
	paths, err := metadataPaths(file)
	if err != nil {
		return err
	}
	if len(paths) > 1 {
		return &usageError{err: fmt.Errorf("%s names several files: choose one with --file: %s", release.ConfigFile, strings.Join(paths, ", "))}
	}
	path := paths[0]
	f, err := readMetadata(path)
	isMissing := errors.Is(err, fs.ErrNotExist)
	var added *metadata.File
	switch {
	case isMissing:
		added, err = metadata.New(path, version, contract)
	case err == nil:
		added, err = f.Add(version, contract)
	}
	if err != nil {
		return err
	}
	if added == f {
		fmt.Fprintf(cmd.OutOrStdout(), "%s already has the series of %s\n", path, version)
		return nil
	}
	if err := publish.WriteFile(path, added.Data); err != nil {
		return err
	}
	if isMissing {
		fmt.Fprintf(cmd.OutOrStdout(), "created %s with the series of %s, contract %s\n", path, version, contract)
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "added the series of %s, contract %s, to %s\n", version, contract, path)
	}
	return nil
}

func newMetadataCheckCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the series, also against the git tags",
		Long: `Check reports defects that clusterctl refuses or that cause trouble for users: a tag, including
pre-releases, whose series is missing, a contract of the newest series that clusterctl doesn't support,
and series that are duplicated or out of order. It ends with status 1 if it finds an error. The id at
the end of each line is for ` + "`clusterctl release check --explain`" + `.`,
		Example: `  clusterctl release metadata check`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := metadataPaths(file)
			if err != nil {
				return err
			}
			failed := false
			for _, path := range paths {
				bad, err := checkMetadata(cmd, path)
				if err != nil {
					return err
				}
				failed = failed || bad
			}
			if failed {
				return &findingsError{}
			}
			return nil
		},
	}
	addMetadataFileFlag(cmd, &file)
	return cmd
}

// checkMetadata prints the problems of one file and reports whether any of them is an error.
func checkMetadata(cmd *cobra.Command, path string) (bool, error) {
	f, err := readMetadata(path)
	var invalid *metadata.ParseError
	if errors.As(err, &invalid) {
		return printProblems(cmd, path, invalid.Problems), nil
	}
	if err != nil {
		return false, err
	}
	tags, err := git.Tags(cmd.Context(), filepath.Dir(path))
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is not checked against git tags: %v\n", path, err)
	}
	problems := f.Check(f.Newest(), tags)
	if len(problems) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d series, no problems\n", path, len(f.Series()))
	}
	return printProblems(cmd, path, problems), nil
}

// printProblems prints the problems of one file and reports whether any of them is an error.
func printProblems(cmd *cobra.Command, path string, problems []metadata.Problem) bool {
	failed := false
	for _, problem := range problems {
		place := path
		if problem.Line > 0 {
			place = fmt.Sprintf("%s:%d", path, problem.Line)
		}
		foldText(cmd)
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s: %s [%s]\n", place, problem.Severity, problem, problem.ID)
		failed = failed || problem.Severity == metadata.SeverityError
	}
	return failed
}

func addMetadataFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "file", "", "metadata.yaml to use (default: the one that "+release.ConfigFile+" names, else metadata.yaml)")
}

// metadataPaths returns the files to use: the one that the user named, else those of the release file, else
// metadata.yaml.
func metadataPaths(file string) ([]string, error) {
	if file != "" {
		return []string{file}, nil
	}
	config, err := release.Load(release.ConfigFile)
	if errors.Is(err, release.ErrNoConfig) {
		return []string{release.MetadataFile}, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, p := range config.Providers {
		if path := filepath.FromSlash(config.MetadataPath(p)); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func readMetadata(path string) (*metadata.File, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file to read
	if err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	return metadata.Parse(path, data)
}
