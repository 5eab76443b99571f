package publish

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// The files that lie next to those of a release on a server: ProvenanceFile says where they come from,
// where their build recorded it.
const (
	ProvenanceFile = store.ProvenanceFile
	ChecksumsFile  = store.ChecksumsFile
)

// commitName is the full hash of a commit.
var commitName = regexp.MustCompile(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)

// madeFiles returns the files that are published next to those of a version: its checksums, and its
// provenance where the source is known.
func madeFiles(ctx context.Context, v *store.Version, opts Options) ([]release.File, error) {
	files := []release.File{v.Checksums()}
	source := v.Source()
	if source == nil {
		return files, nil
	}
	statement, err := provenance.New(ctx, v.Number, v.Files, source, opts.SignKey)
	if err != nil {
		return nil, err
	}
	return append(files, statement), nil
}

// recorded is the publisher of a server, and refuses releases whose recorded source can't be claimed.
type recorded struct {
	Publisher
	opts Options
}

// Plan implements Publisher.
func (p recorded) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	releases, warnings, err := p.opts.checkSources(releases)
	if err != nil {
		return nil, err
	}
	plan, err := p.Publisher.Plan(ctx, releases)
	if plan != nil {
		plan.Warnings = append(warnings, plan.Warnings...)
	}
	return plan, err
}

// Publish implements Publisher.
func (p recorded) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	releases, warnings, err := p.opts.checkSources(releases)
	if err != nil {
		return nil, err
	}
	result, err := p.Publisher.Publish(ctx, releases)
	if result != nil {
		result.Warnings = append(warnings, result.Warnings...)
	}
	return result, err
}

// checkSources returns the releases with the sources that are claimed for them, and a warning of those
// that have none. It is an error if what a build recorded does not hold for a release.
func (o Options) checkSources(releases []*release.Release) ([]*release.Release, []string, error) {
	if o.SignKey != "" {
		if err := provenance.CheckKey(o.SignKey); err != nil {
			return nil, nil, err
		}
	}
	if o.NoProvenance {
		if o.SignKey != "" {
			return nil, nil, errors.New("without provenance (--no-provenance) there is nothing to sign (--sign-key): leave out one of them")
		}
		unclaimed := make([]*release.Release, 0, len(releases))
		for _, r := range releases {
			without := *r
			without.Source = nil
			unclaimed = append(unclaimed, &without)
		}
		return unclaimed, nil, nil
	}
	var problems []error
	var without []string
	first := map[string]*release.Release{} // by version
	for _, r := range releases {
		if r.Source == nil {
			without = append(without, r.String())
			continue
		}
		problems = append(problems, o.checkSource(r))
		if other, ok := first[r.Version]; ok && !other.Source.SameCommit(r.Source) {
			problems = append(problems, fmt.Errorf("%s was built from the commit %s and %s from %s, or by another version of clusterctl-release: they share one provenance; build them together", other, other.Source.Commit, r, r.Source.Commit))
		}
		first[r.Version] = r
	}
	if len(without) == 0 {
		return releases, nil, errors.Join(problems...)
	}
	reason := fmt.Sprintf("no record of the source of %s (%s, which build writes in a git repository)", strings.Join(without, ", "), release.SourceFile)
	if o.SignKey != "" {
		problems = append(problems, fmt.Errorf("there is a key to sign with, and nothing to sign: there is %s", reason))
	}
	return releases, []string{"published without provenance: there is " + reason}, errors.Join(problems...)
}

// checkSource returns an error if what a build recorded of a release can't be claimed for it.
func (o Options) checkSource(r *release.Release) error {
	const orElse = "build it again, or publish it without provenance (--no-provenance), so that nobody can tell which commit it comes from"
	if changed := r.ChangedSinceBuild(); len(changed) > 0 {
		texts := make([]string, 0, len(changed))
		for _, d := range changed {
			texts = append(texts, describeChange(d))
		}
		return fmt.Errorf("%s is not what was built from the commit %s: %s: %s", r, r.Source.Commit, strings.Join(texts, "; "), orElse)
	}
	if r.Source.Modified {
		return fmt.Errorf("%s was built from a tree with changes that are not in the commit %s: commit them, and %s", r, r.Source.Commit, orElse)
	}
	if o.Commit != "" && !strings.EqualFold(o.Commit, r.Source.Commit) {
		return fmt.Errorf("%s was built from the commit %s, and not from %s (--commit): leave that out, or build what it names", r, r.Source.Commit, o.Commit)
	}
	return nil
}

// describeChange says what became of a file since the build.
func describeChange(d release.Difference) string {
	return map[string]string{
		"missing": d.File + " was removed", "extra": d.File + " was added", "differs": d.File + " was changed",
	}[d.Kind]
}
