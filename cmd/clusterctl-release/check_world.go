package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks/ownership"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/report"
)

// worldFlags select a dump or a cluster that is checked instead of releases.
type worldFlags struct {
	dump   string
	source sourceFlags
}

func addWorldFlags(cmd *cobra.Command, flags *worldFlags) {
	cmd.Flags().StringVar(&flags.dump, "dump", "", "check a dump of a management cluster instead: a file or folder of YAML or JSON")
	addLiveFlags(cmd, &flags.source)
}

// asked reports whether a dump or a cluster is to be checked.
func (f worldFlags) asked() bool {
	return f.dump != "" || f.source.live || f.source.kubeconfig != "" || f.source.context != "" || f.source.namespace != ""
}

// checkWorld runs the checks of ownership on a namespace of a dump or of a live cluster.
func checkWorld(cmd *cobra.Command, args []string, flags worldFlags) (*report.Report, []move.Problem, error) {
	switch {
	case len(args) > 0:
		return nil, nil, &usageError{err: errors.New("--dump and --live check no RELEASE: remove one of them")}
	case flags.dump != "" && flags.source.live:
		return nil, nil, &usageError{err: errors.New("--dump and --live exclude each other: use one of them")}
	case flags.dump == "" && !flags.source.live:
		return nil, nil, &usageError{err: errors.New("--kubeconfig, --context and --namespace are for --live or --dump")}
	}
	var sources []string
	if flags.dump != "" {
		sources = []string{flags.dump}
	}
	world, namespace, err := readWorld(cmd, sources, flags.source, true)
	if err != nil {
		return nil, nil, err
	}
	result, err := ownership.RunWorld(cmd.Context(), world, namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("checking %s: %w", world.Source, err)
	}
	return &report.Report{Entries: []report.Entry{{Result: result}}, Tool: toolVersion()}, world.Problems, nil
}

// incomplete prints the problems of reading, and returns an error if there are any.
func incomplete(cmd *cobra.Command, problems []move.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	for _, p := range problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "not read: %s\n", p)
	}
	return fmt.Errorf("the check is incomplete: not everything could be read (problems: %d)", len(problems))
}
