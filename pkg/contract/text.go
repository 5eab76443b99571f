package contract

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeText shows the tables for a terminal: a row in a line, and what is wrong below it.
func writeText(tables []Table, w io.Writer) error {
	var b strings.Builder
	for k := range tables {
		t := &tables[k]
		if k == 0 || tables[k-1].Provider != t.Provider || tables[k-1].Release != t.Release {
			fmt.Fprintf(&b, "%s %s\n", printable(t.Provider), printable(t.Release))
		}
		fmt.Fprintf(&b, "\n%s\n", printable(t.Caption()))
		if err := textRows(t, &b); err != nil {
			return err
		}
		fmt.Fprintf(&b, "  %s\n", t.Summary())
	}
	if len(tables) == 0 {
		b.WriteString("no kind of the release plays a part in the contract\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textRows aligns the rows of a table.
func textRows(t *Table, w io.Writer) error {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "  RULE\tMANDATORY\tSTATE\tWHAT")
	for _, r := range t.Rows {
		remarks := r.Remarks()
		if len(remarks) == 0 {
			remarks = []string{""}
		}
		if r.State == Missing && r.Note != "" {
			remarks[0] = strings.TrimPrefix(remarks[0]+"; "+strings.ToLower(r.Note[:1])+r.Note[1:], "; ")
		}
		name := strings.ReplaceAll(r.Text(), "`", "")
		fmt.Fprintf(columns, "  %s\t%s\t%s\t%s\n", name, r.yesNo(), r.State, printable(remarks[0]))
		for _, more := range remarks[1:] {
			fmt.Fprintf(columns, "  \t\t\t%s\n", printable(more))
		}
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) { // rows without a remark end in the column's spaces
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
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
