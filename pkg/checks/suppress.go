package checks

import (
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// SuppressionUnused has no Run: the engine reports it after all other checks.
var SuppressionUnused = Check{
	ID: "suppression-unused", Group: Repository, Severity: Warning,
	Title:  "Each suppression of the release file turns off a finding",
	Source: release.ConfigFile,
}

// suppress removes the findings that the release file turns off. It reports suppressions without a finding, except for
// checks that may have missed findings.
func (s *Subject) suppress(findings []Finding, silent map[string]bool) *Result {
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
		if used[i] || silent[suppression.Check] {
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
			ID: SuppressionUnused.ID, Severity: SuppressionUnused.Severity, Source: SuppressionUnused.Source,
			Message: fmt.Sprintf("suppress[%d] of %s turns off %s, but no such finding exists", i, s.Release.Provider.Label(), what),
			Fix:     "remove it from " + release.ConfigFile + ", or correct it",
		})
	}
	return result
}

// matches reports whether a suppression applies to a finding.
func matches(s release.Suppression, f Finding) bool {
	return s.Check == f.ID && (s.File == "" || s.File == f.File) && (s.Object == "" || s.Object == f.Object.String())
}
