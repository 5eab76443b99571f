package compare

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// longest is how many characters of a value are shown to people; programs get all of it.
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
		for _, s := range d.sections() {
			fmt.Fprintf(&b, "\n  %s\n", printable(s.title))
			for _, item := range s.items {
				fmt.Fprintf(&b, "    %s\n", printable(item))
			}
			if err := textRows(s, &b); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textRows aligns the rows of a section.
func textRows(s section, b *strings.Builder) error {
	if len(s.rows) == 0 {
		return nil
	}
	var aligned strings.Builder
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "    %s\n", strings.ToUpper(strings.Join(s.header, "\t")))
	for _, row := range s.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = printable(shorten(cell)); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintf(columns, "    %s\n", strings.Join(cells, "\t"))
	}
	if err := columns.Flush(); err != nil {
		return fmt.Errorf("aligning columns: %w", err)
	}
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return nil
}

// shorten cuts a value to what a table holds.
func shorten(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest-1]) + "…"
}

// printable keeps what a release's author wrote from moving a terminal's cursor or a table's columns.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}
