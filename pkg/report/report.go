// Package report writes the findings of checks in formats for people and pipelines.
package report

import (
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Entry has the findings of one release, dump or cluster.
type Entry struct {
	*checks.Result
	// Folder is the folder of the release's files, as a path that a pipeline knows; "" if the files are not on disk.
	Folder string
}

// title names the release, dump or cluster for people.
func (e Entry) title() string {
	if e.Release == nil {
		return e.Source
	}
	return e.Release.String()
}

// label is the provider's label, or the name of another source.
func (e Entry) label() string {
	if e.Release == nil {
		return e.Source
	}
	return e.Release.Provider.Label()
}

// path returns the name of a file of the release for a pipeline.
func (e Entry) path(file string) string {
	switch {
	case e.Release == nil && file == "":
		return "cluster" // a live cluster: pipelines require a path
	case e.Release == nil:
		return file
	}
	folder := e.Folder
	if folder == "" {
		folder = path.Join(e.Release.Provider.Label(), e.Release.Version)
	}
	return path.Join(folder, file)
}

// Report has the findings of some releases.
type Report struct {
	Entries []Entry
	// Tool is the version of this program.
	Tool string
	// Color lets the text format use colours.
	Color bool
}

// checked names the checked releases for people.
func (r *Report) checked() string {
	if len(r.Entries) == 1 {
		return r.Entries[0].title()
	}
	return plural(len(r.Entries), "release")
}

// Count returns the number of findings of all releases with a severity.
func (r *Report) Count(severity checks.Severity) int {
	n := 0
	for _, e := range r.Entries {
		n += e.Count(severity)
	}
	return n
}

// Fails reports whether a finding has that severity or a more severe one.
func (r *Report) Fails(on checks.Severity) bool {
	for _, e := range r.Entries {
		for _, f := range e.Findings {
			if f.Severity.AtLeast(on) {
				return true
			}
		}
	}
	return false
}

// Formats are the formats of a report. A new one is one file and one line here.
var Formats = format.List[*Report]{
	{Name: "text", Write: writeText},
	{Name: "json", Write: writeJSON},
	{Name: "sarif", Write: writeSARIF},
	{Name: "github", Write: writeGitHub},
	{Name: "gitlab", Write: writeGitLab},
	{Name: "junit", Write: writeJUnit},
	{Name: "html", Write: writeHTML},
}

// ShowsGraphs reports whether a format shows the owner graphs of templates.
func ShowsGraphs(name string) bool { return name == "html" }

// Write writes the report in a format.
func (r *Report) Write(name string, w io.Writer) error {
	return Formats.Write(name, "the report", r, w)
}

// plural returns a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// more lists at most most further places of a finding, or returns "".
func more(f checks.Finding, most int) string {
	var places []string
	for _, place := range f.MorePlaces[:min(most, len(f.MorePlaces))] {
		places = append(places, another(f.Place, place))
	}
	if left := len(f.MorePlaces) - len(places); left > 0 {
		places = append(places, fmt.Sprintf("%d others", left))
	}
	if len(places) == 0 {
		return ""
	}
	return fmt.Sprintf("and %d more: %s", len(f.MorePlaces), strings.Join(places, ", "))
}

// another names what distinguishes a place from the first place of the finding.
func another(first, place manifest.Place) string {
	var parts []string
	switch {
	case place.File != first.File && place.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", place.File, place.Line))
	case place.File != first.File:
		parts = append(parts, place.File)
	case place.Line > 0:
		parts = append(parts, fmt.Sprintf("line %d", place.Line))
	}
	if place.Object != first.Object {
		parts = append(parts, place.Object.String())
	}
	if place.Path != first.Path {
		parts = append(parts, place.Path)
	}
	return strings.Join(parts, " ")
}

// where names the object and field of a finding on one line, or is "".
func where(f checks.Finding) string {
	return strings.TrimSpace(f.Object.String() + " " + f.Path)
}
