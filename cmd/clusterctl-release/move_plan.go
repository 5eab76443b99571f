package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

func newMovePlanCommand() *cobra.Command {
	var flags sourceFlags
	var format string
	cmd := &cobra.Command{
		Use:   "move-plan [SOURCE]",
		Short: "Show what `clusterctl move` would move, in which order, and what it would leave behind",
		Long: `Move-plan shows what ` + "`clusterctl move`" + ` would create in the target and in which order, what it would delete
from the source or keep there, and what it would leave behind, with the reason for each object. It changes nothing.

SOURCE is one of: a dump, i.e. a file or folder of YAML or JSON from ` + "`kubectl get -o yaml`" + ` (with the CRDs, to
know their labels) or from ` + "`clusterctl move --to-directory`" + `; or a release, of which a flavor is rendered and
gets the owner references that controllers would set. With --live, a management cluster is read instead, and of
most objects only the metadata.

` + valuesHelp + `

It ends with status 1 if objects are left behind or the move would not start, and with 3 if it could not read
everything.`,
		Example: `  # A management cluster
  clusterctl release move-plan --live --kubeconfig mgmt.yaml --namespace team-a

  # A dump
  kubectl get crds -o yaml > dump/crds.yaml
  kubectl get $(kubectl api-resources --verbs list -o name | grep x-k8s.io | paste -sd,),secrets,configmaps -A -o yaml > dump/all.yaml
  clusterctl release move-plan dump --namespace team-a

  # The objects of a release's template
  clusterctl release move-plan out/release/infrastructure-demo/v0.1.0 --flavor topology`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runMovePlan(cmd, args, flags, format) },
	}
	addSourceFlags(cmd, &flags)
	addFormatFlag(cmd, &format, move.Formats.Parse, "text or json")
	return cmd
}

func runMovePlan(cmd *cobra.Command, args []string, flags sourceFlags, format string) error {
	world, namespace, err := readWorld(cmd, args, flags, false)
	if err != nil {
		return err
	}
	plan := move.Discover(cmd.Context(), world, namespace).Plan()
	if err := plan.Write(format, cmd.OutOrStdout()); err != nil {
		return err
	}
	switch {
	case plan.Incomplete:
		return fmt.Errorf("the plan is incomplete: it lists what could not be read; unknown objects may be moved, stop the move, or be left behind (problems: %d)", len(plan.Problems))
	case len(plan.LeftBehind) > 0 || len(plan.Stops) > 0:
		return &findingsError{}
	}
	return nil
}
