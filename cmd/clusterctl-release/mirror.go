package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/mirror"
)

func newMirrorCommand() *cobra.Command {
	var providers []string
	var to, clusterctlConfig string
	cmd := &cobra.Command{
		Use:   "mirror --provider PROVIDER... --to FOLDER",
		Short: "Copy providers with their images to a site without internet access",
		Long: `Mirror creates a folder with everything that clusterctl needs to install providers offline: their
releases as a local repository, the images that their components name, with all platforms, and
cert-manager with its images. Take the folder to the site, and run "mirror push" there.

A PROVIDER is a label with a version, such as infrastructure-libvirt:v0.1.0. Without a version, the
provider's URL determines it, usually the latest. The URLs and the version of cert-manager come from
clusterctl's configuration. Providers that the folder already has stay.

Credentials for registries are those of docker login and podman login; the token for GitHub is read
from GITHUB_TOKEN. A run that was interrupted is completed by the same command.`,
		Example: `  # On a machine with a network
  clusterctl release mirror --provider cluster-api:v1.14.2 --provider infrastructure-libvirt:v0.1.0 --to mirror

  # At the site, with a copy of the folder
  clusterctl release mirror push mirror --registry registry.example.com/capi
  clusterctl init --config mirror/clusterctl.yaml --infrastructure libvirt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := newProgress(cmd.ErrOrStderr())
			m, err := mirror.Fetch(cmd.Context(), to, providers, clusterctlConfig, progress.report)
			progress.close()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "mirrored in %s: %s\ncopy the folder to the site, and run there:\n  clusterctl release mirror push %s --registry HOST/PATH\n",
				to, summary(m), filepath.Base(to))
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&providers, "provider", nil, "label of a provider with its version, such as infrastructure-libvirt:v0.1.0 (required; repeat for more)")
	cmd.Flags().StringVar(&to, "to", "", "folder of the mirror (required)")
	cmd.Flags().StringVar(&clusterctlConfig, "clusterctl-config", "", "clusterctl's configuration, with the URLs of providers (default: clusterctl's own)")
	_ = cmd.MarkFlagRequired("provider")
	_ = cmd.MarkFlagRequired("to")
	cmd.AddCommand(newMirrorPushCommand(), newMirrorVerifyCommand())
	return cmd
}

func newMirrorPushCommand() *cobra.Command {
	var registry string
	cmd := &cobra.Command{
		Use:   "push FOLDER --registry HOST/PATH",
		Short: "Push the images of a mirror to the site's registry",
		Long: `Push checks a mirror, copies its images to a registry, sets the keys providers, cert-manager and images
of the mirror's clusterctl.yaml, and verifies the result as "mirror verify" does.

The images of a component become HOST/PATH/COMPONENT/NAME, with their tags and digests. An image that the
registry already has is not pushed again, and a tag of another image is never replaced. Credentials are those of
docker login and podman login.`,
		Example: `  clusterctl release mirror push mirror --registry registry.example.com/capi`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			progress := newProgress(cmd.ErrOrStderr())
			m, err := mirror.Push(cmd.Context(), args[0], registry, progress.report)
			if err == nil {
				m, err = mirror.Verify(cmd.Context(), args[0], progress.report)
			}
			progress.close()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "pushed to %s, and verified: %s\nuse it with clusterctl's flag --config %s\n", registry, summary(m), filepath.Join(args[0], mirror.ConfigFile))
			return nil
		},
	}
	cmd.Flags().StringVar(&registry, "registry", "", "host and path of the registry to push to, such as registry.example.com/capi (required)")
	_ = cmd.MarkFlagRequired("registry")
	return cmd
}

func newMirrorVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Verify a mirror, and that the registry has all its images",
		Long: `Verify compares the files and images of a mirror with its manifest, reads the components through clusterctl's
own client with the mirror's clusterctl.yaml, and looks up each image that clusterctl installs in the registry.
Each must have the digest of its source. It ends with status 1 if it finds a defect.`,
		Example: `  clusterctl release mirror verify mirror`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			progress := newProgress(cmd.ErrOrStderr())
			m, err := mirror.Verify(cmd.Context(), args[0], progress.report)
			progress.close()
			var problems mirror.Problems
			if errors.As(err, &problems) {
				for _, problem := range problems {
					fmt.Fprintf(cmd.OutOrStdout(), "problem: %v\n", problem)
				}
				return &findingsError{}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "verified: %s\n", summary(m))
			return nil
		},
	}
}

// summary lists the content of a mirror.
func summary(m *mirror.Manifest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "files: %d, images: %d", len(m.Files), len(m.Images))
	for _, image := range m.Images {
		fmt.Fprintf(&b, "\n  %s %s", image.Component, image.Reference)
	}
	return b.String()
}
