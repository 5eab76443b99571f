// Package report shows what checks found, in the formats that people and pipelines read.
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

// Entry is what the checks found in one release, or in one dump or cluster.
type Entry struct {
	*checks.Result
	// Folder is where the release's files are, as a path that a pipeline knows; "" where they are
	// nowhere on the disk.
	Folder string
}

// title names what was checked, for people.
func (e Entry) title() string {
	if e.Release == nil {
		return e.Source
	}
	return e.Release.String()
}

// label is the provider's label, or what else was checked.
func (e Entry) label() string {
	if e.Release == nil {
		return e.Source
	}
	return e.Release.Provider.Label()
}

// path returns how a pipeline names a file of the release.
func (e Entry) path(file string) string {
	switch {
	case e.Release == nil && file == "":
		return "cluster" // a live one: pipelines want a path all the same
	case e.Release == nil:
		return file
	}
	folder := e.Folder
	if folder == "" {
		folder = path.Join(e.Release.Provider.Label(), e.Release.Version)
	}
	return path.Join(folder, file)
}

// Report is what the checks found in some releases.
type Report struct {
	Entries []Entry
	// Tool is the version of this program.
	Tool string
	// Color lets the text format use colours.
	Color bool
}

// checked says what was checked, for people.
func (r *Report) checked() string {
	if len(r.Entries) == 1 {
		return r.Entries[0].title()
	}
	return plural(len(r.Entries), "release")
}

// Count returns how many findings of all releases have a severity.
func (r *Report) Count(severity checks.Severity) int {
	n := 0
	for _, e := range r.Entries {
		n += e.Count(severity)
	}
	return n
}

// Fails says whether there is a finding of that severity or a more severe one.
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

// Formats are the ways to show one. A new one is a file of its own and a line here.
var Formats = format.List[*Report]{
	{Name: "text", Write: writeText},
	{Name: "json", Write: writeJSON},
	{Name: "sarif", Write: writeSARIF},
	{Name: "github", Write: writeGitHub},
	{Name: "gitlab", Write: writeGitLab},
	{Name: "junit", Write: writeJUnit},
	{Name: "html", Write: writeHTML},
}

// ShowsGraphs says whether a format shows the owner graphs of templates.
func ShowsGraphs(name string) bool { return name == "html" }

// Write shows the report in a format.
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

// more lists the further places of a finding, at most so many of them, or returns "".
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

// another names what a place has that the first place of the finding does not have.
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

// where names the object and field of a finding in a line, or is "".
func where(f checks.Finding) string {
	return strings.TrimSpace(f.Object.String() + " " + f.Path)
}
