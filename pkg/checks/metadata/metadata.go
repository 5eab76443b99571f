package metadata

import (
	"context"
	"errors"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	sourceMetadata   = "clusterctl provider contract, Metadata YAML"
	sourceValidation = "clusterctl provider contract, Metadata YAML, Validation Rules"
)

// The checks of metadata.yaml are those of pkg/metadata, one for each kind of problem.
var (
	metadataParse = metadataCheck(metadata.ProblemParse, checks.Error, sourceValidation,
		"metadata.yaml has the format that clusterctl reads")
	metadataAPIVersion = metadataCheck(metadata.ProblemAPIVersion, checks.Error, sourceValidation,
		"metadata.yaml has clusterctl's apiVersion")
	metadataKind = metadataCheck(metadata.ProblemKind, checks.Error, sourceValidation,
		"metadata.yaml has the kind Metadata")
	seriesDuplicate = metadataCheck(metadata.ProblemSeriesDuplicate, checks.Warning, sourceMetadata,
		"No release series is listed twice")
	seriesOrder = metadataCheck(metadata.ProblemSeriesOrder, checks.Warning, sourceMetadata,
		"The release series are in order")
	seriesDropped = metadataCheck(metadata.ProblemSeriesDropped, checks.Error, sourceMetadata,
		"No release series of the previous release is missing")
	seriesContractChanged = metadataCheck(metadata.ProblemSeriesContractChanged, checks.Error, sourceMetadata,
		"No release series has a different contract than before")
	contractKnown = metadataCheck(metadata.ProblemContractKnown, checks.Error, sourceMetadata,
		"clusterctl supports the release's contract, and the contracts of other series exist")
)

// metadataCheck returns the check that reports one kind of problem; each problem has its own severity.
func metadataCheck(problem metadata.ProblemID, severity checks.Severity, source, title string) checks.Check {
	return checks.Check{
		ID: string(problem), Group: checks.Metadata, Severity: severity, Title: title, Source: source,
		Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
			reportProblems(s, problem, report)
			return nil
		},
	}
}

// reportProblems reports the problems of one kind in metadata.yaml.
func reportProblems(s *checks.Subject, id metadata.ProblemID, report checks.Report) {
	for _, p := range metadataProblems(s) {
		if p.ID == id {
			report(checks.Finding{Place: s.AtLine(release.MetadataFile, p.Line), Severity: checks.Severity(p.Severity), Message: p.Message, Fix: p.Fix})
		}
	}
}

// metadataProblems returns the defects of metadata.yaml, also compared with the previous release.
func metadataProblems(s *checks.Subject) []metadata.Problem {
	file, err := s.Metadata()
	var invalid *metadata.ParseError
	if errors.As(err, &invalid) {
		return invalid.Problems
	}
	if file == nil {
		return nil
	}
	own, _ := file.SeriesFor(s.Release.Version) // series-present reports a missing series
	problems := file.Check(own, nil)
	if s.Previous == nil {
		return problems
	}
	data, ok := s.Previous.File(release.MetadataFile)
	if !ok {
		return problems
	}
	if previous, err := metadata.Parse(release.MetadataFile, data.Data); err == nil {
		problems = append(problems, file.CheckPrevious(previous, nil)...)
	}
	return problems
}

var seriesPresent = checks.Check{
	ID: "series-present", Group: checks.Metadata, Severity: checks.Error,
	Title:  "metadata.yaml has the series of the release",
	Source: sourceMetadata,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		reportProblems(s, metadata.ProblemSeriesPresent, report)
		file, _ := s.Metadata()
		if file == nil {
			return nil
		}
		if _, err := file.Contract(s.Release.Version); err != nil {
			report(checks.Finding{Place: s.At(release.MetadataFile), Message: err.Error(), Fix: "add the series before the release is published"})
		}
		return nil
	},
}
