package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

type publishFlags struct {
	to   string
	plan bool
	// notes is the file with options.Notes.
	notes   string
	options publish.Options
	gate    gateFlags
}

// publishFlagNames replaces the names of options in messages of pkg/publish by flags. Of two options with a common
// prefix, the longer one comes first.
var publishFlagNames = strings.NewReplacer(
	"Options.Replace", "--replace",
	"Options.TokenFile", "--token-file",
	"Options.Commit", "--commit",
	"Options.NotesFrom", "--notes-from",
	"Options.Notes", "--notes",
	"Options.Draft", "--draft",
	"Options.GitLabRelease", "--gitlab-release",
	"Options.SignKey", "--sign-key",
	"Options.NoProvenance", "--no-provenance",
)

func newPublishCommand() *cobra.Command {
	var flags publishFlags
	cmd := &cobra.Command{
		Use:   "publish RELEASE... --to PLACE",
		Short: "Publish releases to a place that clusterctl reads",
		Long: `Publish copies releases to a place from which clusterctl installs them, and then reads them back through
clusterctl's own client. A RELEASE is the folder of one version (<label>/<version>), a folder that
contains such folders, or the URL of a provider in the form of clusterctl's configuration.

The releases are checked first, also as upgrades from the previous release: that of --previous, of
--notes-from or, without these, the highest lower published version. A release with errors is refused.

On servers, the provenance contains the source that build recorded: the commit, which the version's tag
must name, and the repository. Without a record, no provenance is published. A build with uncommitted
changes is refused (--no-provenance publishes it without provenance).

A version becomes visible as a whole. Publishing the same bytes again does nothing; a version that is
already published with other bytes is refused.

PLACE is one of

    DIR or file:///DIR
        a local repository, with a clusterctl.yaml at its root
    overrides
        clusterctl's overrides folder
    https://github.com/OWNER/REPO
        the releases of a repository on GitHub; the token is read from
        GITHUB_TOKEN or --token-file, and needs contents: write
    https://HOST/api/v4/projects/ID/packages/generic/NAME
        a generic package on GitLab; the token is read from --token-file,
        GITLAB_TOKEN or, in a job, CI_JOB_TOKEN
    https://HOST/api/packages/OWNER/generic/NAME
        a generic package on Gitea or Forgejo; the token is read from
        GITEA_TOKEN or --token-file
    oci://HOST/REPOSITORY
        an OCI registry, for the Cluster API operator; credentials are read
        from OCI_USERNAME and OCI_PASSWORD, or from docker login`,
		Example: `  # A local repository with the built releases
  clusterctl release publish out/release --to out/repository

  # Show what would happen
  clusterctl release publish out/release --to out/repository --plan

  # A release on GitHub; the token is in GITHUB_TOKEN
  clusterctl release publish out/release --to https://github.com/example/cluster-api-provider-demo --notes NOTES.md

  # Let clusterctl use the files of this version instead of the published ones
  clusterctl release publish out/release/infrastructure-libvirt/v0.1.0 --to overrides`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runPublish(cmd, args, flags) },
	}
	cmd.Flags().StringVar(&flags.to, "to", "", "where to publish to: a folder, a file:// URL, \"overrides\" or a server's URL (required)")
	cmd.Flags().BoolVar(&flags.plan, "plan", false, "show what would happen, without changing anything")
	cmd.Flags().BoolVar(&flags.options.Replace, "replace", false, "replace a published pre-release or 0.0.0 version with other bytes")
	cmd.Flags().StringVar(&flags.options.ClusterctlConfig, "clusterctl-config", "", "clusterctl's configuration, for the place \"overrides\" (default: clusterctl's own)")
	addTokenFileFlag(cmd, &flags.options.TokenFile)
	cmd.Flags().StringVar(&flags.options.Commit, "commit", "", "commit to tag if the version has no tag yet (default: the commit that build recorded or, without a record, that of the pipeline)")
	cmd.Flags().StringVar(&flags.notes, "notes", "", "file with the text of the release, in Markdown (default: the changes since the previous release)")
	cmd.Flags().StringVar(&flags.options.NotesFrom, "notes-from", "", "release with which the text compares, or \""+publish.NoNotes+"\" (default: that of --previous, or the highest lower published version)")
	cmd.Flags().BoolVar(&flags.options.Draft, "draft", false, "on GitHub: leave the release as a draft, e.g. to add other files before a person makes it public")
	cmd.Flags().BoolVar(&flags.options.GitLabRelease, "gitlab-release", false, "on GitLab: also create a release of the project with links to the files")
	cmd.Flags().StringVar(&flags.options.SignKey, "sign-key", "", "file with the private key (PEM, Ed25519 or ECDSA) to sign the provenance with, on servers")
	cmd.Flags().BoolVar(&flags.options.NoProvenance, "no-provenance", false, "on servers: publish without provenance, also a build with uncommitted changes; the commit of the release is then unknown")
	addGateFlags(cmd, &flags.gate, "that of --notes-from, or the highest lower published version; none for overrides")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}

func runPublish(cmd *cobra.Command, args []string, flags publishFlags) error {
	options, done := watched(cmd, flags.options)
	text, err := publishTo(cmd, args, flags, options)
	done()
	fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

// publishTo publishes or plans, and returns the report.
func publishTo(cmd *cobra.Command, args []string, flags publishFlags, options publish.Options) (string, error) {
	options.Previous = flags.gate.previous
	if flags.notes != "" {
		notes, err := os.ReadFile(flags.notes)
		if err != nil {
			return "", fmt.Errorf("reading the notes (--notes): %w", err)
		}
		options.Notes = string(notes)
	}
	publisher, err := publish.Open(flags.to, options)
	var unread *fs.PathError
	if errors.As(err, &unread) {
		return "", err // such as an unreadable token file: not an error of the command line
	}
	if err != nil {
		return "", &usageError{err: err}
	}
	releases, err := readReleasesWith(cmd, args, publish.Options{Progress: options.Progress, Report: options.Report})
	if err != nil {
		return "", err
	}
	config, err := loadSuppressions("")
	if err != nil {
		return "", err
	}
	previous, err := flags.gate.readPrevious(cmd, func() ([]*release.Release, error) {
		return publisher.Previous(cmd.Context(), releases)
	})
	if err != nil {
		return "", err
	}
	refused := flags.gate.requireChecked(cmd, releases, previous, config)
	if flags.plan {
		plan, err := publisher.Plan(cmd.Context(), releases)
		if err != nil {
			return "", err
		}
		if refused != nil {
			return publishFlagNames.Replace(plan.String()), refused // the plan applies once the errors are fixed
		}
		return publishFlagNames.Replace(plan.String()), plan.Err()
	}
	if refused != nil {
		return "", refused
	}
	result, err := publisher.Publish(cmd.Context(), releases)
	if err != nil {
		return "", err
	}
	return result.String(), nil
}

// addTokenFileFlag adds the flag of commands that read releases from servers.
func addTokenFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "file with the token for a server (default: the server's variable, such as GITHUB_TOKEN)")
}

// readOptions returns the options for reading these locations. A token in a file is for one server: it is an error if
// the locations name several.
func readOptions(tokenFile string, locations ...string) (publish.Options, error) {
	var hosts []string
	for _, location := range locations {
		u, err := url.Parse(location)
		if err == nil && u.Scheme != "" && u.Host != "" && !slices.Contains(hosts, u.Host) {
			hosts = append(hosts, u.Host)
		}
	}
	if tokenFile != "" && len(hosts) > 1 {
		return publish.Options{}, &usageError{err: fmt.Errorf("--token-file is for one server, and the releases are on %s: use the servers' variables, such as GITHUB_TOKEN and GITLAB_TOKEN", strings.Join(hosts, " and "))}
	}
	return publish.Options{TokenFile: tokenFile}, nil
}

// readReleases reads the releases that the arguments name, each once.
func readReleases(cmd *cobra.Command, args []string) ([]*release.Release, error) {
	return readReleasesWith(cmd, args, publish.Options{})
}

// readReleasesWith is readReleases with options, such as the file with the token.
func readReleasesWith(cmd *cobra.Command, args []string, options publish.Options) ([]*release.Release, error) {
	options, done := watched(cmd, options)
	defer done()
	var releases []*release.Release
	for _, arg := range args {
		options.Progress("reading " + arg)
		found, err := publish.Read(cmd.Context(), arg, options)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			i := slices.IndexFunc(releases, func(other *release.Release) bool { return other.String() == r.String() })
			switch {
			case i < 0:
				releases = append(releases, r)
			case len(releases[i].Differences(r)) > 0:
				return nil, &usageError{err: fmt.Errorf("%s: %s is named before, with other bytes: name one of them", arg, r)}
			}
		}
	}
	return releases, nil
}

// watched returns options that show the progress of reading, unless options already do, and a function that ends it.
func watched(cmd *cobra.Command, options publish.Options) (publish.Options, func()) {
	if options.Progress != nil {
		return options, func() {}
	}
	progress := newProgress(cmd.ErrOrStderr())
	options.Progress, options.Report = progress.show, progress.report
	return options, progress.close
}
