package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// valuesHelp describes in the help of commands where values of variables come from.
const valuesHelp = `Values of variables come from --set, then from --values. Variables without a value get the values that check
uses: the first sampleValues of ` + release.ConfigFile + ` for the file, then generated values; a line on stderr names
them. With --env they come from the environment and clusterctl's own configuration instead, and a variable that
still has no value is an error.`

// renderFlags choose a template and set its values.
type renderFlags struct {
	flavor string
	set    []string
	values string
	env    bool
}

// addRenderFlags adds the flags that choose a template and set its values.
func addRenderFlags(cmd *cobra.Command, flags *renderFlags) {
	cmd.Flags().StringVar(&flags.flavor, "flavor", "", "flavor to render (default: cluster-template.yaml)")
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "value of a variable, as NAME=VALUE (repeat for more)")
	cmd.Flags().StringVar(&flags.values, "values", "", "YAML file with values by variable")
	cmd.Flags().BoolVar(&flags.env, "env", false, "take the other values from the environment and clusterctl's configuration, as clusterctl does, instead of samples")
}

// templateChoice is a template of a release with the values for its variables.
type templateChoice struct {
	release *release.Release
	file    release.File
	flavor  string
	values  map[string]string
	// generated are the variables with generated values, in order.
	generated []string
}

// chooseTemplate reads the release that an argument names, and chooses a template of it, see templateOf.
func chooseTemplate(cmd *cobra.Command, location string, flags renderFlags, with []*release.Release) (*templateChoice, error) {
	r, err := readOneRelease(cmd, location)
	if err != nil {
		return nil, err
	}
	return templateOf(cmd, r, flags, with)
}

// templateOf finds values for all variables of a flavor of a release and of its classes. with are releases whose kinds
// and classes are known as well.
func templateOf(cmd *cobra.Command, r *release.Release, flags renderFlags, with []*release.Release) (*templateChoice, error) {
	given, err := readValues(flags)
	if err != nil {
		return nil, err
	}
	choice := &templateChoice{release: r, values: given}
	if choice.file, err = flavorOf(choice.release, flags.flavor); err != nil {
		return nil, err
	}
	if choice.flavor, err = release.Flavor(choice.file.Name); err != nil {
		return nil, err
	}
	known, err := knownOf(append([]*release.Release{choice.release}, with...))
	if err != nil {
		return nil, err
	}
	if flags.env {
		return choice, choice.fillFromEnvironment(cmd, known)
	}
	return choice, choice.fillWithSamples(cmd, known)
}

// knownOf returns the kinds and classes of releases.
func knownOf(releases []*release.Release) (*templates.Known, error) {
	kinds, err := schemas.For(releases...)
	if err != nil {
		return nil, err
	}
	known := &templates.Known{Kinds: kinds}
	for _, r := range releases {
		for _, f := range r.Files {
			if release.IsClusterClass(f.Name) {
				known.Classes = append(known.Classes, f)
			}
		}
	}
	return known, nil
}

// fillWithSamples sets the variables without a value to those that check uses, and names them on stderr.
func (c *templateChoice) fillWithSamples(cmd *cobra.Command, known *templates.Known) error {
	config, err := loadSuppressions("")
	if err != nil {
		return err
	}
	var said []string
	set := sampleSet(configOf(config, c.release), c.file.Name)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(set.Values)) {
		if _, given := c.values[name]; !given {
			c.values[name] = set.Values[name]
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		said = append(said, fmt.Sprintf("the sampleValues %q of %s for %s", set.Name, release.ConfigFile, strings.Join(names, ", ")))
	}
	samples, err := templates.SampleFlavor(c.file, known, c.values)
	if err != nil {
		return err
	}
	used, err := usedVariables(c.file, samples.ClassFiles(known))
	if err != nil {
		return err
	}
	c.generated = slices.Clone(samples.Generated)
	for name := range templates.Guess(nil) {
		// clusterctl requires the cluster's name whether or not the template uses it.
		if _, given := c.values[name]; !given && (used[name] != nil || name == templates.ClusterNameVariable) {
			c.generated = append(c.generated, name)
		}
	}
	slices.Sort(c.generated)
	var pairs []string
	for _, name := range c.generated {
		value := samples.Values[name]
		if value == "" || strings.ContainsAny(value, " \"'\n,") {
			value = fmt.Sprintf("%q", value)
		}
		pairs = append(pairs, name+"="+value)
	}
	if len(pairs) > 0 {
		said = append(said, "generated values "+strings.Join(pairs, ", "))
	}
	if len(said) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s has %s (set others with --set NAME=VALUE, --values FILE or --env)\n", c.file.Name, c.release, strings.Join(said, ", and "))
	}
	c.values = samples.Values
	return nil
}

// sampleSet returns the first set of values in the release file for a file, or an empty one.
func sampleSet(p *release.ProviderConfig, file string) release.SampleValues {
	if p != nil {
		for _, set := range p.SampleValues {
			if len(set.Files) == 0 || slices.Contains(set.Files, file) {
				return set
			}
		}
	}
	return release.SampleValues{}
}

// fillFromEnvironment sets the variables without a value to those that clusterctl would find.
func (c *templateChoice) fillFromEnvironment(cmd *cobra.Command, known *templates.Known) error {
	client, err := clusterctlconfig.New(cmd.Context(), "")
	if err != nil {
		return fmt.Errorf("reading clusterctl's configuration: %w", err)
	}
	var missing []string
	fill := func(variables map[string]*templates.Variable) {
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			if _, given := c.values[name]; given || slices.Contains(missing, name) {
				continue
			}
			value, err := client.Variables().Get(name)
			switch {
			case err == nil:
				c.values[name] = value
			case variables[name].Default == nil && !slices.Contains(setByClusterctl, name):
				missing = append(missing, name)
			}
		}
	}
	used, err := usedVariables(c.file, nil)
	if err != nil {
		return err
	}
	used[templates.ClusterNameVariable] = &templates.Variable{} // clusterctl always requires it
	fill(used)
	samples, err := templates.Sample(c.file, known, c.values)
	if err != nil {
		return err
	}
	if used, err = usedVariables(c.file, samples.ClassFiles(known)); err != nil {
		return err
	}
	fill(used)
	if len(missing) > 0 {
		return fmt.Errorf("%s of %s: no values for %s: set them with --set NAME=VALUE or --values FILE, or in the environment; without --env, samples are used",
			c.file.Name, c.release, strings.Join(missing, ", "))
	}
	return nil
}

// setByClusterctl are variables that have a value even if the user sets none.
var setByClusterctl = []string{templates.NamespaceVariable, templates.ControlPlaneCountVariable, templates.WorkerCountVariable}

// usedVariables returns the variables of a template and of classes, by name.
func usedVariables(file release.File, classes []release.File) (map[string]*templates.Variable, error) {
	used := map[string]*templates.Variable{}
	for _, f := range append([]release.File{file}, classes...) {
		variables, err := templates.Variables(f)
		if err != nil {
			return nil, err
		}
		for i, v := range variables {
			if known := used[v.Name]; known == nil || known.Default != nil {
				used[v.Name] = &variables[i]
			}
		}
	}
	return used, nil
}

// readValues returns the values of --values and --set; --set takes precedence.
func readValues(flags renderFlags) (map[string]string, error) {
	values := map[string]string{}
	if flags.values != "" {
		data, err := os.ReadFile(flags.values)
		if err != nil {
			return nil, fmt.Errorf("reading the values: %w", err)
		}
		var given map[string]yamlv3.Node
		if err := yamlv3.Unmarshal(data, &given); err != nil {
			return nil, fmt.Errorf("%s: %w: write NAME: value", flags.values, err)
		}
		for name, value := range given {
			if value.Kind != yamlv3.ScalarNode {
				return nil, fmt.Errorf("%s:%d: %s isn't text: put its YAML in quotes", flags.values, value.Line, name)
			}
			values[name] = value.Value // as written: a variable is a text
		}
	}
	for _, pair := range flags.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, &usageError{err: errors.New("--set " + pair + ": write NAME=VALUE")}
		}
		values[name] = value
	}
	return values, nil
}
