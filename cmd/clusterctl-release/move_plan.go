package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/ownership"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// sourceFlags say what owner references are read from.
type sourceFlags struct {
	render     renderFlags
	with       []string
	live       bool
	kubeconfig string
	context    string
	namespace  string
}

func addSourceFlags(cmd *cobra.Command, flags *sourceFlags) {
	addRenderFlags(cmd, &flags.render)
	cmd.Flags().StringArrayVar(&flags.with, "with", nil, "release of another provider whose kinds the templates use (repeat for more)")
	addLiveFlags(cmd, flags)
}

// addLiveFlags adds the flags that say which cluster is read, and which namespace.
func addLiveFlags(cmd *cobra.Command, flags *sourceFlags) {
	cmd.Flags().BoolVar(&flags.live, "live", false, "read a management cluster")
	cmd.Flags().StringVar(&flags.kubeconfig, "kubeconfig", "", "with --live: the kubeconfig (default: as kubectl)")
	cmd.Flags().StringVar(&flags.context, "context", "", "with --live: the context of the kubeconfig (default: the current one)")
	cmd.Flags().StringVar(&flags.namespace, "namespace", "", "with --live or a dump: namespace to move (default: that of the context, or the only one with Clusters)")
}

func newMovePlanCommand() *cobra.Command {
	var flags sourceFlags
	var format string
	cmd := &cobra.Command{
		Use:   "move-plan [SOURCE]",
		Short: "Tell what `clusterctl move` would take, in which order, and what it would leave behind",
		Long: `Move-plan says what ` + "`clusterctl move`" + ` would create in the target and in which order, what it would delete
from the source or keep there, and what it would leave behind; and why for each object. Nothing is changed.

SOURCE is one of: a dump, i.e. a file or folder of YAML or JSON from ` + "`kubectl get -o yaml`" + ` (with the CRDs, to
know their labels) or from ` + "`clusterctl move --to-directory`" + `; or a release, of which a flavor is rendered and
gets the owner references that controllers would set. With --live, a management cluster is read instead, of
most objects the metadata only.

It ends with status 1 where something is left behind or the move would not start, and with 3 where not
everything could be read.`,
		Example: `  # A management cluster
  clusterctl release move-plan --live --kubeconfig mgmt.yaml --namespace team-a

  # A dump
  kubectl get crds -o yaml > dump/crds.yaml
  kubectl get $(kubectl api-resources --verbs list -o name | grep x-k8s.io | paste -sd,),secrets,configmaps -A -o yaml > dump/all.yaml
  clusterctl release move-plan dump --namespace team-a

  # What becomes of a release's template
  clusterctl release move-plan out/release/infrastructure-demo/v0.1.0 --flavor topology`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runMovePlan(cmd, args, flags, format) },
	}
	addSourceFlags(cmd, &flags)
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	return cmd
}

func runMovePlan(cmd *cobra.Command, args []string, flags sourceFlags, format string) error {
	if format != "text" && format != "json" {
		return &usageError{err: fmt.Errorf("--format %s: use text or json", format)}
	}
	world, namespace, err := readWorld(cmd, args, flags, false)
	if err != nil {
		return err
	}
	plan := ownership.Discover(cmd.Context(), world, namespace).Plan()
	if err := writePlan(cmd.OutOrStdout(), plan, format); err != nil {
		return err
	}
	switch {
	case plan.Incomplete:
		return fmt.Errorf("the plan is incomplete: what could not be read is listed, and what is not known may be moved, stop the move, or be left behind (problems: %d)", len(plan.Problems))
	case len(plan.LeftBehind) > 0 || len(plan.Stops) > 0:
		return &findingsError{}
	}
	return nil
}

// readWorld reads the source that the arguments and flags name, and says which namespace is meant.
func readWorld(cmd *cobra.Command, args []string, flags sourceFlags, whole bool) (*ownership.World, string, error) {
	ctx := cmd.Context()
	switch {
	case flags.live && len(args) > 0:
		return nil, "", &usageError{err: errors.New("with --live no SOURCE is read: leave out one of them")}
	case flags.live:
		config, namespace, err := ownership.Connect(flags.kubeconfig, flags.context)
		if err != nil {
			return nil, "", err
		}
		if flags.namespace != "" {
			namespace = flags.namespace
		}
		world, err := ownership.Live(ctx, config, namespace, whole)
		return world, namespace, err
	case len(args) == 0:
		return nil, "", &usageError{err: errors.New("name a dump or a release, or use --live"), help: "Run '" + cmd.CommandPath() + " --help' for how to use it."}
	case flags.kubeconfig != "" || flags.context != "":
		return nil, "", &usageError{err: errors.New("--kubeconfig and --context are for --live")}
	}
	world, err := readSource(cmd, args[0], flags, whole)
	if err != nil {
		return nil, "", err
	}
	namespace, err := meantNamespace(world, flags.namespace)
	return world, namespace, err
}

// readSource reads a release or, where there is none, a dump.
func readSource(cmd *cobra.Command, location string, flags sourceFlags, whole bool) (*ownership.World, error) {
	_, err := publish.Read(cmd.Context(), location)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is neither a dump nor a release: %w", location, err)
	}
	var target *publish.TargetError
	isRelease := err == nil || flags.render.flavor != "" || len(flags.render.set) > 0 || flags.render.values != ""
	if !isRelease && (errors.Is(err, release.ErrNoRelease) || errors.As(err, &target) || isDump(location)) {
		return ownership.Dump(cmd.Context(), whole, location)
	}
	choice, err := chooseTemplate(cmd, location, flags.render)
	if err != nil {
		return nil, err
	}
	with, err := readReleases(cmd, flags.with)
	if err != nil {
		return nil, fmt.Errorf("--with: %w", err)
	}
	guessed, err := fillValues(choice)
	if err != nil {
		return nil, err
	}
	world, err := ownership.Rendered(cmd.Context(), choice.release, choice.flavor, choice.values, with...)
	if err != nil {
		return nil, fmt.Errorf("rendering %s of %s: %w", choice.file.Name, choice.release, err)
	}
	if len(guessed) > 0 {
		world.Assumptions = append(world.Assumptions, "variables without a value have made-up ones: "+strings.Join(guessed, ", "))
	}
	return world, nil
}

// fillValues gives the variables that have no values those of the release file's samples, and made-up
// ones to the rest, which it names.
func fillValues(choice *templateChoice) ([]string, error) {
	config, err := loadSuppressions("")
	if err != nil {
		return nil, err
	}
	if p := configOf(config, choice.release); p != nil {
		for _, set := range p.SampleValues {
			if len(set.Files) > 0 && !slices.Contains(set.Files, choice.file.Name) {
				continue
			}
			for name, value := range set.Values {
				if _, given := choice.values[name]; !given {
					choice.values[name] = value
				}
			}
			break
		}
	}
	variables, err := templates.Variables(choice.file)
	if err != nil {
		return nil, err
	}
	var guessed []string
	for name, value := range templates.Guess(variables) {
		if _, given := choice.values[name]; !given {
			choice.values[name] = value
			guessed = append(guessed, name)
		}
	}
	slices.Sort(guessed)
	return guessed, nil
}

// isDump says whether a path is a file, which no release is.
func isDump(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// meantNamespace returns the namespace to move: the one asked for, or the only one that may be meant.
func meantNamespace(world *ownership.World, asked string) (string, error) {
	found := world.Namespaces()
	if asked != "" {
		for i := range world.Objects {
			if world.Objects[i].Namespace == asked {
				return asked, nil
			}
		}
		return "", &usageError{err: fmt.Errorf("%s has nothing in the namespace %s: it has %s", world.Source, asked, namespacesText(found))}
	}
	switch len(found) {
	case 0:
		problems := ""
		for _, p := range world.Problems {
			problems += "\n  " + p.String()
		}
		return "", fmt.Errorf("%s has no Clusters and no objects of providers%s", world.Source, problems)
	case 1:
		return found[0].Name, nil
	}
	return "", fmt.Errorf("%s mixes namespaces, and a move takes one: name it with --namespace: there are %s", world.Source, namespacesText(found))
}

// namespacesText lists namespaces with what they have.
func namespacesText(found []ownership.NamespaceCount) string {
	texts := make([]string, 0, len(found))
	for _, n := range found {
		texts = append(texts, fmt.Sprintf("%s (Clusters: %d, objects: %d)", n.Name, n.Clusters, n.Objects))
	}
	if len(texts) == 0 {
		return "none with objects of Cluster API"
	}
	return strings.Join(texts, ", ")
}

func writePlan(w io.Writer, plan *ownership.Plan, format string) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(plan)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Move of the namespace %s of %s\n", plan.Namespace, plan.Source)
	if plan.Incomplete {
		fmt.Fprintf(&b, "\nINCOMPLETE, as not everything could be read:\n")
		for _, p := range plan.Problems {
			fmt.Fprintf(&b, "  %s\n", p)
		}
	}
	writeList(&b, "Taken for granted", plan.Assumptions)
	var stops []string
	for _, s := range plan.Stops {
		stops = append(stops, fmt.Sprintf("%s: %s", s.Object, s.Why))
	}
	writeList(&b, "The move does not start now", stops)
	writeGroups(&b, plan)
	var kept []string
	for _, group := range plan.Groups {
		for _, m := range group {
			if !m.Deleted {
				text := fmt.Sprintf("%s: %s", m.Object, m.Kept)
				if m.IfThere == ownership.Leave {
					text += "; left as it is where the target has it"
				}
				kept = append(kept, text)
			}
		}
	}
	deleted := 0
	for _, group := range plan.Deletions() {
		deleted += len(group)
	}
	fmt.Fprintf(&b, "\nDeleted from the source: %d, in the reverse order\n", deleted)
	writeList(&b, "Kept in the source", kept)
	var left []string
	for _, l := range plan.LeftBehind {
		left = append(left, fmt.Sprintf("%s: %s", l.Object, l.Why))
	}
	writeList(&b, fmt.Sprintf("LEFT BEHIND: %d", len(left)), left)
	writeList(&b, "Files of --to-directory that several objects share, of which one is lost", plan.Clashes())
	if len(left) == 0 {
		fmt.Fprintf(&b, "\nNothing is left behind\n")
	}
	if n := len(plan.Apart); n > 0 {
		fmt.Fprintf(&b, "\nRead besides, and not linked to what is moved: %s (--format json lists them)\n", kindsText(plan.Apart))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGroups lists the objects that are created, group by group.
func writeGroups(b *strings.Builder, plan *ownership.Plan) {
	fmt.Fprintf(b, "\nCreated: %d, in %d groups, one after the other; updated where the target has them\n", plan.Created(), len(plan.Groups))
	width := 0
	for _, group := range plan.Groups {
		for _, m := range group {
			width = max(width, len(m.Object.String()))
		}
	}
	for i, group := range plan.Groups {
		for _, m := range group {
			fmt.Fprintf(b, "  %d  %-*s  %s\n", i+1, min(width, 60), m.Object, m.Why)
		}
	}
}

// writeList writes a heading with lines below, or nothing.
func writeList(b *strings.Builder, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", heading)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// kindsText counts objects by kind.
func kindsText(left []ownership.Left) string {
	counts := map[string]int{}
	for _, l := range left {
		counts[l.Object.Kind]++
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(texts, ", ")
}
