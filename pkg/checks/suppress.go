package checks

import (
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// suppressionUnused has no Run: the engine reports it when all other checks have been run.
var suppressionUnused = Check{
	ID: "suppression-unused", Group: Repository, Severity: Warning,
	Title:  "Each suppression of the release file turns off a finding",
	Source: release.ConfigFile,
}

// suppress takes out the findings that the release file turns off, and reports what turns off nothing.
func (s *Subject) suppress(findings []Finding) *Result {
	result := &Result{Release: s.Release}
	if s.Config == nil {
		result.Findings = findings
		return result
	}
	used := make([]bool, len(s.Config.Suppress))
	for _, f := range findings {
		reason, off := "", false
		for i, suppression := range s.Config.Suppress {
			if matches(suppression, f) {
				used[i], off, reason = true, true, suppression.Reason
			}
		}
		if off {
			result.Suppressed = append(result.Suppressed, Suppressed{Finding: f, Reason: reason})
		} else {
			result.Findings = append(result.Findings, f)
		}
	}
	for i, suppression := range s.Config.Suppress {
		if used[i] || s.cantTell(suppression.Check) {
			continue
		}
		what := suppression.Check
		if suppression.Object != "" {
			what += " of " + suppression.Object
		}
		if suppression.File != "" {
			what += " in " + suppression.File
		}
		result.Findings = append(result.Findings, Finding{
			ID: suppressionUnused.ID, Severity: suppressionUnused.Severity, Source: suppressionUnused.Source,
			Message: fmt.Sprintf("suppress[%d] of %s turns off %s, and there is no such finding", i, s.Release.Provider.Label(), what),
			Fix:     "take it out of " + release.ConfigFile + ", or fix what it names",
		})
	}
	return result
}

// cantTell says whether a check has nothing to go by: those of an upgrade need the release before.
func (s *Subject) cantTell(id string) bool {
	check, err := Find(id)
	return err == nil && check.Group == Upgrade && s.Previous == nil
}

// matches says whether a suppression is for a finding.
func matches(s release.Suppression, f Finding) bool {
	return s.Check == f.ID && (s.File == "" || s.File == f.File) && (s.Object == "" || s.Object == f.Object.String())
}
