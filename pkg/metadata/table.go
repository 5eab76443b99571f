package metadata

import (
	"slices"
	"strings"
)

// Table returns the release series as a table, in the file's order, with a column for the tags of each series if tags
// are given (nil omits the column). Series with tags that aren't in the file follow, newest first, with "missing" as
// the contract.
func (f *File) Table(tags []string) string {
	rows := [][]string{{"SERIES", "CONTRACT"}}
	for _, s := range f.series {
		rows = append(rows, []string{s.String(), s.Contract})
	}
	if tags != nil {
		rows = f.withTags(rows, releasedSeries(tags))
	}
	return align(rows)
}

// withTags adds the column of tags and the rows of tagged series that the file doesn't have.
func (f *File) withTags(rows [][]string, all []released) [][]string {
	rows[0] = append(rows[0], "TAGS")
	for i, s := range f.series {
		seen := "-"
		if at := slices.IndexFunc(all, func(r released) bool { return r.compare(s) == 0 }); at >= 0 {
			seen = all[at].String()
		}
		rows[i+1] = append(rows[i+1], seen)
	}
	for _, r := range slices.Backward(all) {
		if _, ok := f.find(r.Series); !ok {
			rows = append(rows, []string{r.Series.String(), "missing", r.String()})
		}
	}
	return rows
}

// align returns rows as lines with aligned columns and no spaces at the end.
func align(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var table strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-len(cell)+2))
		}
		table.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return table.String()
}
