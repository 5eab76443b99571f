package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
)

func newFetchCommand() *cobra.Command {
	var output, tokenFile string
	cmd := &cobra.Command{
		Use:   "fetch RELEASE... --output DIR",
		Short: "Copy published releases to a folder",
		Long: `Fetch reads published releases and writes them to
DIR/<provider label>/<version>/, byte for byte. A RELEASE is a version folder of a local repository,
the repository's root (everything in it), clusterctl's own URL of a provider, or the page of a release
on GitHub or the URL of a package's version on GitLab (all providers in it), or the URL of a local
repository's components file that is served over https.

A token for private releases is read from
--token-file, GITHUB_TOKEN, GITLAB_TOKEN or CI_JOB_TOKEN.`,
		Example: `  clusterctl release fetch out/repository/infrastructure-libvirt/v0.1.0 --output copy
  clusterctl release fetch file:///srv/repository/infrastructure-libvirt/latest/infrastructure-components.yaml --output copy
  clusterctl release fetch https://github.com/kubernetes-sigs/cluster-api/releases/tag/v1.14.2 --output copy`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := readOptions(tokenFile, args...)
			if err != nil {
				return err
			}
			releases, err := readReleasesWith(cmd, args, options)
			if err != nil {
				return err
			}
			for _, r := range releases {
				if err := publish.WriteFolder(output, r); err != nil {
					return err
				}
				printRelease(cmd, "fetched", filepath.Join(output, r.Provider.Label(), r.Version), r)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "folder to write the releases to (required)")
	addTokenFileFlag(cmd, &tokenFile)
	_ = cmd.MarkFlagRequired("output")
	return cmd
}
