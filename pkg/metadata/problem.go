package metadata

import (
	"fmt"
	"strings"
)

// ProblemID names a kind of problem: it is the ID of the check that reports it, and never changes.
type ProblemID string

// The problems of a metadata.yaml.
const (
	// ProblemParse is text that isn't a metadata.yaml: its YAML, its fields or their types.
	ProblemParse ProblemID = "metadata-parse"
	// ProblemAPIVersion is an apiVersion that is missing or not clusterctl's.
	ProblemAPIVersion ProblemID = "metadata-api-version"
	// ProblemKind is a kind that is missing or not Metadata.
	ProblemKind ProblemID = "metadata-kind"
	// ProblemSeriesPresent is a release without a series, if it affects users of a listed series.
	ProblemSeriesPresent ProblemID = "series-present"
	// ProblemSeriesDuplicate is a series that the file contains more than once.
	ProblemSeriesDuplicate ProblemID = "series-duplicate"
	// ProblemSeriesOrder is a list that is not sorted.
	ProblemSeriesOrder ProblemID = "series-order"
	// ProblemSeriesDropped is a series that was released and is no longer in the file.
	ProblemSeriesDropped ProblemID = "series-dropped"
	// ProblemSeriesContractChanged is a series whose contract was another one in an earlier release.
	ProblemSeriesContractChanged ProblemID = "series-contract-changed"
	// ProblemContractKnown is a contract that Cluster API never had, or that clusterctl refuses.
	ProblemContractKnown ProblemID = "contract-known"
)

// Severity says how bad a problem is.
type Severity string

const (
	// SeverityError is a problem for which clusterctl refuses the file, or users can't upgrade.
	SeverityError Severity = "error"
	// SeverityWarning is a problem that clusterctl accepts but that causes trouble later.
	SeverityWarning Severity = "warning"
)

// Problem is one defect of a metadata.yaml.
type Problem struct {
	ID       ProblemID
	Severity Severity
	// Line is the line, counted from 1. It is 0 if the problem has no line.
	Line int
	// Message says what is wrong and what it causes.
	Message string
	// Fix says what to do about it.
	Fix string
}

// String returns the problem as one line without the file's name.
func (p Problem) String() string {
	return p.Message + ": " + p.Fix
}

// ParseError means that clusterctl refuses a text as a metadata.yaml. At least one of its problems is an error.
type ParseError struct {
	// Path is the file's name as it was given to Parse.
	Path     string
	Problems []Problem
}

// Error returns a line for each problem, with file and line at the start.
func (e *ParseError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		lines = append(lines, place(e.Path, p.Line)+": "+p.String())
	}
	return strings.Join(lines, "\n")
}

// place returns a place in the form that editors and terminals link.
func place(path string, line int) string {
	if line == 0 {
		return path
	}
	return fmt.Sprintf("%s:%d", path, line)
}
