package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

var assetsComplete = checks.Check{
	ID: "assets-complete", Group: checks.Repository, Severity: checks.Warning,
	Title:  "The release has the templates and classes of its tree",
	Source: sourceRepository,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if s.Source == nil || s.Config == nil {
			return nil // the tree is unknown
		}
		if err := reportEntries(s, report); err != nil {
			return err
		}
		return reportForgotten(s, report)
	},
}

// reportEntries reports missing files of the provider's entry in the release file.
func reportEntries(s *checks.Subject, report checks.Report) error {
	for _, asset := range slices.Concat(s.Config.Templates, s.Config.ClusterClasses, s.Config.Files) {
		source := asset.Kustomize
		if source == "" {
			source = asset.Path
		}
		names, err := namesOf(s, asset)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, ok := s.Release.File(name); ok {
				continue
			}
			report(checks.Finding{
				Message: fmt.Sprintf("the release has no %s, which %s creates from %s: users do not find it", name, release.ConfigFile, source),
				Fix:     "build the release again, and publish all of its files",
			})
		}
	}
	return nil
}

// namesOf returns the names of an entry's files in the release.
func namesOf(s *checks.Subject, asset release.AssetConfig) ([]string, error) {
	if asset.As != "" {
		return []string{asset.As}, nil
	}
	paths, err := s.Source.Tree.Glob(asset.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the build reports an entry that names no file
	}
	if err != nil {
		return nil, fmt.Errorf("find the files of the entry %s of %s: %w", asset.Path, release.ConfigFile, err)
	}
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, path.Base(p))
	}
	return names, nil
}

// reportForgotten reports templates and classes of the tree that no entry of the release file names. It treats files
// with the name of a release file as copies.
func reportForgotten(s *checks.Subject, report checks.Report) error {
	files, err := templates.Unnamed(s.Source.Tree, s.Source.Config)
	if err != nil {
		return fmt.Errorf("find the templates in the tree: %w", err)
	}
	said := map[string]bool{}
	for _, f := range files {
		if _, ok := s.Release.File(path.Base(f.Path)); ok || said[path.Base(f.Path)] || f.Provider != s.Release.Provider {
			continue
		}
		said[path.Base(f.Path)] = true
		report(checks.Finding{
			Message: fmt.Sprintf("the tree has %s, but no entry of %s names it: users do not get it", f.Path, release.ConfigFile),
			Fix:     fmt.Sprintf("add 'path: %s' under %s, or move it to a folder called testdata or e2e if it is for tests only", f.Path, f.Field),
		})
	}
	return nil
}
