package report

import (
	"encoding/json"
	"io"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const informationURI = "https://github.com/clusterctl-release/clusterctl-release"

func writeSARIF(r *Report, w io.Writer) error {
	out, err := newSARIF(r)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// newSARIF returns the report as a SARIF log with one run.
func newSARIF(r *Report) (*sarif.Report, error) {
	out := sarif.NewReport()
	run := sarif.NewRunWithInformationURI("clusterctl-release", informationURI)
	run.Tool.Driver.WithVersion(r.Tool)
	for _, check := range catalog.All() {
		page, err := check.Page()
		if err != nil {
			return nil, err
		}
		run.AddRule(check.ID).
			WithShortDescription(sarif.NewMultiformatMessageString().WithText(check.Title)).
			WithHelp(sarif.NewMultiformatMessageString().WithText(page).WithMarkdown(page)).
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(string(check.Severity)))
	}
	for _, e := range r.Entries {
		for _, f := range e.Findings {
			run.AddResult(sarifResult(e, f))
		}
		for _, s := range e.Suppressed {
			run.AddResult(sarifResult(e, s.Finding).WithSuppressions([]*sarif.Suppression{
				sarif.NewSuppression().WithKind("external").WithJustification(s.Reason),
			}))
		}
	}
	return out.AddRun(run), nil
}

// sarifResult returns a finding as a result.
func sarifResult(e Entry, f checks.Finding) *sarif.Result {
	locations := []*sarif.Location{sarifLocation(e, f.Place)}
	for _, place := range f.MorePlaces {
		locations = append(locations, sarifLocation(e, place))
	}
	return sarif.NewRuleResult(f.ID).
		WithLevel(string(f.Severity)). // SARIF has the same three
		WithMessage(sarif.NewTextMessage(sentence(e, f))).
		WithLocations(locations)
}

// sarifLocation returns a place as a location.
func sarifLocation(e Entry, p manifest.Place) *sarif.Location {
	location := sarif.NewPhysicalLocation().WithArtifactLocation(sarif.NewSimpleArtifactLocation(e.path(p.File)))
	if p.Line > 0 {
		region := sarif.NewRegion().WithStartLine(p.Line)
		if p.Column > 0 {
			region.WithStartColumn(p.Column)
		}
		location.WithRegion(region)
	}
	return sarif.NewLocationWithPhysicalLocation(location)
}
