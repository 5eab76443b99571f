package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

func newTemplatesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "templates",
		Short: "List the variables of cluster templates, and render them",
		Long:  `Templates shows the variables of a release's cluster templates, and what clusterctl renders from them.`,
		Example: `  clusterctl release templates variables out/release/infrastructure-demo/v0.1.0
  clusterctl release templates render out/release/infrastructure-demo/v0.1.0 --flavor ha --values values.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTemplatesVariablesCommand(), newTemplatesRenderCommand(), newTemplatesExpandCommand())
	return cmd
}

func newTemplatesVariablesCommand() *cobra.Command {
	var flavor, format string
	cmd := &cobra.Command{
		Use:   "variables RELEASE",
		Short: "List the variables of the templates, with their defaults and places",
		Example: `  clusterctl release templates variables out/release/infrastructure-demo/v0.1.0
  clusterctl release templates variables out/release/infrastructure-demo/v0.1.0 --flavor ha --format json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := templatesOf(cmd, args[0], flavor)
			if err != nil {
				return err
			}
			return templates.WriteVariables(format, files, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&flavor, "flavor", "", "flavor to list; \"default\" is cluster-template.yaml (default: all)")
	addFormatFlag(cmd, &format, templates.Formats.Parse, "text or json")
	return cmd
}

// templatesOf returns the cluster templates of a release, or the one of a flavor.
func templatesOf(cmd *cobra.Command, location, flavor string) ([]release.File, error) {
	r, err := readOneRelease(cmd, location)
	if err != nil {
		return nil, err
	}
	files := templates.Flavors(r)
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no cluster templates", r)
	}
	if flavor == "" {
		return files, nil
	}
	f, err := flavorOf(r, flavor)
	return []release.File{f}, err
}

// flavorOf returns the template of a flavor; "default" and "" are cluster-template.yaml.
func flavorOf(r *release.Release, flavor string) (release.File, error) {
	if flavor == "default" {
		flavor = ""
	}
	if f, ok := r.File(release.ClusterTemplateFile(flavor)); ok {
		return f, nil
	}
	var names []string
	for _, f := range templates.Flavors(r) {
		names = append(names, f.Name)
	}
	return release.File{}, &usageError{err: fmt.Errorf("%s has no %s: it has %s", r, release.ClusterTemplateFile(flavor), strings.Join(names, ", "))}
}

// readOneRelease reads the release that an argument names; several are an error.
func readOneRelease(cmd *cobra.Command, location string) (*release.Release, error) {
	releases, err := readReleases(cmd, []string{location})
	if err != nil {
		return nil, err
	}
	return onlyRelease(location, releases)
}

// onlyRelease returns the release that was read from a location; several are an error.
func onlyRelease(location string, releases []*release.Release) (*release.Release, error) {
	if len(releases) > 1 {
		return nil, &usageError{err: fmt.Errorf("%s has %d releases: name the folder of one, e.g. %s/%s", location, len(releases), releases[0].Provider.Label(), releases[0].Version)}
	}
	return releases[0], nil
}

func newTemplatesRenderCommand() *cobra.Command {
	var flags renderFlags
	cmd := &cobra.Command{
		Use:   "render RELEASE",
		Short: "Render a template as clusterctl does",
		Long: `Render prints what ` + "`clusterctl generate cluster`" + ` would print without a management cluster,
including every ClusterClass that the template names.

` + valuesHelp,
		Example: `  # With sample values
  clusterctl release templates render out/release/infrastructure-demo/v0.1.0

  # With the values that clusterctl would use, and one more
  clusterctl release templates render out/release/infrastructure-demo/v0.1.0 --env --set CLUSTER_NAME=demo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runRender(cmd, args[0], flags) },
	}
	addRenderFlags(cmd, &flags)
	return cmd
}

func runRender(cmd *cobra.Command, location string, flags renderFlags) error {
	choice, err := chooseTemplate(cmd, location, flags, nil)
	if err != nil {
		return err
	}
	rendered, err := templates.Render(cmd.Context(), choice.release, choice.flavor, choice.values)
	if err != nil {
		return fmt.Errorf("rendering %s of %s: %w", choice.file.Name, choice.release, err)
	}
	_, err = cmd.OutOrStdout().Write(rendered.YAML)
	return err
}
