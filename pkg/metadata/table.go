package metadata

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table returns the release series as a table, in the file's order, with a column for the tags of each series if tags
// are given (nil omits the column). A series without a contract or tags has "-" there. Series with tags that aren't in
// the file follow, newest first, with "missing" as the contract.
func (f *File) Table(tags []string) string {
	columns := 3
	if tags == nil {
		columns = 2
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells[:columns], "\t")) }
	row("SERIES", "CONTRACT", "TAGS")
	all := releasedSeries(tags)
	for _, s := range f.series {
		seen := "-"
		if at := slices.IndexFunc(all, func(r released) bool { return r.compare(s) == 0 }); at >= 0 {
			seen = all[at].String()
		}
		row(s.String(), cmp.Or(s.Contract, "-"), seen)
	}
	for _, r := range slices.Backward(all) {
		if f.index(r.Series) < 0 {
			row(r.Series.String(), "missing", r.String())
		}
	}
	_ = w.Flush() // a strings.Builder accepts all
	return table.String()
}
