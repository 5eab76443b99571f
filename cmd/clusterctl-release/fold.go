package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// textFormat is the value of --format for output that people read.
const textFormat = "text"

// addFormatFlag adds the flag --format, whose value is checked before the command runs. Text output is folded.
func addFormatFlag(cmd *cobra.Command, format *string, check func(string) error, usage string) {
	cmd.Flags().StringVar(format, "format", textFormat, usage)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(*format); err != nil {
			return &usageError{err: fmt.Errorf("--format: %w", err)}
		}
		if *format == textFormat {
			foldText(cmd)
		}
		return run(cmd, args)
	}
}

// foldText folds the output of a command at the width of a terminal. In a file, a pipe and the log of a pipeline, each
// message stays on one line, as programs such as grep need it. Call it for text only.
func foldText(cmd *cobra.Command) {
	o, ok := cmd.OutOrStdout().(*output)
	if !ok {
		return
	}
	if f, ok := o.w.(*os.File); ok && isTerminal(f) {
		o.columns, _, _ = term.GetSize(int(f.Fd())) // without a size, lines are not folded
	}
}

var (
	// escape matches a change of the colour.
	escape = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// piece matches a word with the spaces before it. Code between backquotes is one word.
	piece = regexp.MustCompile("( *)((?:`[^`]*`|[^ ])+)")
	// column matches the start of a column in a line.
	column = regexp.MustCompile(`\S {2,}(?:\S)`)
	// brokenLine matches the end of a line inside a paragraph.
	brokenLine = regexp.MustCompile(`(\S)\n(\S)`)
	// kept matches the start of a line that users copy or that points at a column, and so is not folded.
	kept = regexp.MustCompile(`^ *(clusterctl |\| )`)
)

// fold breaks a line between words to fit a number of columns. The following lines start at the last column of a table,
// or two columns to the right of an indented line.
func fold(line string, columns int) string {
	plain := escape.ReplaceAllString(line, "")
	if columns <= 0 || utf8.RuneCountInString(plain) <= columns {
		return line
	}
	hang := len(plain) - len(strings.TrimLeft(plain, " "))
	if hang > 0 {
		hang += 2
	}
	for _, at := range column.FindAllStringIndex(plain, -1) {
		if start := utf8.RuneCountInString(plain[:at[1]]) - 1; start <= columns/2 {
			hang = start
		}
	}
	var b strings.Builder
	used, begun := 0, false
	for _, found := range piece.FindAllStringSubmatch(line, -1) {
		spaces, word := found[1], found[2]
		width := utf8.RuneCountInString(escape.ReplaceAllString(word, ""))
		if begun && used+len(spaces)+width > columns {
			b.WriteString("\n")
			spaces, used = strings.Repeat(" ", hang), 0
		}
		b.WriteString(spaces + word)
		used, begun = used+len(spaces)+width, true
	}
	return b.String()
}
