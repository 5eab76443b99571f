package diff

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Report is the difference between two sets of releases.
type Report struct {
	// Differences are those of the providers in both sets, by label; an Empty one means that nothing changed.
	Differences []*Difference
	// Added and Removed are releases of providers in only one set.
	Added, Removed []*release.Release
}

// ErrSeveral means that a set has two releases of one provider, so the pair to compare is ambiguous.
var ErrSeveral = errors.New("name one version's folder")

// Sets compares two sets of releases, provider by provider. The error is ErrSeveral, or that of Releases.
func Sets(before, after []*release.Release) (*Report, error) {
	old, err := byProvider(before)
	if err != nil {
		return nil, err
	}
	now, err := byProvider(after)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	for _, label := range unionKeys(old, now) {
		switch {
		case now[label] == nil:
			r.Removed = append(r.Removed, old[label])
		case old[label] == nil:
			r.Added = append(r.Added, now[label])
		default:
			d, err := Releases(old[label], now[label])
			if err != nil {
				return nil, err
			}
			r.Differences = append(r.Differences, d)
		}
	}
	return r, nil
}

func byProvider(releases []*release.Release) (map[string]*release.Release, error) {
	all := map[string]*release.Release{}
	for _, r := range releases {
		label := r.Provider.Label()
		if other := all[label]; other != nil {
			return nil, fmt.Errorf("the set has %s and %s: %w", other, r, ErrSeveral)
		}
		all[label] = r
	}
	return all, nil
}

// Empty reports whether nothing changed.
func (r *Report) Empty() bool {
	return len(r.Added)+len(r.Removed) == 0 && !slices.ContainsFunc(r.Differences, func(d *Difference) bool { return !d.Empty() })
}

// Formats are the formats of a report. A new one is one file and one line here.
var Formats = format.List[*Report]{
	{Name: "text", Write: writeText},
	{Name: "markdown", Write: writeMarkdown},
	{Name: "json", Write: writeJSON},
}

// Write writes the report in a format of Formats.
func (r *Report) Write(name string, w io.Writer) error {
	return Formats.Write(name, "the changes", r, w)
}
