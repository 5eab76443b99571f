package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

func newTemplatesExpandCommand() *cobra.Command {
	var flags renderFlags
	var compared string
	var with []string
	cmd := &cobra.Command{
		Use:   "expand RELEASE",
		Short: "Generate the objects that Cluster API generates for a Cluster with a topology",
		Long: `Expand renders a flavor whose Cluster names a ClusterClass, and prints the objects that Cluster API's
topology controller would generate, with that controller's own code and without a cluster. Names that
Cluster API generates at random end in -00000. With --diff it prints the differences from another release.

Cluster API's own kinds and those of its kubeadm providers are known. If the class uses kinds of other
providers, name their releases with --with: templates then get the defaults of their schemas. They may
also contain a ClusterClass that the release lacks.

` + valuesHelp,
		Example: `  clusterctl release templates expand out/release/infrastructure-demo/v0.1.0 --flavor topology --values values.yaml

  # A class with the control plane of another provider
  clusterctl release templates expand out/release/infrastructure-demo/v0.1.0 --flavor rke2 --values values.yaml --with repository/control-plane-rke2/v1.0.0`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			others, err := readReleases(cmd, with)
			if err != nil {
				return fmt.Errorf("--with: %w", err)
			}
			made, err := expand(cmd, args[0], flags, others)
			if err != nil {
				return err
			}
			if compared == "" {
				yaml, err := utilyaml.FromUnstructured(made)
				if err != nil {
					return fmt.Errorf("writing the objects: %w", err)
				}
				_, err = cmd.OutOrStdout().Write(append(yaml, '\n'))
				return err
			}
			other, err := expand(cmd, compared, flags, others)
			if err != nil {
				return fmt.Errorf("--diff: %w", err)
			}
			printChanges(cmd.OutOrStdout(), made, other)
			return nil
		},
	}
	addRenderFlags(cmd, &flags)
	cmd.Flags().StringArrayVar(&with, "with", nil, "release of another provider whose kinds and classes the flavor uses (repeat for more)")
	cmd.Flags().StringVar(&compared, "diff", "", "another release: print the differences from its objects")
	return cmd
}

// expand returns the objects of a flavor of the release that an argument names, together with other releases.
func expand(cmd *cobra.Command, location string, flags renderFlags, with []*release.Release) ([]unstructured.Unstructured, error) {
	choice, err := chooseTemplate(cmd, location, flags, with)
	if err != nil {
		return nil, err
	}
	made, err := topology.ExpandFlavor(cmd.Context(), choice.release, choice.flavor, choice.values, with...)
	if err != nil {
		return nil, fmt.Errorf("expanding %s of %s: %w", choice.file.Name, choice.release, err)
	}
	return made, nil
}

// printChanges prints a line for each object and field that differs between two lists.
func printChanges(w io.Writer, before, after []unstructured.Unstructured) {
	name := func(o unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }
	for _, b := range before {
		i := slices.IndexFunc(after, func(a unstructured.Unstructured) bool { return name(a) == name(b) })
		if i < 0 {
			fmt.Fprintf(w, "- %s\n", name(b))
			continue
		}
		for _, c := range diff.Fields(b.Object, after[i].Object) {
			fmt.Fprintf(w, "~ %s %s: %s -> %s\n", name(b), c.Path, cmp.Or(c.Before, "none"), cmp.Or(c.After, "none"))
		}
	}
	for _, a := range after {
		if !slices.ContainsFunc(before, func(b unstructured.Unstructured) bool { return name(a) == name(b) }) {
			fmt.Fprintf(w, "+ %s\n", name(a))
		}
	}
}
