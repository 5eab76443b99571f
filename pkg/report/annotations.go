package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// writeGitHub writes workflow commands, which GitHub Actions shows as annotations.
func writeGitHub(r *Report, w io.Writer) error {
	commands := map[checks.Severity]string{checks.Error: "error", checks.Warning: "warning", checks.Note: "notice"}
	for _, e := range r.Entries {
		for _, f := range e.Findings {
			properties := []string{"title=" + escapeProperty(f.ID)}
			if f.File != "" {
				properties = append(properties, "file="+escapeProperty(e.path(f.File)))
			}
			if f.Line > 0 {
				properties = append(properties, fmt.Sprintf("line=%d", f.Line))
			}
			if f.Column > 0 {
				properties = append(properties, fmt.Sprintf("col=%d", f.Column))
			}
			if _, err := fmt.Fprintf(w, "::%s %s::%s\n", commands[f.Severity], strings.Join(properties, ","), escapeData(sentence(e, f))); err != nil {
				return err
			}
		}
	}
	return nil
}

// sentence returns a finding as one text.
func sentence(e Entry, f checks.Finding) string {
	lead := e.title()
	if at := where(f); at != "" {
		lead += ", " + at
	}
	text := fmt.Sprintf("%s: %s (fix: %s)", lead, f.Message, f.Fix)
	if places := more(f, len(f.MorePlaces)); places != "" {
		text += "; " + places
	}
	return text
}

// escapeData escapes the text of a workflow command.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// escapeProperty escapes a property of a workflow command.
func escapeProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// gitLabIssue is an entry of GitLab's code quality report.
type gitLabIssue struct {
	Description string         `json:"description"`
	CheckName   string         `json:"check_name"`
	Fingerprint string         `json:"fingerprint"`
	Severity    string         `json:"severity"`
	Location    gitLabLocation `json:"location"`
}

type gitLabLocation struct {
	Path  string `json:"path"`
	Lines struct {
		Begin int `json:"begin"`
	} `json:"lines"`
}

// writeGitLab writes a code quality report, which GitLab shows in merge requests.
func writeGitLab(r *Report, w io.Writer) error {
	severities := map[checks.Severity]string{checks.Error: "critical", checks.Warning: "minor", checks.Note: "info"}
	issues := []gitLabIssue{}
	seen := map[string]int{}
	for _, e := range r.Entries {
		for _, f := range e.Findings {
			// The fingerprint excludes the line, so that an issue stays the same when lines above it change. A number
			// distinguishes further issues with the same content.
			content := strings.Join([]string{e.label(), f.ID, f.File, f.Object.String(), f.Path, f.Message}, "\x00")
			seen[content]++
			sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", content, seen[content]))
			issue := gitLabIssue{
				Description: sentence(e, f), CheckName: f.ID, Severity: severities[f.Severity],
				Fingerprint: hex.EncodeToString(sum[:]), Location: gitLabLocation{Path: e.path(f.File)},
			}
			issue.Location.Lines.Begin = max(f.Line, 1)
			issues = append(issues, issue)
		}
	}
	return format.JSON(issues, w)
}
