package diff

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// longest is how many characters of a value a terminal is shown; the other formats have all of it.
const longest = 80

// writeText shows a report for a terminal.
func writeText(r *Report, w io.Writer) error {
	var b strings.Builder
	for _, gone := range r.Removed {
		fmt.Fprintf(&b, "%s has no newer release to compare with\n", printable(gone.String()))
	}
	for _, come := range r.Added {
		fmt.Fprintf(&b, "%s has no older release to compare with\n", printable(come.String()))
	}
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "%s, %s to %s\n", d.Provider.Label(), d.Before, d.After)
		if d.Empty() {
			b.WriteString("  no differences\n")
		}
		for _, c := range d.outline() {
			fmt.Fprintf(&b, "\n  %s\n", strings.TrimSuffix(c.group+": "+c.title, ": "))
			for _, e := range c.entries {
				textEntry(e, &b)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textEntry writes an entry: one line, or its subjects and a line for each change.
func textEntry(e entry, b *strings.Builder) {
	about := e.about.write(textValue)
	if len(e.lines) > 1 && about != "" {
		fmt.Fprintf(b, "    %s:\n", about)
	}
	for _, l := range e.lines {
		text := l.text.write(textValue)
		switch {
		case about != "" && len(e.lines) == 1:
			text = about + ": " + text
		case about != "":
			b.WriteString("  ")
		}
		if l.breaks > Widens {
			text = l.mark() + ": " + text
		}
		fmt.Fprintf(b, "    %s\n", text)
	}
}

// textValue is a value as a terminal is shown it.
func textValue(s string) string { return printable(shorten(s)) }

// shorten cuts a long value.
func shorten(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest-1]) + "…"
}

// printable keeps what a release's author wrote from moving a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}
