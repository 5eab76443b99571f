package diff

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// Markdown returns the report as text for release notes.
func (r *Report) Markdown() string {
	var b strings.Builder
	_ = writeMarkdown(r, &b) // a strings.Builder returns no errors
	return b.String()
}

// writeMarkdown writes a report for release notes.
func writeMarkdown(r *Report, w io.Writer) error {
	var b strings.Builder
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "## %s: changes from %s to %s\n\n", d.Provider.Label(), d.Before, d.After)
		if d.Empty() {
			b.WriteString("No differences.\n\n")
		}
		group := ""
		for _, c := range d.outline() {
			if c.group != group {
				fmt.Fprintf(&b, "### %s\n\n", c.group)
				group = c.group
			}
			if c.title != "" {
				fmt.Fprintf(&b, "#### %s\n\n", c.title)
			}
			for _, e := range c.entries {
				e.write(&b, "- ", "**%s:** ", code)
			}
			b.WriteString("\n")
		}
	}
	for _, removed := range r.Removed {
		fmt.Fprintf(&b, "%s has no newer release to compare with.\n\n", code(removed.String()))
	}
	for _, added := range r.Added {
		fmt.Fprintf(&b, "%s has no older release to compare with.\n\n", code(added.String()))
	}
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n"))
	return err
}

// signs have a special meaning in Markdown or HTML, or on servers that show them.
const signs = "`*_[]()<>&\\#@|~$!:\"'"

// code writes a value from a release as code, so that it is not read as Markdown, as HTML, or as the mention of a user
// or an issue. If a code span can't contain it, it is HTML in which each of signs is a character reference.
func code(value string) string {
	if value != "" && !strings.ContainsAny(value, "`\n") && strings.TrimSpace(value) == value {
		return "`" + format.Printable(value) + "`"
	}
	var b strings.Builder
	before := ' '
	for _, r := range strings.ReplaceAll(value, "\r\n", "\n") {
		switch {
		case r == '\n':
			b.WriteString("<br>")
		case r == ' ' && unicode.IsSpace(before):
			b.WriteString("&#160;")
		case strings.ContainsRune(signs, r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteString(format.Printable(string(r)))
		}
		before = r
	}
	return "<code>" + b.String() + "</code>"
}
