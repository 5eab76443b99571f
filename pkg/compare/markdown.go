package compare

import (
	"fmt"
	"io"
	"strings"
)

// Markdown returns the report as text for release notes.
func (r *Report) Markdown() string {
	var b strings.Builder
	_ = writeMarkdown(r, &b) // memory takes it
	return b.String()
}

// writeMarkdown shows a report for release notes.
func writeMarkdown(r *Report, w io.Writer) error {
	var b strings.Builder
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "## %s: changes from %s to %s\n\n", cell(d.Provider.Label()), cell(d.Before), cell(d.After))
		if d.Empty() {
			b.WriteString("No differences.\n\n")
		}
		for _, s := range d.sections() {
			fmt.Fprintf(&b, "### %s\n\n", cell(s.title))
			for _, item := range s.items {
				fmt.Fprintf(&b, "- %s\n", cell(item))
			}
			if len(s.items) > 0 {
				b.WriteString("\n")
			}
			markdownRows(s, &b)
		}
	}
	for _, gone := range r.Removed {
		fmt.Fprintf(&b, "%s has no newer release to compare with.\n\n", cell(gone.String()))
	}
	for _, come := range r.Added {
		fmt.Fprintf(&b, "%s has no older release to compare with.\n\n", cell(come.String()))
	}
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n"))
	return err
}

// markdownRows writes the rows of a section as a table.
func markdownRows(s section, b *strings.Builder) {
	if len(s.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(s.header, " | "), strings.Repeat(" --- |", len(s.header)))
	for _, row := range s.rows {
		cells := make([]string, len(row))
		for i, value := range row {
			cells[i] = cell(shorten(value))
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
}

// cell keeps a text that a release's author wrote from being read as Markdown or as HTML.
func cell(s string) string { return escapes.Replace(printable(s)) }

// escapes has what Markdown and HTML take for a sign of theirs.
var escapes = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "@", "&#64;", "#", `\#`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;",
)
