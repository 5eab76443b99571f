package checks

import (
	"errors"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const sourceMetadata = "clusterctl provider contract, Metadata YAML, Validation Rules"

var metadataParse = Check{
	ID: "metadata-parse", Group: Metadata, Severity: Error,
	Title:  "metadata.yaml is what clusterctl reads",
	Source: sourceMetadata,
	Run: func(s *Subject, report Report) {
		_, err := s.Metadata()
		var invalid *metadata.ParseError
		if !errors.As(err, &invalid) {
			return
		}
		for _, p := range invalid.Problems {
			reportProblem(s, report, p)
		}
	},
}

// reportProblem turns a problem of pkg/metadata into a finding.
func reportProblem(s *Subject, report Report, p metadata.Problem) {
	place := s.At(release.MetadataFile)
	place.Line = p.Line
	report(Finding{Place: place, Severity: Severity(p.Severity), Message: p.Message, Fix: p.Fix})
}

var metadataSeries = Check{
	ID: "series-present", Group: Metadata, Severity: Error,
	Title:  "metadata.yaml has the series of the release",
	Source: sourceMetadata,
	Run: func(s *Subject, report Report) {
		file, err := s.Metadata()
		if file == nil || err != nil {
			return
		}
		if _, err := file.Contract(s.Release.Version); err != nil {
			report(Finding{Place: s.At(release.MetadataFile), Message: err.Error(), Fix: "add the series before the release is published"})
		}
	},
}
