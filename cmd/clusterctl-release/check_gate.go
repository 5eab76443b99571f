package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/report"
)

// gateFlags are the flags for the check of a release before build and publish write it.
type gateFlags struct {
	skip     bool
	previous string
}

// addGateFlags adds the flags of the checks; byDefault describes the previous release without --previous.
func addGateFlags(cmd *cobra.Command, flags *gateFlags, byDefault string) {
	cmd.Flags().BoolVar(&flags.skip, "skip-checks", false, "skip the checks of the release")
	cmd.Flags().StringVar(&flags.previous, "previous", "", "previous release, from which users upgrade, or \""+publish.NoPrevious+"\" to check no upgrade (default: "+byDefault+")")
}

// readPrevious reads the previous releases with the function of a command. If the user named one, it has to be
// readable. If a default one is unreadable, the upgrade is not checked, and a warning says so.
func (f gateFlags) readPrevious(cmd *cobra.Command, read func() ([]*release.Release, error)) ([]*release.Release, error) {
	if f.skip || f.previous == publish.NoPrevious {
		return nil, nil
	}
	previous, err := read()
	switch {
	case err == nil:
		return previous, nil
	case f.previous != "":
		return nil, fmt.Errorf("--previous: %w", err)
	case cmd.Context().Err() != nil:
		return nil, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "warning: the upgrade is not checked, because the previous release can't be read (set --previous to another one): %v\n", err)
	return nil, nil
}

// requireChecked refuses releases with errors, and prints them; warnings and notes are counted. The previous releases
// are in the order of the releases, nil if there is none.
func (f gateFlags) requireChecked(cmd *cobra.Command, releases, previous []*release.Release, config *release.Config) error {
	stderr := cmd.ErrOrStderr()
	if f.skip {
		fmt.Fprintln(stderr, "warning: THE CHECKS ARE SKIPPED (--skip-checks): clusterctl may be unable to use this release")
		return nil
	}
	if previous == nil {
		previous = make([]*release.Release, len(releases))
	}
	subjects := make([]*checks.Subject, 0, len(releases))
	sources := newSources(cmd.Context(), config)
	for i, r := range releases {
		subjects = append(subjects, &checks.Subject{Release: r, Previous: previous[i], With: releases, Config: configOf(config, r), Source: sources.of(r)})
		if previous[i] != nil {
			fmt.Fprintf(stderr, "note: %s is checked as an upgrade from %s\n", r, previous[i].Version)
		}
	}
	findings, err := runChecks(cmd.Context(), subjects, make([]string, len(releases)))
	if err != nil {
		return err
	}
	if findings.Count(checks.Error) == 0 {
		if n := findings.Count(checks.Warning); n > 0 {
			fmt.Fprintf(stderr, "note: warnings of the checks: %d; `clusterctl release check` shows them\n", n)
		}
		return nil
	}
	findings.Color = wantsColor(stderr)
	if err := findings.Write("text", stderr); err != nil {
		return err
	}
	fmt.Fprintln(stderr, errorPrefix(stderr)+"the release has errors, and nothing was done: fix them, or turn off wrong findings in "+release.ConfigFile)
	if from := upgradesWithErrors(findings, previous); len(from) > 0 {
		fmt.Fprintf(stderr, "--previous %s continues without the checks of the upgrade from %s: its users then get these errors from `clusterctl upgrade apply`, which may stop after the old manager is deleted and before the new one is installed\n",
			publish.NoPrevious, strings.Join(from, " and "))
	}
	return &findingsError{}
}

// upgradesWithErrors names the previous releases from which an upgrade has errors.
func upgradesWithErrors(findings *report.Report, previous []*release.Release) []string {
	var from []string
	for i, e := range findings.Entries {
		if slices.ContainsFunc(e.Findings, func(f checks.Finding) bool {
			check, err := catalog.All().Find(f.ID)
			return err == nil && check.Group == checks.Upgrade && f.Severity == checks.Error
		}) {
			from = append(from, previous[i].String())
		}
	}
	return from
}
