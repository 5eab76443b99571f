package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/report"
)

func newVerifyCommand() *cobra.Command {
	var key, tokenFile string
	cmd := &cobra.Command{
		Use:   "verify RELEASE",
		Short: "Verify published releases: read them as clusterctl does, and check them",
		Long: `Verify reads a published release, reads every file of it again through clusterctl's own client, compares
the files with the published checksums and provenance, and runs all checks. A RELEASE has the same forms
as for fetch, such as clusterctl's URL of a provider.

With --key, the provenance must be signed with the matching private key; without it, signatures are not
checked. A folder with a clusterctl.yaml is also read with that configuration, as its users do.

It ends with status 1 if it finds a defect.`,
		Example: `  clusterctl release verify https://github.com/OWNER/REPO/releases/v0.1.0/infrastructure-components.yaml
  clusterctl release verify https://github.com/OWNER/REPO/releases/tag/v0.1.0 --key release.pub
  clusterctl release verify out/repository
  clusterctl release verify overrides`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runVerify(cmd, args[0], key, tokenFile) },
	}
	cmd.Flags().StringVar(&key, "key", "", "file with the public key (PEM) that the provenance has to be signed with")
	addTokenFileFlag(cmd, &tokenFile)
	return cmd
}

// verify reads and checks published releases.
func verify(cmd *cobra.Command, location, key string, options publish.Options) (*publish.Verification, *report.Report, error) {
	config, err := loadSuppressions("")
	if err != nil {
		return nil, nil, err
	}
	v, err := publish.Verify(cmd.Context(), location, key, options)
	if err != nil {
		return nil, nil, err
	}
	subjects := make([]*checks.Subject, 0, len(v.Releases))
	folders := make([]string, 0, len(v.Releases))
	for _, r := range v.Releases {
		subjects = append(subjects, &checks.Subject{Release: r, With: v.Releases, Config: configOf(config, r)})
		folders = append(folders, folderOf(location, r))
	}
	findings, err := runChecks(cmd.Context(), subjects, folders)
	return v, findings, err
}

func runVerify(cmd *cobra.Command, location, key, tokenFile string) error {
	progress := newProgress(cmd.ErrOrStderr())
	v, findings, err := verify(cmd, location, key, publish.Options{TokenFile: tokenFile, Progress: progress.show, Report: progress.report})
	progress.close()
	if err != nil {
		return err
	}
	foldText(cmd)
	out := cmd.OutOrStdout()
	for _, note := range v.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	for _, problem := range v.Problems {
		fmt.Fprintf(out, "problem: %v\n", problem)
	}
	findings.Color = wantsColor(out)
	if err := findings.Write("text", out); err != nil {
		return err
	}
	if len(v.Problems) > 0 || findings.Fails(checks.Error) {
		return &findingsError{}
	}
	for _, r := range v.Releases {
		fmt.Fprintf(out, "verified %s: %d files\n", r, len(r.Files))
	}
	return nil
}
