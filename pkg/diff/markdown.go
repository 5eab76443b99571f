package diff

import (
	"fmt"
	"io"
	"strings"
	"unicode"
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
				markdownEntry(e, &b)
			}
			b.WriteString("\n")
		}
	}
	for _, gone := range r.Removed {
		fmt.Fprintf(&b, "%s has no newer release to compare with.\n\n", code(gone.String()))
	}
	for _, come := range r.Added {
		fmt.Fprintf(&b, "%s has no older release to compare with.\n\n", code(come.String()))
	}
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n"))
	return err
}

// markdownEntry writes an entry as an item of a list: one line, or its subjects with a list of changes.
func markdownEntry(e entry, b *strings.Builder) {
	about := e.about.write(code)
	if len(e.lines) > 1 && about != "" {
		fmt.Fprintf(b, "- %s:\n", about)
	}
	for _, l := range e.lines {
		text := l.text.write(code)
		switch {
		case about != "" && len(e.lines) == 1:
			text = about + ": " + text
		case about != "":
			b.WriteString("  ")
		}
		if l.breaks > Widens {
			text = "**" + l.mark() + ":** " + text
		}
		fmt.Fprintf(b, "- %s\n", text)
	}
}

// signs have a meaning in Markdown or HTML, or to what servers make of both.
const signs = "`*_[]()<>&\\#@|~$!:\"'"

// code writes a value that a release's author wrote as code, so that nothing in it is read as Markdown,
// as HTML, or as the mention of a user or an issue. Where a code span can't hold it, it is HTML in
// which each of signs is a character reference.
func code(value string) string {
	if value != "" && !strings.ContainsAny(value, "`\n") && strings.TrimSpace(value) == value {
		return "`" + printable(value) + "`"
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
			b.WriteString(printable(string(r)))
		}
		before = r
	}
	return "<code>" + b.String() + "</code>"
}
