package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCommand returns the command that builds of packages use.
func newManCommand() *cobra.Command {
	markdown := false
	cmd := &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the manual pages of all commands to a folder",
		Long:    `Man writes one page for each command to FOLDER. Their date is SOURCE_DATE_EPOCH, in seconds since 1970, or today.`,
		Example: `  clusterctl release man /usr/local/share/man/man1`,
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // for all to read
				return fmt.Errorf("writing manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "clusterctl-release " + toolVersion(), Manual: "clusterctl release"}
			write := func() error { return doc.GenManTree(root, header, args[0]) }
			if markdown {
				withoutHTML(root)
				write = func() error { return doc.GenMarkdownTree(root, args[0]) }
			}
			if err := write(); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote the manual pages of all commands to %s\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "write them in Markdown")
	return cmd
}

// angle matches a line of a description that isn't code, which is indented by a tab.
var angle = regexp.MustCompile(`(?m)^[^\t\n].*<.*$`)

// withoutHTML escapes the descriptions of commands so that Markdown doesn't treat <version> as HTML, which isn't shown.
func withoutHTML(cmd *cobra.Command) {
	cmd.Long = angle.ReplaceAllStringFunc(cmd.Long, func(line string) string { return strings.ReplaceAll(line, "<", `\<`) })
	for _, child := range cmd.Commands() {
		withoutHTML(child)
	}
}
