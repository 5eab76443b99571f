package upgrade

import (
	"context"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const (
	sourceUpgrade        = "clusterctl upgrade apply"
	sourceCRDUpdate      = "Kubernetes, API server, update of a CustomResourceDefinition"
	sourceStoredVersions = "Kubernetes, CustomResourceDefinition versioning, Upgrade existing objects to a new stored version"
	sourceAPIChanges     = "Kubernetes, Deprecation Policy and Changing the API, On compatibility"
)

// upgrade contains the previous release and the changes since then.
type upgrade struct {
	// before is the previous release, read like this one.
	before *checks.Subject
	crds   []diff.CRDChange
	// pairs are the CRDs in both releases, changed or not.
	pairs []crdPair
}

// crdPair is a CRD in both releases.
type crdPair struct{ before, after checks.CRD }

// upgradeOf returns the changes since the previous release, or nil without one.
var upgradeOf = checks.OnceValue(func(s *checks.Subject) *upgrade {
	if s.Previous == nil {
		return nil
	}
	u := &upgrade{before: &checks.Subject{Release: s.Previous, With: s.With, Config: s.Config}}
	_, err := s.Components()
	_, errBefore := u.before.Components()
	if err == nil && errBefore == nil {
		u.crds = diff.CRDs(u.before.CRDs(), s.CRDs())
		for _, after := range s.CRDs() {
			i := slices.IndexFunc(u.before.CRDs(), func(before checks.CRD) bool { return before.Name == after.Name })
			if i >= 0 {
				u.pairs = append(u.pairs, crdPair{u.before.CRDs()[i], after})
			}
		}
	}
	return u
})

// upgradeCheck returns a check that runs only with a previous release.
func upgradeCheck(id string, severity checks.Severity, title, source string, run func(ctx context.Context, s *checks.Subject, u *upgrade, report checks.Report) error) checks.Check {
	return checks.Check{
		ID: id, Group: checks.Upgrade, Severity: severity, Title: title, Source: source,
		Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
			if u := upgradeOf(s); u != nil {
				return run(ctx, s, u, report)
			}
			return nil
		},
	}
}

// placeOfRemoved returns the place of an object that only the previous release has: its file there.
func placeOfRemoved(s *checks.Subject, d *manifest.Document) manifest.Place {
	place := s.At(s.Release.Provider.ComponentsFile())
	place.Object = d.Place().Object
	return place
}
