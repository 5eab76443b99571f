package report

import (
	"io"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// jsonReport is the report as JSON; its schema is docs/report.schema.json.
type jsonReport struct {
	// What was found, release by release.
	Releases []jsonRelease `json:"releases"`

	// How many findings there are of each severity, suppressed ones left out.
	Summary jsonSummary `json:"summary"`
}

type jsonRelease struct {
	// The provider's label, e.g. infrastructure-libvirt; of a dump or a cluster, what it is.
	Label string `json:"label"`

	// The release's version; empty for a dump or a cluster.
	Version string `json:"version"`

	// What is wrong, in the order of files and lines.
	Findings []jsonFinding `json:"findings"`

	// What the release file turns off.
	Suppressed []jsonSuppressed `json:"suppressed"`
}

type jsonFinding struct {
	// The check's id.
	ID string `json:"id"`

	// How much the finding weighs.
	Severity checks.Severity `json:"severity" jsonschema:"enum=error,enum=warning,enum=note"`

	jsonPlace

	// What is wrong, and what comes of it.
	Message string `json:"message"`

	// What to do.
	Fix string `json:"fix"`

	// The document and heading that the rule comes from.
	Source string `json:"source"`

	// Further places where the same cause has the same effect.
	MorePlaces []jsonPlace `json:"morePlaces,omitempty"`
}

type jsonPlace struct {
	// The file of the release; empty if the finding is about the release as a whole.
	File string `json:"file"`

	// Which YAML document of the file, from 1; 0 is the file as a whole.
	Document int `json:"document"`

	// The Kubernetes object.
	Object manifest.Object `json:"object"`

	// The field's path.
	Path string `json:"path"`

	// The line in the file as it is published, from 1; 0 is not known.
	Line int `json:"line"`

	// The column, from 1; 0 is not known.
	Column int `json:"column"`
}

type jsonSuppressed struct {
	jsonFinding

	// Why it was turned off.
	Reason string `json:"reason"`
}

type jsonSummary struct {
	Error   int `json:"error"`
	Warning int `json:"warning"`
	Note    int `json:"note"`
}

func writeJSON(r *Report, w io.Writer) error {
	out := jsonReport{
		Releases: make([]jsonRelease, 0, len(r.Entries)),
		Summary:  jsonSummary{r.Count(checks.Error), r.Count(checks.Warning), r.Count(checks.Note)},
	}
	for _, e := range r.Entries {
		entry := jsonRelease{
			Label:    e.label(),
			Findings: make([]jsonFinding, 0, len(e.Findings)), Suppressed: make([]jsonSuppressed, 0, len(e.Suppressed)),
		}
		if e.Release != nil {
			entry.Version = e.Release.Version
		}
		for _, f := range e.Findings {
			entry.Findings = append(entry.Findings, newJSONFinding(f))
		}
		for _, s := range e.Suppressed {
			entry.Suppressed = append(entry.Suppressed, jsonSuppressed{newJSONFinding(s.Finding), s.Reason})
		}
		out.Releases = append(out.Releases, entry)
	}
	return format.JSON(out, w)
}

func newJSONFinding(f checks.Finding) jsonFinding {
	finding := jsonFinding{
		ID: f.ID, Severity: f.Severity, jsonPlace: jsonPlace(f.Place),
		Message: f.Message, Fix: f.Fix, Source: f.Source,
	}
	for _, place := range f.MorePlaces {
		finding.MorePlaces = append(finding.MorePlaces, jsonPlace(place))
	}
	return finding
}
