// Command clusterctl-release takes a Cluster API provider from its source tree to a place from which clusterctl
// installs it. On PATH it is the clusterctl plugin `clusterctl release`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/mirror"
)

// The exit statuses of all commands.
const (
	exitFine     = 0
	exitFindings = 1
	exitUsage    = 2
	exitFailed   = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	boundMemory(heapOfReleases)
	log.SetLogger(logr.Discard()) // Cluster API's code complains without a logger
	// A second signal ends the process at once: kustomize does not stop while it fetches a remote base.
	context.AfterFunc(ctx, stop)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &output{w: stdout}
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	out.flush()
	var findings *findingsError
	if out.err != nil && (err == nil || errors.Is(err, out.err) || errors.As(err, &findings)) {
		err = fmt.Errorf("writing the output: %w", out.err)
	}
	if err == nil {
		return exitFine
	}
	if errors.As(err, &findings) {
		return exitFindings // the report has been printed
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = errors.New("interrupted: no partial result is left; run the same command again to continue")
	}
	fmt.Fprintln(stderr, errorPrefix(stderr)+publishFlagNames.Replace(err.Error()))
	if isUsageError(err) {
		return exitUsage
	}
	return exitFailed
}

// newRootCommand assembles the commands. A new command is one new file and one line here.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "clusterctl-release",
		Short: "Build, check and publish releases of Cluster API providers",
		Long: `clusterctl release takes a Cluster API provider from its source tree to a place from which
clusterctl installs it. The file clusterctl-release.yaml at the root of a tree lists what it releases.

Exit status: 0 success, 1 findings, 2 wrong usage, 3 failure.`,
		Example: `  # Start: write the release file of a tree
  clusterctl release init

  # Build a version, and publish it to a local repository
  clusterctl release build --version v0.1.0
  clusterctl release publish out/release --to out/repository`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "clusterctl release"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		newInitCommand(),
		newBuildCommand(),
		newCheckCommand(),
		newContractCommand(),
		newDiffCommand(),
		newGraphCommand(),
		newMovePlanCommand(),
		newTemplatesCommand(),
		newMetadataCommand(),
		newPublishCommand(),
		newFetchCommand(),
		newMirrorCommand(),
		newVerifyCommand(),
		newSchemaCommand(),
		newVersionCommand(),
		newManCommand(),
	)
	markUsageErrors(root)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		foldText(cmd)
		if isTerminal(cmd.OutOrStdout()) {
			cmd.Long = brokenLine.ReplaceAllString(cmd.Long, "$1 $2")
		}
		help(cmd, args)
	})
	return root
}

// usageError is an error of the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// isUsageError reports whether an error comes from the command line.
func isUsageError(err error) bool {
	var usage *usageError
	var options *build.UsageError
	var name *mirror.NameError
	var contract *metadata.ContractError
	return errors.As(err, &usage) || errors.As(err, &options) || errors.As(err, &name) || errors.As(err, &contract)
}

// findingsError means that a command succeeded and reported findings.
type findingsError struct{}

func (*findingsError) Error() string { return "there are findings" }

// markUsageErrors makes wrong flags and arguments of every command end with the status for wrong usage.
func markUsageErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(withHelp)
	if args := cmd.Args; args != nil {
		cmd.Args = func(c *cobra.Command, given []string) error { return withHelp(c, suggest(c, given, args(c, given))) }
	}
	// This runs before cobra's own check, whose error looks like any other failure.
	cmd.PreRunE = func(c *cobra.Command, _ []string) error { return withHelp(c, c.ValidateRequiredFlags()) }
	for _, child := range cmd.Commands() {
		markUsageErrors(child)
	}
}

// withHelp returns an error of the command line that says how to get help, or nil for nil.
func withHelp(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err: fmt.Errorf("%w\n%s", err, "Run '"+cmd.CommandPath()+" --help' for how to use it.")}
}

// suggest adds similar command names to the error for an unknown command.
func suggest(cmd *cobra.Command, given []string, err error) error {
	if err == nil || len(given) == 0 || !cmd.HasSubCommands() {
		return err
	}
	cmd.SuggestionsMinimumDistance = 2
	similar := cmd.SuggestionsFor(given[0])
	if len(similar) == 0 {
		return err
	}
	return fmt.Errorf("%w: do you mean %s?", err, strings.Join(similar, " or "))
}
