package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

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

` + valuesHelp + `

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
	plan := move.Discover(cmd.Context(), world, namespace).Plan()
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

func writePlan(w io.Writer, plan *move.Plan, format string) error {
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
				if m.IfThere == move.Leave {
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
	switch {
	case len(left) > 0:
	case plan.Incomplete:
		fmt.Fprintf(&b, "\nNothing of what could be read is left behind\n")
	default:
		fmt.Fprintf(&b, "\nNothing is left behind\n")
	}
	if n := len(plan.Apart); n > 0 {
		fmt.Fprintf(&b, "\nRead besides, and not linked to what is moved: %s (--format json lists them)\n", kindsText(plan.Apart))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGroups lists the objects that are created, group by group.
func writeGroups(b *strings.Builder, plan *move.Plan) {
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
func kindsText(left []move.Left) string {
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
