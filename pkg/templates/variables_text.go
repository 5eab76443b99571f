package templates

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// fileVariables are the variables of a file.
type fileVariables struct {
	name      string
	variables []Variable
}

// Formats are the formats for the variables of files.
var Formats = format.List[[]fileVariables]{
	{Name: "text", Write: writeText},
	{Name: "json", Write: writeJSON},
}

// WriteVariables lists the variables of templates in a format. The error is that of Variables, of
// Formats.Parse, or of the writer.
func WriteVariables(name string, files []release.File, w io.Writer) error {
	var all []fileVariables
	for _, f := range files {
		variables, err := Variables(f)
		if err != nil {
			return err
		}
		all = append(all, fileVariables{f.Name, variables})
	}
	return Formats.Write(name, "the variables", all, w)
}

func writeJSON(files []fileVariables, w io.Writer) error {
	byFile := map[string][]Variable{}
	for _, f := range files {
		byFile[f.name] = f.variables
	}
	return format.JSON(byFile, w)
}

func writeText(files []fileVariables, w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range files {
		fmt.Fprintln(columns, f.name)
		for _, v := range f.variables {
			value, described := "required", ""
			if v.Default != nil {
				value = fmt.Sprintf("default %q", *v.Default)
			}
			if !v.Described {
				described = ", not described"
			}
			fmt.Fprintf(columns, "  %s\t%s%s, %s\n", v.Name, value, described, lines(v.Lines))
		}
	}
	return columns.Flush()
}

// lines names lines of a file.
func lines(numbers []int) string {
	texts := make([]string, 0, len(numbers))
	for _, n := range numbers {
		texts = append(texts, fmt.Sprint(n))
	}
	if len(texts) == 1 {
		return "line " + texts[0]
	}
	return "lines " + strings.Join(texts, ", ")
}
