package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/move/draw"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"plain": func(markdown string) string { return strings.ReplaceAll(markdown, "`", "") },
	}).Parse(pageText))
)

const (
	// linesAround is the number of lines of a file that are shown above and below the line of a finding.
	linesAround = 2
	// longestLine is the number of characters of such a line that are shown.
	longestLine = 300
)

// pageData is the data of the page.
type pageData struct {
	Title, Tool, Policy string
	Style               template.CSS
	Script              template.JS
	Counts              []pageCount
	Entries             []pageEntry
	Checks              []pageCheck
}

// pageCount is a severity and its number of findings.
type pageCount struct {
	Severity checks.Severity
	Count    int
	Text     string
}

// pageEntry is one release, dump or cluster.
type pageEntry struct {
	ID, Title string
	// Folder is the folder of the files, or "".
	Folder     string
	Counts     []pageCount
	Files      []pageFile
	Suppressed []checks.Suppressed
	Tables     []contract.Table
	Graphs     []pageGraph
	// NoTables is the reason for missing contract tables.
	NoTables string
}

// pageFile is a file with its findings; with the Name "", the findings without a file.
type pageFile struct {
	Name     string
	Findings []pageFinding
}

type pageFinding struct {
	checks.Finding
	Where, More string
	Excerpt     []pageLine
}

type pageLine struct {
	Number int
	Text   string
	Found  bool
}

// pageGraph is the owner graph of a template, as an SVG image.
type pageGraph struct {
	Template, Alt string
	Image         template.URL
}

// pageCheck is the documentation of a check with findings.
type pageCheck struct{ ID, Text string }

// writeHTML writes a self-contained page: a summary, the findings by file with the lines around them, the contract
// tables, and the owner graphs of the templates. Without scripts, only the filters are missing. The page's policy
// forbids a browser to load anything.
func writeHTML(r *Report, w io.Writer) error {
	script := pageScript + draw.ZoomScript
	sum := sha256.Sum256([]byte(script))
	data := pageData{
		Title:  "Check of " + r.checked(),
		Tool:   r.Tool,
		Policy: "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		Style:  template.CSS(pageStyle + draw.ZoomStyle), //nolint:gosec // they are files of these packages
		Script: template.JS(script),                      //nolint:gosec // they are files of these packages
		Counts: countsOf(r.Count),
	}
	explained := map[string]bool{}
	for i, e := range r.Entries {
		entry, err := e.page(fmt.Sprintf("release-%d", i+1))
		if err != nil {
			return err
		}
		data.Entries = append(data.Entries, entry)
		for _, f := range e.Findings {
			if explained[f.ID] {
				continue
			}
			explained[f.ID] = true
			check, err := catalog.All().Find(f.ID)
			if err != nil {
				return err
			}
			text, err := check.Page()
			if err != nil {
				return err
			}
			data.Checks = append(data.Checks, pageCheck{ID: f.ID, Text: text})
		}
	}
	var b strings.Builder
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	_, err := io.WriteString(w, withoutControls(b.String()))
	return err
}

// withoutControls replaces the characters that HTML does not permit, which arbitrary files may contain.
func withoutControls(page string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, page)
}

// countsOf returns the number of findings of each severity.
func countsOf(count func(checks.Severity) int) []pageCount {
	var counts []pageCount
	for _, severity := range []checks.Severity{checks.Error, checks.Warning, checks.Note} {
		n := count(severity)
		counts = append(counts, pageCount{Severity: severity, Count: n, Text: plural(n, string(severity))})
	}
	return counts
}

// page returns the data of the page for an entry.
func (e Entry) page(id string) (pageEntry, error) {
	p := pageEntry{ID: id, Title: e.title(), Folder: e.Folder, Counts: countsOf(e.Count), Suppressed: e.Suppressed}
	lines := fileLines{}
	for _, f := range e.Findings {
		if len(p.Files) == 0 || p.Files[len(p.Files)-1].Name != f.File {
			p.Files = append(p.Files, pageFile{Name: f.File})
		}
		file := &p.Files[len(p.Files)-1]
		file.Findings = append(file.Findings, pageFinding{
			Finding: f, Where: where(f), More: more(f, maxPlaces), Excerpt: excerptAround(lines.of(e, f.File), f.Line),
		})
	}
	for _, g := range e.Graphs {
		graph, err := graphOf(g)
		if err != nil {
			return pageEntry{}, err
		}
		p.Graphs = append(p.Graphs, graph)
	}
	if e.Release == nil {
		return p, nil
	}
	var err error
	if p.Tables, err = contract.Tables(e.Release); errors.Is(err, contract.ErrNoComponents) {
		p.NoTables = err.Error()
		return p, nil
	}
	if err != nil {
		p.NoTables = fmt.Sprintf("the components YAML cannot be read: %v", err)
	}
	return p, nil
}

// excerptAround returns a line of a file with its neighbours; none if the file lacks the line.
func excerptAround(lines [][]byte, line int) []pageLine {
	if line <= 0 || line > len(lines) {
		return nil
	}
	var excerpt []pageLine
	for n := max(1, line-linesAround); n <= min(len(lines), line+linesAround); n++ {
		text := printable(lines[n-1])
		if len(text) > longestLine {
			text = append(text[:longestLine:longestLine], '…')
		}
		excerpt = append(excerpt, pageLine{Number: n, Text: string(text), Found: n == line})
	}
	return excerpt
}

// graphOf draws an owner graph as an image, so that the styles of graphs do not affect each other.
func graphOf(g checks.TemplateGraph) (pageGraph, error) {
	p := draw.Of(g.Graph, g.Graph.Plan())
	var svg bytes.Buffer
	if err := p.Write("svg", &svg); err != nil {
		return pageGraph{}, fmt.Errorf("drawing the owners of %s: %w", g.Template, err)
	}
	image := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg.Bytes())
	return pageGraph{
		Template: g.Template, Alt: p.Summary(),
		Image: template.URL(image), //nolint:gosec // it is an image, which runs no scripts, of escaped texts
	}, nil
}
