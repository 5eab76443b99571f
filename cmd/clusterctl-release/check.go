package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/git"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/report"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

type checkFlags struct {
	config   string
	previous string
	with     []string
	format   string
	failOn   string
	list     bool
	explain  string
	token    string
	world    worldFlags
}

func newCheckCommand() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check [RELEASE...]",
		Short: "Check releases against clusterctl's rules and the provider contracts",
		Long: `Check finds defects in releases that clusterctl refuses, that break the provider contracts, or that are known
to fail for users later. A RELEASE is the folder of one version (<label>/<version>), a folder that contains such
folders, or the URL of a provider in the form of clusterctl's configuration. It can be published or not.

With --dump or --live, it checks the owner references in a namespace of a management cluster instead. It
reports what ` + "`clusterctl move`" + ` would lose, and why. It never reads the contents of Secrets from live clusters.

It ends with status 1 if a finding has the severity of --fail-on or a more severe one.`,
		Example: `  # The releases that build wrote
  clusterctl release check out/release

  # As annotations of a pull request
  clusterctl release check out/release --format github --fail-on warning

  # As one page for a browser
  clusterctl release check out/release --format html > check.html

  # A management cluster, before it is moved
  clusterctl release check --live --kubeconfig mgmt.yaml --namespace team-a --fail-on warning

  # Explain a check
  clusterctl release check --explain image-canonical`,
		RunE: func(cmd *cobra.Command, args []string) error { return runCheck(cmd, args, flags) },
	}
	cmd.Flags().StringVar(&flags.config, "config", "", "release file with the findings that are turned off (default: "+release.ConfigFile+", if it exists)")
	cmd.Flags().StringVar(&flags.previous, "previous", "", "previous release, for checks of the upgrade")
	cmd.Flags().StringArrayVar(&flags.with, "with", nil, "release of another provider whose kinds the templates use (repeat for more)")
	cmd.Flags().StringVar(&flags.format, "format", "text", fmt.Sprintf("how to show the findings, one of %v", report.Formats.Names()))
	cmd.Flags().StringVar(&flags.failOn, "fail-on", string(checks.Error), "severity to fail on: error, warning or note")
	addTokenFileFlag(cmd, &flags.token)
	addWorldFlags(cmd, &flags.world)
	cmd.Flags().BoolVar(&flags.list, "list", false, "list all checks")
	cmd.Flags().StringVar(&flags.explain, "explain", "", "print the page of a check, by its id")
	return cmd
}

func runCheck(cmd *cobra.Command, args []string, flags checkFlags) error {
	if flags.format == textFormat || flags.list || flags.explain != "" {
		foldText(cmd)
	}
	switch {
	case flags.list:
		listChecks(cmd.OutOrStdout())
		return nil
	case flags.explain != "":
		check, err := catalog.All().Find(flags.explain)
		if err != nil {
			return &usageError{err: err}
		}
		page, err := check.Page()
		if err != nil {
			return err
		}
		fmt.Fprint(cmd.OutOrStdout(), page)
		return nil
	case len(args) == 0 && !flags.world.asked():
		return withHelp(cmd, errors.New("name a release to check"))
	}
	failOn, err := checks.ParseSeverity(flags.failOn)
	if err != nil {
		return &usageError{err: fmt.Errorf("--fail-on: %w", err)}
	}
	if err := report.Formats.Parse(flags.format); err != nil {
		return &usageError{err: fmt.Errorf("--format: %w", err)}
	}
	findings, problems, failed := checkAll(cmd, args, flags)
	if findings == nil {
		return failed
	}
	findings.Color = wantsColor(cmd.OutOrStdout())
	if err := findings.Write(flags.format, cmd.OutOrStdout()); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if err := incomplete(cmd, problems); err != nil {
		return err
	}
	if findings.Fails(failOn) {
		return &findingsError{}
	}
	return nil
}

// checkAll checks releases, or a dump or a cluster, and returns what it could not read there. If checks could not
// finish, it returns both a report and an error.
func checkAll(cmd *cobra.Command, args []string, flags checkFlags) (*report.Report, []move.Problem, error) {
	if flags.world.asked() {
		return checkWorld(cmd, args, flags.world)
	}
	subjects, folders, err := readSubjects(cmd, args, flags)
	if err != nil {
		return nil, nil, err
	}
	progress := newProgress(cmd.ErrOrStderr())
	progress.show("checking")
	findings, err := runChecks(cmd.Context(), subjects, folders)
	progress.close()
	return findings, nil, err
}

// listChecks prints a line for each check.
func listChecks(w io.Writer) {
	group := checks.Group("")
	for _, c := range catalog.All() {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(w, "%s\n", group)
		}
		fmt.Fprintf(w, "  %-7s  %s: %s\n", c.Severity, c.ID, c.Title)
	}
}

// readSubjects reads the releases to check, with the folders of their files and the context of the checks.
func readSubjects(cmd *cobra.Command, args []string, flags checkFlags) ([]*checks.Subject, []string, error) {
	config, err := loadSuppressions(flags.config)
	if err != nil {
		return nil, nil, err
	}
	options, err := readOptions(flags.token, slices.Concat(args, flags.with, []string{flags.previous})...)
	if err != nil {
		return nil, nil, err
	}
	options, done := watched(cmd, options)
	defer done()
	sources := newSources(cmd.Context(), config)
	with, err := readReleasesWith(cmd, flags.with, options)
	if err != nil {
		return nil, nil, fmt.Errorf("--with: %w", err)
	}
	var releases []*release.Release
	var folders []string
	for _, arg := range args {
		options.Progress("reading " + arg)
		there, err := publish.Read(cmd.Context(), arg, options)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range there {
			releases = append(releases, r)
			folders = append(folders, folderOf(arg, r))
		}
	}
	previous := make([]*release.Release, len(releases))
	if flags.previous != "" {
		if previous, err = publish.PreviousAt(cmd.Context(), flags.previous, releases, options); err != nil {
			return nil, nil, fmt.Errorf("--previous: %w", err)
		}
	}
	var subjects []*checks.Subject
	for i, r := range releases {
		subjects = append(subjects, &checks.Subject{
			Release: r, Previous: previous[i], With: with, Config: configOf(config, r), Source: sources.of(r),
			WantsGraphs: report.ShowsGraphs(flags.format),
		})
	}
	return subjects, folders, nil
}

// loadSuppressions reads the release file with the suppressions; a missing file is fine unless the user named it.
func loadSuppressions(path string) (*release.Config, error) {
	if path != "" {
		return release.Load(path)
	}
	config, err := release.Load(release.ConfigFile)
	if errors.Is(err, release.ErrNoConfig) {
		return nil, nil
	}
	return config, err
}

// configOf returns the entry of a release's provider in a release file, or nil.
func configOf(config *release.Config, r *release.Release) *release.ProviderConfig {
	if config == nil {
		return nil
	}
	for i, p := range config.Providers {
		if p.Provider() == r.Provider {
			return &config.Providers[i]
		}
	}
	return nil
}

// sources knows which releases come from the tree of a release file.
type sources struct {
	source *checks.Source
	// tags are all tags of the tree's repository, and here are those of the checked-out commit.
	tags, here []string
}

// newSources opens the tree of a release file; nil means that there is no file.
func newSources(ctx context.Context, config *release.Config) sources {
	if config == nil {
		return sources{}
	}
	t, err := tree.Open(filepath.Dir(config.Path))
	if err != nil {
		return sources{} // the file was read, but its folder no longer exists
	}
	s := sources{source: &checks.Source{Tree: t, Config: config}}
	// Without a repository, the tree is the only source.
	if s.tags, err = git.Tags(ctx, t.Root()); err == nil {
		if s.here, err = git.TagsHere(ctx, t.Root()); err != nil {
			s.here = nil
		}
	}
	return s
}

// of returns the tree if a release comes from it. A release whose version is tagged at another commit may lack files
// that were added since.
func (s sources) of(r *release.Release) *checks.Source {
	if slices.Contains(s.tags, r.Version) && !slices.Contains(s.here, r.Version) {
		return nil
	}
	return s.source
}

// folderOf returns the folder of a release that was read from a location, or "".
func folderOf(location string, r *release.Release) string {
	for _, candidate := range []string{location, filepath.Join(location, r.Version), filepath.Join(location, r.Provider.Label(), r.Version)} {
		abs, err := filepath.Abs(candidate)
		if err != nil || filepath.Base(abs) != r.Version || filepath.Base(filepath.Dir(abs)) != r.Provider.Label() {
			continue
		}
		if info, err := os.Stat(abs); err == nil && info.IsDir() {
			return filepath.ToSlash(candidate)
		}
	}
	return ""
}

// runChecks checks releases concurrently. If checks could not finish, it returns an error together with a report of the
// findings of all others.
func runChecks(ctx context.Context, subjects []*checks.Subject, folders []string) (*report.Report, error) {
	findings := &report.Report{Entries: make([]report.Entry, len(subjects)), Tool: toolVersion()}
	failed := make([]error, len(subjects))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range subjects {
		group.Go(func() error {
			var result *checks.Result
			if result, failed[i] = catalog.All().Run(ctx, s); result == nil {
				return fmt.Errorf("checking %s: %w", s.Release, failed[i])
			}
			findings.Entries[i] = report.Entry{Result: result, Folder: folders[i]}
			subjects[i] = nil // the content of its files is no longer needed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return findings, errors.Join(failed...)
}
