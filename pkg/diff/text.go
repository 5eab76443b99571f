package diff

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// longest is the maximum number of characters of a value on a terminal; the other formats have the whole value.
const longest = 80

// writeText writes a report for a terminal.
func writeText(r *Report, w io.Writer) error {
	var b strings.Builder
	for _, removed := range r.Removed {
		fmt.Fprintf(&b, "%s has no newer release to compare with\n", format.Printable(removed.String()))
	}
	for _, added := range r.Added {
		fmt.Fprintf(&b, "%s has no older release to compare with\n", format.Printable(added.String()))
	}
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "%s, %s to %s\n", d.Provider.Label(), d.Before, d.After)
		if d.Empty() {
			b.WriteString("  no differences\n")
		}
		for _, c := range d.outline() {
			fmt.Fprintf(&b, "\n  %s\n", strings.TrimSuffix(c.group+": "+c.title, ": "))
			for _, e := range c.entries {
				e.write(&b, "    ", "%s: ", textValue)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textValue returns a value for a terminal.
func textValue(s string) string { return format.Printable(shorten(s)) }

// shorten cuts a long value.
func shorten(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest-1]) + "…"
}
