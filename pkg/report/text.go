package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/fatih/color"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// maxShown is the number of characters of a line that are shown: some files consist of one line.
const maxShown = 120

// maxPlaces is the number of further places of a finding in a text.
const maxPlaces = 8

// writeText groups findings by release and file, shows the line of each, and ends with the counts.
func writeText(r *Report, w io.Writer) error {
	t := &text{colors: map[checks.Severity]*color.Color{
		checks.Error: color.New(color.FgRed, color.Bold), checks.Warning: color.New(color.FgYellow), checks.Note: color.New(color.FgCyan),
	}, bold: color.New(color.Bold), faint: color.New(color.Faint)}
	for _, c := range append([]*color.Color{t.bold, t.faint}, t.colors[checks.Error], t.colors[checks.Warning], t.colors[checks.Note]) {
		if r.Color {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	for _, e := range r.Entries {
		t.release(e)
	}
	checked := plural(len(r.Entries), "release")
	if len(r.Entries) == 1 && r.Entries[0].Release == nil {
		checked = r.Entries[0].title()
	}
	fmt.Fprintf(t, "%s, %s, %s in %s\n", plural(r.Count(checks.Error), "error"), plural(r.Count(checks.Warning), "warning"),
		plural(r.Count(checks.Note), "note"), checked)
	_, err := io.WriteString(w, t.String())
	return err
}

// text is a text with its colours.
type text struct {
	strings.Builder
	colors      map[checks.Severity]*color.Color
	bold, faint *color.Color
	lines       fileLines
}

// release writes the findings of one release.
func (t *text) release(e Entry) {
	if len(e.Findings) == 0 && len(e.Suppressed) == 0 {
		return
	}
	fmt.Fprintf(t, "%s\n", t.bold.Sprint(e.title()))
	t.lines = fileLines{}
	file := ""
	for _, f := range e.Findings {
		if f.File != file {
			file = f.File
			fmt.Fprintf(t, "  %s\n", e.path(file))
		}
		t.finding(e, f)
	}
	if len(e.Suppressed) > 0 {
		fmt.Fprintf(t, "  turned off in the release file\n")
	}
	for _, s := range e.Suppressed {
		fmt.Fprintf(t, "    %s %s %s: %s\n", s.ID, s.File, where(s.Finding), t.faint.Sprint(s.Reason))
	}
	fmt.Fprintf(t, "\n")
}

// finding writes one finding with its line.
func (t *text) finding(e Entry, f checks.Finding) {
	place := ""
	switch {
	case f.Line > 0 && f.Column > 0:
		place = fmt.Sprintf("%d:%d: ", f.Line, f.Column)
	case f.Line > 0:
		place = fmt.Sprintf("%d: ", f.Line)
	}
	fmt.Fprintf(t, "    %s%s: %s\n", place, t.colors[f.Severity].Sprint(f.Severity), indent(f.Message, "      "))
	if at := where(f); at != "" {
		fmt.Fprintf(t, "      %s\n", at)
	}
	if line, caret, ok := t.excerpt(e, f); ok {
		fmt.Fprintf(t, "      %s\n", t.faint.Sprint("| "+line))
		if caret >= 0 {
			fmt.Fprintf(t, "      %s%s\n", t.faint.Sprint("| "), strings.Repeat(" ", caret)+t.colors[f.Severity].Sprint("^"))
		}
	}
	if places := more(f, maxPlaces); places != "" {
		fmt.Fprintf(t, "      %s\n", places)
	}
	fmt.Fprintf(t, "      fix: %s %s\n", indent(f.Fix, "      "), t.faint.Sprint("["+f.ID+"]"))
}

// fileLines are the lines of a release's files, split when the first finding of a file is shown.
type fileLines map[string][][]byte

// of returns the lines of a file; none if the release lacks it.
func (l fileLines) of(e Entry, file string) [][]byte {
	lines, known := l[file]
	if !known {
		if e.Release != nil {
			if f, found := e.Release.File(file); found {
				lines = bytes.Split(f.Data, []byte("\n"))
			}
		}
		l[file] = lines
	}
	return lines
}

// excerpt returns the line of a finding, cut to the width of a terminal, and the column of the caret; -1 means none.
func (t *text) excerpt(e Entry, f checks.Finding) (line string, caret int, ok bool) {
	lines := t.lines.of(e, f.File)
	if f.Line <= 0 || f.Line > len(lines) {
		return "", 0, false
	}
	runes := printable(lines[f.Line-1])
	caret = f.Column - 1
	if caret > maxShown/2 { // far to the right: show what is around it
		cut := min(caret-maxShown/2, len(runes))
		runes = runes[cut:]
		caret -= cut
	}
	if len(runes) > maxShown {
		runes = append(runes[:maxShown:maxShown], '…')
	}
	if caret > len(runes) {
		caret = -1
	}
	return strings.TrimRight(string(runes), " "), caret, true
}

// printable returns a line of a file without unprintable characters.
func printable(line []byte) []rune {
	return []rune(format.Printable(strings.ReplaceAll(string(line), "\t", " ")))
}

// indent adds a prefix to every line except the first.
func indent(s, lead string) string {
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n"+lead)
}
