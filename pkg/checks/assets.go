package checks

import (
	"fmt"
	"path"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

var assetsComplete = Check{
	ID: "assets-complete", Group: Repository, Severity: Warning,
	Title:  "The release has the templates and classes of its tree",
	Source: sourceRepository,
	Run: func(s *Subject, report Report) {
		if s.Source == nil || s.Config == nil {
			return // nobody knows what the tree has
		}
		s.reportEntries(report)
		s.reportForgotten(report)
	},
}

// reportEntries looks for what the provider's entry in the release file names.
func (s *Subject) reportEntries(report Report) {
	for _, asset := range slices.Concat(s.Config.Templates, s.Config.ClusterClasses, s.Config.Files) {
		source := asset.Kustomize
		if source == "" {
			source = asset.Path
		}
		for _, name := range s.namesOf(asset) {
			if _, ok := s.Release.File(name); ok {
				continue
			}
			report(Finding{
				Message: fmt.Sprintf("there is no %s, which %s makes of %s: who looks for it in the release does not find it", name, release.ConfigFile, source),
				Fix:     "build the release again, and publish all of its files",
			})
		}
	}
}

// namesOf returns the names that the files of an entry have in the release.
func (s *Subject) namesOf(asset release.AssetConfig) []string {
	if asset.As != "" {
		return []string{asset.As}
	}
	paths, err := s.Source.Tree.Glob(asset.Path)
	if err != nil {
		return nil // the tree can't be built, which the build says
	}
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, path.Base(p))
	}
	return names
}

// reportForgotten looks for templates and classes of the tree that no entry of the release file names.
// Those of a name that the release has are taken for copies.
func (s *Subject) reportForgotten(report Report) {
	files, err := templates.Unnamed(s.Source.Tree, s.Source.Config)
	if err != nil {
		report(Finding{Message: "the tree can't be looked through for templates: " + err.Error(), Fix: "make its folders readable"})
		return
	}
	said := map[string]bool{}
	for _, f := range files {
		if _, ok := s.Release.File(path.Base(f.Path)); ok || said[path.Base(f.Path)] || f.Provider != s.Release.Provider {
			continue
		}
		said[path.Base(f.Path)] = true
		report(Finding{
			Message: fmt.Sprintf("the tree has %s, and no entry of %s names it: users do not get it", f.Path, release.ConfigFile),
			Fix:     fmt.Sprintf("add 'path: %s' under %s, or keep it in a folder called testdata or e2e where it is for tests only", f.Path, f.Field),
		})
	}
}
