package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

func newContractCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "contract RELEASE...",
		Short: "Fill in the contract's rules for a provider",
		Long: `Contract prints the rules tables of the Cluster API provider contracts (InfraCluster, InfraMachine,
InfraMachinePool, BootstrapConfig, ControlPlane, IPAM) that apply to a provider of this type. For each
rule, it shows whether the CRDs follow it, and whether it is mandatory or optional. Rules that a schema
can't show, such as pausing, are marked.`,
		Example: `  clusterctl release contract out/release/infrastructure-demo/v0.1.0
  clusterctl release contract out/release --format markdown`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			releases, err := readReleases(cmd, args)
			if err != nil {
				return err
			}
			var tables []contract.Table
			for _, r := range releases {
				more, err := contract.Tables(r)
				if err != nil {
					return fmt.Errorf("%s: %w", r, err)
				}
				tables = append(tables, more...)
			}
			return contract.Write(format, tables, cmd.OutOrStdout())
		},
	}
	addFormatFlag(cmd, &format, contract.Formats.Parse, fmt.Sprintf("how to print the tables, one of %v", contract.Formats.Names()))
	return cmd
}
