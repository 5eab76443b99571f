package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
)

// The JUnit report has a suite for each release and a case for each check. A case fails with the check's errors and
// warnings; notes are its output.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(r *Report, w io.Writer) error {
	out := junitSuites{}
	for _, e := range r.Entries {
		suite := junitSuite{Name: e.title()}
		byID := map[string][]checks.Finding{}
		for _, f := range e.Findings {
			byID[f.ID] = append(byID[f.ID], f)
		}
		for _, check := range catalog.All() {
			if e.Release == nil && check.Group != checks.Ownership || e.Release != nil && check.Run == nil {
				continue // it was not run
			}
			suite.add(e, string(check.Group), check.ID, byID[check.ID])
			delete(byID, check.ID)
		}
		for _, id := range slices.Sorted(maps.Keys(byID)) { // of the engine itself
			suite.add(e, "engine", id, byID[id])
		}
		out.Suites = append(out.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// add adds the case of a check.
func (s *junitSuite) add(e Entry, group, id string, findings []checks.Finding) {
	c := junitCase{Class: group, Name: id}
	for _, f := range findings {
		line := fmt.Sprintf("%s:%d: %s\n", e.path(f.File), f.Line, sentence(e, f))
		if f.Severity == checks.Note {
			c.Output += line
			continue
		}
		if c.Failure == nil {
			c.Failure = &junitFailure{Type: string(f.Severity), Message: f.Message}
			s.Failures++
		}
		c.Failure.Text += line
	}
	s.Tests++
	s.Cases = append(s.Cases, c)
}
