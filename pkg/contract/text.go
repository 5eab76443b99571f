package contract

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// writeText writes the tables for a terminal: one line for each row, with its problems below.
func writeText(tables []Table, w io.Writer) error {
	var b strings.Builder
	for k := range tables {
		t := &tables[k]
		if k == 0 || tables[k-1].Provider != t.Provider || tables[k-1].Release != t.Release {
			fmt.Fprintf(&b, "%s %s\n", format.Printable(t.Provider), format.Printable(t.Release))
		}
		fmt.Fprintf(&b, "\n%s\n", format.Printable(t.Caption()))
		if err := textRows(t, &b); err != nil {
			return err
		}
		fmt.Fprintf(&b, "  %s\n", t.Summary())
	}
	if len(tables) == 0 {
		b.WriteString("no kind of the release has a role in the contract\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textRows writes the rows of a table. Names of rules are long, so they come last, with the remarks below them.
func textRows(t *Table, w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "  MANDATORY\tSTATE\tRULE")
	for _, r := range t.Rows {
		remarks := r.Remarks()
		if r.State == Missing && r.Note != "" {
			note := strings.ToLower(r.Note[:1]) + r.Note[1:]
			remarks = []string{strings.Join(append(remarks, note), "; ")}
		}
		state := strings.TrimSuffix(string(r.State), " in a release")
		fmt.Fprintf(columns, "  %s\t%s\t%s\n", strings.ToLower(r.yesNo()), state, strings.ReplaceAll(r.Text(), "`", ""))
		for _, remark := range remarks {
			fmt.Fprintf(columns, "  \t\t  %s\n", format.Printable(remark))
		}
	}
	return columns.Flush()
}
