package contract

import (
	"fmt"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// writeMarkdown writes the tables like those of the contract pages, with two more columns.
func writeMarkdown(tables []Table, w io.Writer) error {
	var b strings.Builder
	for k := range tables {
		t := &tables[k]
		if k == 0 || tables[k-1].Provider != t.Provider || tables[k-1].Release != t.Release {
			fmt.Fprintf(&b, "# %s %s\n\n", cell(t.Provider), cell(t.Release))
		}
		fmt.Fprintf(&b, "## %s\n\n", cell(t.Caption()))
		b.WriteString("| Rule | Mandatory | Note | State | What |\n| --- | --- | --- | --- | --- |\n")
		for _, r := range t.Rows {
			remarks := r.Remarks()
			for i := range remarks {
				remarks[i] = cell(remarks[i])
			}
			// The rule's name has the page's own code spans.
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Text(), r.yesNo(), r.Note, r.State, strings.Join(remarks, "<br>"))
		}
		fmt.Fprintf(&b, "\n%s\n\n", t.Summary())
	}
	if len(tables) == 0 {
		b.WriteString("No kind of the release has a role in the contract.\n")
	}
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n\n")+"\n")
	return err
}

// cell escapes a text from a release so that it is not read as Markdown or as HTML.
func cell(s string) string { return escapes.Replace(format.Printable(s)) }

// escapes escapes the special characters of Markdown and HTML.
var escapes = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;",
)
