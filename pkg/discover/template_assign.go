package discover

import (
	"fmt"
	"path"
	"slices"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// assignAll assigns the chosen assets to the providers.
func (s *selection) assignAll() {
	if len(s.chosen) > 0 && !slices.ContainsFunc(s.found.Providers, func(p Provider) bool { return p.Type == clusterctlv1.InfrastructureProviderType }) {
		var sources []string
		for _, a := range s.chosen {
			sources = append(sources, a.source())
		}
		s.doubt("skipped, because the tree has no infrastructure provider to release templates with: %s", listed(sources, maxListed))
		return
	}
	s.assignFolders()
	for _, a := range s.chosen {
		p := s.nearest(a.source())
		entries, count := &p.Templates, &p.templates
		if release.IsClusterClass(a.name) {
			entries, count = &p.ClusterClasses, &p.classes
		}
		*count++
		if s.decided {
			p.templatesBy = placed(s.chosen)
		}
		if !a.hasItsName() {
			*entries = append(*entries, release.AssetConfig{Path: a.file, Kustomize: a.kustomize, As: a.name})
		}
	}
	s.remarkOnClasses()
}

// hasItsName reports whether an asset is a file with its name in the release.
func (a asset) hasItsName() bool { return a.file != "" && path.Base(a.file) == a.name }

// assignFolders assigns the files with their release names to the providers, folder by folder.
func (s *selection) assignFolders() {
	var files []string
	for _, a := range s.chosen {
		if a.hasItsName() {
			files = append(files, a.file)
		}
	}
	for _, group := range byFolder(files) {
		var flavors, classes []string
		for _, file := range group {
			if release.IsClusterClass(path.Base(file)) {
				classes = append(classes, file)
			} else {
				flavors = append(flavors, file)
			}
		}
		p := s.nearest(group[0])
		p.Templates = append(p.Templates, s.entries(flavors, "cluster-template*.yaml")...)
		p.ClusterClasses = append(p.ClusterClasses, s.entries(classes, "clusterclass-*.yaml")...)
	}
}

// remarkOnClasses adds remarks to files that are released as templates but contain only a ClusterClass.
func (s *selection) remarkOnClasses() {
	for _, a := range s.chosen {
		if isCluster, isClass := s.kinds(a.file); a.file == "" || !isClass || isCluster || !release.IsClusterTemplate(a.name) {
			continue
		}
		remark := a.file + " contains only a ClusterClass: clusterctl offers it as a flavor, and finds no class by its name"
		if name := s.className(a.file); name != "" {
			remark += fmt.Sprintf(": release it once more with 'path: %s' and 'as: clusterclass-%s.yaml' under clusterClasses", a.file, name)
		}
		p := s.nearest(a.file)
		p.Remarks = append(p.Remarks, remark+".")
	}
}

// nearest returns the infrastructure provider with the most folders in common with a path. One exists.
func (l *look) nearest(file string) *Provider {
	best, shared := -1, -1
	for i, p := range l.found.Providers {
		if n := tree.SharedFolders(file, p.Kustomize); p.Type == clusterctlv1.InfrastructureProviderType && n > shared {
			best, shared = i, n
		}
	}
	return &l.found.Providers[best]
}

// entries returns the entries for files of one folder: a pattern if it matches only them.
func (l *look) entries(files []string, pattern string) []release.AssetConfig {
	if len(files) > 1 {
		glob := path.Join(path.Dir(files[0]), pattern)
		if matches, err := l.tree.Glob(glob); err == nil && slices.Equal(matches, files) {
			return []release.AssetConfig{{Path: glob}}
		}
	}
	entries := make([]release.AssetConfig, 0, len(files))
	for _, file := range files {
		entries = append(entries, release.AssetConfig{Path: file})
	}
	return entries
}

// byFolder groups paths by their folders, in the order of the first of each; each group is sorted.
func byFolder(files []string) [][]string {
	var groups [][]string
	index := map[string]int{}
	for _, file := range files {
		dir := path.Dir(file)
		i, ok := index[dir]
		if !ok {
			i = len(groups)
			index[dir] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], file)
	}
	for _, group := range groups {
		slices.Sort(group)
	}
	return groups
}
