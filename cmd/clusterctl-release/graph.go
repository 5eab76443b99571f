package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/move/draw"
)

func newGraphCommand() *cobra.Command {
	var flags sourceFlags
	var format, collapse string
	cmd := &cobra.Command{
		Use:   "graph [SOURCE]",
		Short: "Show the owner graph, with objects that `clusterctl move` would leave behind in red",
		Long: `Graph shows the owner graph of a dump, of the objects of a release's templates, or of a management cluster.
SOURCE and the flags are those of move-plan. Owners are above the objects that they own. Each object has its
fate: moved, copied, left behind, apart from the move, or not read.

The formats svg and html need no network and only a browser; html has a search and a list of all objects with
the reasons for their fates. dot is for graphviz, and mermaid for Markdown.

Graphs of many objects are collapsed: --collapse siblings puts objects of a kind with the same owners and the
same fate into one box, and kinds all objects of a kind and a fate. The default, auto, uses the first of none,
siblings and kinds that results in no more than about 60 boxes; as text, each object has its line. json always
contains all objects.

` + valuesHelp + `

It ends with status 3 if it could not read everything, after it has shown the rest. Objects that are left behind
are not a failure here: use move-plan to find them.`,
		Example: `  # A page for a browser, of a management cluster
  clusterctl release graph --live --kubeconfig mgmt.yaml --namespace team-a --format html > graph.html

  # An image of a dump
  clusterctl release graph dump --namespace team-a --format svg > graph.svg

  # The objects of a release's template, as a tree
  clusterctl release graph out/release/infrastructure-demo/v0.1.0 --flavor topology`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runGraph(cmd, args, flags, format, draw.Collapse(collapse))
		},
	}
	addSourceFlags(cmd, &flags)
	var collapses []string
	for _, c := range draw.Collapses() {
		collapses = append(collapses, string(c))
	}
	addFormatFlag(cmd, &format, draw.Formats.Parse, strings.Join(draw.Formats.Names(), ", "))
	cmd.Flags().StringVar(&collapse, "collapse", string(draw.Auto), "which objects share a box: "+strings.Join(collapses, ", "))
	return cmd
}

func runGraph(cmd *cobra.Command, args []string, flags sourceFlags, format string, collapse draw.Collapse) error {
	if err := draw.ParseCollapse(collapse); err != nil {
		return &usageError{err: fmt.Errorf("--collapse: %w", err)}
	}
	world, namespace, err := readWorld(cmd, args, flags, false)
	if err != nil {
		return err
	}
	graph := move.Discover(cmd.Context(), world, namespace)
	plan := graph.Plan()
	p := draw.Of(graph, plan)
	p.Collapse, p.Color = collapse, wantsColor(cmd.OutOrStdout())
	if err := p.Write(format, cmd.OutOrStdout()); err != nil {
		return err
	}
	if plan.Incomplete {
		return fmt.Errorf("the graph is incomplete: it lists what could not be read; unknown objects may be missing, moved or left behind (problems: %d)", len(plan.Problems))
	}
	return nil
}
