// Command testbed is for developers: it builds the parts of the testbed, and keeps one running.
// docs/tutorials/testbed.md is for its users.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

func main() {
	if sandbox.Started() || len(os.Args) == 2 && os.Args[1] == serveCommand {
		os.Exit(sandbox.Main(prepareToServe, serve))
	}
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "testbed", Short: "A management cluster of processes with libvirt hosts, to try things out", SilenceUsage: true, SilenceErrors: true}
	root.CompletionOptions.DisableDefaultCmd = true
	var wanted secondOptions
	upCommand := &cobra.Command{
		Use: "up", Short: "Start a management cluster with the provider and three libvirt hosts", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return up(wanted) },
	}
	upCommand.Flags().BoolVar(&wanted.Start, "second", false, "start a second management cluster too, for clusterctl move; also where a testbed runs already")
	upCommand.Flags().BoolVar(&wanted.ShareHosts, "share-hosts", false, "have the second management cluster use the hosts before anything is moved there (implies --second)")
	var follow bool
	logsCommand := &cobra.Command{
		Use: "logs [COMPONENT]", Short: "List the components with logs, or show the log of COMPONENT, or of all whose names contain it", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return logs(os.Stdout, args, follow) },
	}
	logsCommand.Flags().BoolVarP(&follow, "follow", "f", false, "show what is written from now on too")
	root.AddCommand(
		&cobra.Command{
			Use: "build", Short: "Build the pinned tools and the guests' images that aren't in the cache yet", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return build() },
		},
		upCommand,
		&cobra.Command{
			Use: "down", Short: "Stop the testbed and remove its files", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return down() },
		},
		logsCommand,
		&cobra.Command{
			Use: "virsh HOST [ARGS...]", Short: "Run virsh, connected to the libvirtd of a host", DisableFlagParsing: true, // flags are virsh's
			RunE: func(_ *cobra.Command, args []string) error { return virsh(args) },
		},
	)
	return root
}

// build also builds for the tests, which report themselves where they can't run.
func build() error {
	progress := &testbed.Progress{Out: os.Stderr, Steps: testbed.ToolCount() + 2}
	if _, err := testbed.Tools(context.Background(), progress); err != nil {
		return err
	}
	if err := sandbox.Usable(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return nil
	}
	return errors.Join(progress.Do("the guests' image", testbed.PrepareGuest), progress.Do("the load balancer's image", testbed.PrepareBalancer))
}
