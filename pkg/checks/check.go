// Package checks holds the rules that a release of a Cluster API provider is checked against. A check is a function
// from a release to findings. It doesn't know how findings are shown.
package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Severity says how serious a finding is.
type Severity string

// The severities, the most severe first.
const (
	// Error is a defect that clusterctl refuses, that breaks a MUST of the contract, or that loses users' data or their
	// way to upgrade.
	Error Severity = "error"
	// Warning is a defect that breaks a SHOULD of the contract, or that causes trouble later.
	Warning Severity = "warning"
	// Note is a fact that users have to know.
	Note Severity = "note"
)

// severities are ordered from the most severe to the least.
var severities = []Severity{Error, Warning, Note}

// ParseSeverity returns the severity with a name. For any other name, the error lists the names.
func ParseSeverity(name string) (Severity, error) {
	if !slices.Contains(severities, Severity(name)) {
		return "", fmt.Errorf("%q isn't a severity: use error, warning or note", name)
	}
	return Severity(name), nil
}

// AtLeast reports whether a severity is at least as severe as another.
func (s Severity) AtLeast(other Severity) bool {
	return slices.Index(severities, s) <= slices.Index(severities, other)
}

// Group is the part of a release that a check is about.
type Group string

// The groups, in the order of reports.
const (
	Repository   Group = "repository"
	Metadata     Group = "metadata"
	Components   Group = "components"
	Contract     Group = "contract"
	Templates    Group = "templates"
	ClusterClass Group = "clusterclass"
	// Ownership checks are about the objects that `clusterctl move` moves: in releases, dumps and clusters.
	Ownership Group = "ownership"
	// Upgrade checks compare with the previous release; without it they report nothing.
	Upgrade Group = "upgrade"
)

// Check is one rule.
type Check struct {
	// ID names the check and never changes: reports, suppressions and the book use it.
	ID    string
	Group Group
	// Severity is the severity of findings without their own.
	Severity Severity
	// Title says in a line what the check looks for.
	Title string
	// Source is the document and heading of the rule.
	Source string
	// Run is nil if the check is only for dumps and clusters, or if List.Run itself reports the finding.
	Run RunFunc
	// Ahead, if not nil, derives the slowest value that Run needs, while earlier checks run.
	Ahead func(ctx context.Context, s *Subject)
}

// RunFunc reports the defects of a release. It ends with the context. The error says why it could not finish.
type RunFunc func(ctx context.Context, s *Subject, report Report) error

// Each returns a RunFunc that calls look for one item of a release after the other.
func Each[T any](items func(s *Subject) []T, look func(s *Subject, item T, report Report)) RunFunc {
	return func(_ context.Context, s *Subject, report Report) error {
		for _, item := range items(s) {
			look(s, item, report)
		}
		return nil
	}
}

// Report takes one finding of a check; the engine sets the fields that come from the check.
type Report func(Finding)

// Finding is one defect.
type Finding struct {
	manifest.Place
	// ID, Severity and Source are those of the check, unless the finding sets a severity.
	ID       string
	Severity Severity
	Source   string
	// Message says what is wrong and which consequence it has.
	Message string
	// Fix says what to do.
	Fix string
	// Cause groups findings with one cause, also across files: of findings of a check with the same Cause and severity,
	// the first is reported. Without a Cause, findings with the same message, field and kind form a group.
	Cause string
	// MorePlaces are the places of the findings that are grouped under this one.
	MorePlaces []manifest.Place
}

// Few lists names. Of a long list it returns the first names and the number of the rest.
func Few(names []string) string {
	const most = 30
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Suppressed is a finding that the release file turns off.
type Suppressed struct {
	Finding
	// Reason is the reason in the release file.
	Reason string
}

// Result has the findings of one release, dump or cluster.
type Result struct {
	// Release is nil if a dump or a cluster was checked, which Source names for users.
	Release    *release.Release
	Source     string
	Findings   []Finding
	Suppressed []Suppressed
	// Graphs are the owner graphs of the release's templates, if the Subject wants them, or the graph of the dump or
	// cluster.
	Graphs []TemplateGraph
}

// TemplateGraph is the owner graph of the objects of a template, or of a dump or cluster.
type TemplateGraph struct {
	// Template is the name of the file, "" for a dump or cluster.
	Template string
	Graph    *move.Graph
}

// Count returns the number of findings with a severity.
func (r *Result) Count(severity Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// List is a list of checks in the order of reports.
type List []Check

// Find returns the check with an ID. The error names similar IDs.
func (l List) Find(id string) (Check, error) {
	var near []string
	for _, c := range l {
		if c.ID == id {
			return c, nil
		}
		if strings.Contains(c.ID, id) || strings.Contains(id, c.ID) {
			near = append(near, c.ID)
		}
	}
	if len(near) > 0 {
		return Check{}, fmt.Errorf("there is no check %q; is it %s?", id, strings.Join(near, ", or "))
	}
	return Check{}, fmt.Errorf("there is no check %q: --list shows all checks", id)
}

// maxFindings is the number of findings of one check that are listed: a file may have more defects than users read.
const maxFindings = 1000

// findings returns the findings of the check. The last of more than maxFindings gives the number of the rest.
func (c Check) findings(ctx context.Context, s *Subject) ([]Finding, error) {
	var findings []Finding
	more := map[Severity]int{}
	err := c.Run(ctx, s, func(f Finding) {
		f.ID, f.Source = c.ID, c.Source
		if f.Severity == "" {
			f.Severity = c.Severity
		}
		if file, ok := s.Release.File(f.File); ok && f.Severity == Error && s.Release.IsMisnamedClass(file) {
			f.Severity = Warning // clusterctl does not read the file
		}
		if len(findings) >= maxFindings {
			more[f.Severity]++
			return
		}
		findings = append(findings, f)
	})
	for _, severity := range severities {
		if n := more[severity]; n > 0 {
			findings = append(findings, Finding{
				ID: c.ID, Source: c.Source, Severity: severity,
				Message: fmt.Sprintf("%d more findings of this kind are not listed", n),
				Fix:     "fix the others first",
			})
		}
	}
	return findings, err
}

// Failure is the error of a check that failed.
type Failure struct {
	Check string
	// Subject names the release.
	Subject string
	Err     error
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("check %s of %s failed: %v (its findings may be incomplete: remove the cause and check again, or report a bug)", f.Check, f.Subject, f.Err)
}

// Unwrap returns the error of the check.
func (f *Failure) Unwrap() error { return f.Err }

// Run runs the checks on a release. It returns their findings by file, place and check, with one finding for each
// cause. If the context ends first, it returns the context's error and no result. If checks fail, it returns their
// joined Failures together with the findings of all checks.
func (l List) Run(ctx context.Context, s *Subject) (*Result, error) {
	var ahead sync.WaitGroup
	defer ahead.Wait()
	for _, c := range l {
		if c.Ahead != nil {
			ahead.Go(func() { c.Ahead(ctx, s) })
		}
	}
	var findings []Finding
	var failures []error
	silent := map[string]bool{} // checks that may miss findings
	for _, c := range l {
		if c.Run == nil {
			continue
		}
		found, err := c.findings(ctx, s)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err != nil {
			failures = append(failures, &Failure{Check: c.ID, Subject: s.Release.String(), Err: err})
		}
		silent[c.ID] = err != nil || c.Group == Upgrade && s.Previous == nil
		findings = append(findings, found...)
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	result := s.suppress(findings, silent)
	result.Findings = fold(result.Findings)
	result.Graphs = s.graphs
	return result, errors.Join(failures...)
}
