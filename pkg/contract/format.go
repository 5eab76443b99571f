package contract

import (
	"fmt"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// Formats are the formats of tables. A new one is one file and one line here.
var Formats = format.List[[]Table]{
	{Name: "text", Write: writeText},
	{Name: "markdown", Write: writeMarkdown},
	{Name: "json", Write: writeJSON},
}

// Write writes tables in a format. The error is that of the writer, or that of Formats.Parse.
func Write(name string, tables []Table, w io.Writer) error {
	return Formats.Write(name, "the tables", tables, w)
}

// Caption names a table's kind, with its contract.
func (t *Table) Caption() string {
	if t.Version == "" {
		if t.Kind == "" {
			return fmt.Sprintf("%s: the provider has none", t.Resource)
		}
		return fmt.Sprintf("%s: %s is missing", t.Resource, t.Kind)
	}
	contract := "declares no contract"
	if t.Contract != "" {
		contract = "contract " + t.Contract
	}
	return fmt.Sprintf("%s: %s %s/%s, %s", t.Resource, t.Kind, t.Group, t.Version, contract)
}

// Summary counts a table's rows.
func (t *Table) Summary() string {
	count := func(mandatory bool) string {
		parts := []string{fmt.Sprintf("%d there", t.Count(mandatory, Present))}
		for _, s := range []State{Missing, Wrong, NotApplicable, NotVisible} {
			if n := t.Count(mandatory, s); n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, s))
			}
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprintf("mandatory: %s; optional: %s", count(true), count(false))
}

// yesNo is how the contract pages write whether a rule is mandatory.
func (r Row) yesNo() string {
	if r.Mandatory {
		return "Yes"
	}
	return "No"
}

// Remarks returns the problems of a row or, without problems, the place of its field.
func (r Row) Remarks() []string {
	if len(r.Problems) == 0 && r.Detail != "" {
		return []string{r.Detail}
	}
	var remarks []string
	for _, p := range r.Problems {
		remarks = append(remarks, p.Reason)
	}
	return remarks
}
