// Package checks holds the rules that a release of a Cluster API provider is checked against. A
// check is a function from a release to findings; it knows nothing of how findings are shown.
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
	// Error is what clusterctl or a MUST of the contract refuses, or what loses users' data or
	// their way to upgrade.
	Error Severity = "error"
	// Warning is a SHOULD of the contract, or a trap that bites later.
	Warning Severity = "warning"
	// Note is worth knowing.
	Note Severity = "note"
)

// severities are ordered from the most severe to the least.
var severities = []Severity{Error, Warning, Note}

// ParseSeverity returns the severity of a name. Any other name is an error that lists them.
func ParseSeverity(name string) (Severity, error) {
	if !slices.Contains(severities, Severity(name)) {
		return "", fmt.Errorf("%q isn't a severity: use error, warning or note", name)
	}
	return Severity(name), nil
}

// AtLeast says whether a severity is as severe as another, or more severe.
func (s Severity) AtLeast(other Severity) bool {
	return slices.Index(severities, s) <= slices.Index(severities, other)
}

// Group is what part of a release a check is about.
type Group string

// The groups, in the order of reports.
const (
	Repository   Group = "repository"
	Metadata     Group = "metadata"
	Components   Group = "components"
	Contract     Group = "contract"
	Templates    Group = "templates"
	ClusterClass Group = "clusterclass"
	// Ownership checks are about what `clusterctl move` takes: of releases, of dumps and of clusters.
	Ownership Group = "ownership"
	// Upgrade checks need the release before; without it they are silent.
	Upgrade Group = "upgrade"
)

// Check is one rule.
type Check struct {
	// ID names the check for ever: reports, suppressions and the book use it.
	ID    string
	Group Group
	// Severity is that of its findings, where a finding has none of its own.
	Severity Severity
	// Title says in a line what the check looks for.
	Title string
	// Source is the document and heading that the rule comes from.
	Source string
	// Run is nil if only dumps and clusters are checked, or if List.Run itself reports the finding.
	Run RunFunc
	// Ahead, if not nil, derives what Run needs and takes longest, while the checks before it run.
	Ahead func(ctx context.Context, s *Subject)
}

// RunFunc reports what is wrong in a release. It ends with the context, and returns why it could not finish.
type RunFunc func(ctx context.Context, s *Subject, report Report) error

// Report takes one finding of a check; the engine fills in what the check's own fields say.
type Report func(Finding)

// Finding is one thing that is wrong.
type Finding struct {
	manifest.Place
	// ID, Severity and Source are those of the check, unless the finding has a severity of its own.
	ID       string
	Severity Severity
	Source   string
	// Message says what is wrong, and what comes of it.
	Message string
	// Fix says what to do.
	Fix string
	// Cause groups findings that have one cause, also across files: findings of a check with the same
	// Cause and severity are reported as the first of them. Without it, findings are grouped that say
	// the same of the same field and kind.
	Cause string
	// MorePlaces are the places of the findings that are grouped under this one.
	MorePlaces []manifest.Place
}

// Few lists names, and of many the first and how many more there are.
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
	// Reason is the one that the release file gives.
	Reason string
}

// Result is what the checks found in one release, or in one dump or cluster.
type Result struct {
	// Release is nil where something else was checked, which Source names for people.
	Release    *release.Release
	Source     string
	Findings   []Finding
	Suppressed []Suppressed
	// Graphs are the owner graphs of the release's templates, where the Subject asks for them, or that of
	// the dump or cluster.
	Graphs []TemplateGraph
}

// TemplateGraph is the owner graph of what a template becomes, or of a dump or cluster.
type TemplateGraph struct {
	// Template is the name of the file, "" for a dump or cluster.
	Template string
	Graph    *move.Graph
}

// Count returns how many findings have a severity.
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

// Find returns the check of an id. The error names the ids that come near.
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
	return Check{}, fmt.Errorf("there is no check %q: --list has them all", id)
}

// maxFindings is how many findings of one check are told apart: a file may have more faults than
// anybody reads.
const maxFindings = 1000

// findings returns what the check finds. Of more than maxFindings the last says how many there are.
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
	return fmt.Sprintf("check %s of %s failed: %v (findings of it may be missing: remove the cause and check again, or report a bug)", f.Check, f.Subject, f.Err)
}

// Unwrap returns the error of the check.
func (f *Failure) Unwrap() error { return f.Err }

// Run runs the checks on a release. It returns their findings by file, place and check, with one finding for
// each cause. If the context ends first, it returns the context's error and no result. If checks fail, it
// returns their Failures, joined, and the findings of all checks.
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
