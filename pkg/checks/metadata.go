package checks

import (
	"errors"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	sourceMetadata   = "clusterctl provider contract, Metadata YAML"
	sourceValidation = "clusterctl provider contract, Metadata YAML, Validation Rules"
)

// The checks of metadata.yaml are pkg/metadata's, one for each kind of problem.
var (
	metadataParse = metadataCheck(metadata.ProblemParse, Error, sourceValidation,
		"metadata.yaml is what clusterctl reads")
	metadataAPIVersion = metadataCheck(metadata.ProblemAPIVersion, Error, sourceValidation,
		"metadata.yaml has clusterctl's apiVersion")
	metadataKind = metadataCheck(metadata.ProblemKind, Error, sourceValidation,
		"metadata.yaml has the kind Metadata")
	seriesDuplicate = metadataCheck(metadata.ProblemSeriesDuplicate, Warning, sourceMetadata,
		"No release series is listed twice")
	seriesOrder = metadataCheck(metadata.ProblemSeriesOrder, Warning, sourceMetadata,
		"The release series are in order")
	seriesDropped = metadataCheck(metadata.ProblemSeriesDropped, Error, sourceMetadata,
		"No release series of the release before is lost")
	seriesContractChanged = metadataCheck(metadata.ProblemSeriesContractChanged, Error, sourceMetadata,
		"No release series has another contract than before")
	contractKnown = metadataCheck(metadata.ProblemContractKnown, Error, sourceMetadata,
		"clusterctl takes the release's contract, and Cluster API had those of other series")
)

// metadataCheck returns the check that reports one kind of problem; each problem has its own severity.
func metadataCheck(problem metadata.ProblemID, severity Severity, source, title string) Check {
	return Check{
		ID: string(problem), Group: Metadata, Severity: severity, Title: title, Source: source,
		Run: func(s *Subject, report Report) { s.reportProblems(problem, report) },
	}
}

// reportProblems reports the problems of one kind in metadata.yaml.
func (s *Subject) reportProblems(id metadata.ProblemID, report Report) {
	for _, p := range s.metadataProblems() {
		if p.ID == id {
			place := s.At(release.MetadataFile)
			place.Line = p.Line
			report(Finding{Place: place, Severity: Severity(p.Severity), Message: p.Message, Fix: p.Fix})
		}
	}
}

// metadataProblems returns what is wrong in metadata.yaml, by itself and against the release before.
func (s *Subject) metadataProblems() []metadata.Problem {
	file, err := s.Metadata()
	var invalid *metadata.ParseError
	if errors.As(err, &invalid) {
		return invalid.Problems
	}
	if file == nil {
		return nil
	}
	own, _ := file.SeriesFor(s.Release.Version) // series-present reports where there is none
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

var seriesPresent = Check{
	ID: "series-present", Group: Metadata, Severity: Error,
	Title:  "metadata.yaml has the series of the release",
	Source: sourceMetadata,
	Run: func(s *Subject, report Report) {
		s.reportProblems(metadata.ProblemSeriesPresent, report)
		file, err := s.Metadata()
		if file == nil || err != nil {
			return
		}
		if _, err := file.Contract(s.Release.Version); err != nil {
			report(Finding{Place: s.At(release.MetadataFile), Message: err.Error(), Fix: "add the series before the release is published"})
		}
	},
}
