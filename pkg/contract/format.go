package contract

import (
	"fmt"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// formats are the ways to show tables. A new one is a file of its own and a line here.
var formats = format.List[[]Table]{
	{Name: "text", Write: writeText},
	{Name: "markdown", Write: writeMarkdown},
	{Name: "json", Write: writeJSON},
}

// Formats returns the names of the formats.
func Formats() []string { return formats.Names() }

// ParseFormat returns an error that lists the formats if name is not one of them.
func ParseFormat(name string) error { return formats.Parse(name) }

// Write shows tables in a format. The error is that of the writer, or ParseFormat's.
func Write(name string, tables []Table, w io.Writer) error {
	return formats.Write(name, "the tables", tables, w)
}

// Caption names a table's kind, with its contract.
func (t *Table) Caption() string {
	if t.Version == "" {
		if t.Kind == "" {
			return fmt.Sprintf("%s: the provider has none", t.Resource)
		}
		return fmt.Sprintf("%s: %s is not there", t.Resource, t.Kind)
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

// Remarks returns what there is to say about a row's state: what is wrong, or else where it is.
func (r Row) Remarks() []string {
	if r.State == Missing && !r.Mandatory || len(r.Problems) == 0 {
		if r.Detail == "" {
			return nil
		}
		return []string{r.Detail}
	}
	remarks := make([]string, 0, len(r.Problems))
	for _, p := range r.Problems {
		remarks = append(remarks, p.Reason)
	}
	return remarks
}
