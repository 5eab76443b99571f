package discover

import (
	"path"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// addTemplates gives the infrastructure providers the templates and classes of the tree.
func (l *look) addTemplates() {
	byName := map[string]string{} // the file that each name of the release stands for
	take := func(file, name string) bool {
		if other, taken := byName[name]; taken {
			l.doubt("%s would be released as %s, which is %s", file, name, other)
			return false
		}
		byName[name] = file
		return true
	}
	var flavors, classes []string
	for _, file := range l.byDepth(l.scan.files) {
		base := path.Base(file)
		template, class := release.IsClusterTemplate(base), release.IsClusterClass(base)
		isCluster, isClass := l.kinds(file)
		switch {
		case template && isCluster && take(file, base):
			flavors = append(flavors, file)
		case class && isClass && take(file, base):
			classes = append(classes, file)
		case !template && !class && isClass && !l.isPart(file):
			l.doubt("%s has a ClusterClass: release it with 'path: %s' and 'as: clusterclass-NAME.yaml' under clusterClasses", file, file)
		case !template && !class && isCluster && !l.isPart(file):
			l.doubt("%s has a Cluster: release it with 'path: %s' and 'as: cluster-template-FLAVOR.yaml' under templates", file, file)
		}
	}
	for _, group := range byFolder(flavors) {
		l.assign(group[0], func(p *Provider) { p.Templates = append(p.Templates, l.entries(group, "cluster-template*.yaml")...) })
	}
	for _, group := range byFolder(classes) {
		l.assign(group[0], func(p *Provider) {
			p.ClusterClasses = append(p.ClusterClasses, l.entries(group, "clusterclass-*.yaml")...)
		})
	}
	l.addFlavors(take)
}

// addFlavors takes the kustomizations that give a Cluster for flavors called after their folders.
func (l *look) addFlavors(take func(file, name string) bool) {
	dirs := make([]string, 0, len(l.results))
	for dir := range l.results {
		dirs = append(dirs, dir)
	}
	for _, dir := range l.byDepth(dirs) {
		isCluster := false
		for _, resource := range l.results[dir].Resources() {
			gvk := resource.GetGvk()
			isCluster = isCluster || gvk.Group == "cluster.x-k8s.io" && gvk.Kind == "Cluster"
		}
		if !isCluster {
			continue
		}
		flavor := path.Base(dir)
		if flavor == "default" || flavor == "base" || flavor == "." {
			flavor = ""
		}
		name := release.ClusterTemplateFile(flavor)
		if !strings.Contains(dir, "template") && !strings.Contains(dir, "flavor") {
			l.doubt("%s gives a Cluster: release it with 'kustomize: %s' and 'as: cluster-template-FLAVOR.yaml' under templates", dir, dir)
			continue
		}
		if take(dir, name) {
			l.assign(dir, func(p *Provider) {
				p.Templates = append(p.Templates, release.AssetConfig{Kustomize: dir, As: name})
			})
		}
	}
}

// kinds says whether a file has a Cluster and a ClusterClass of Cluster API's.
func (l *look) kinds(file string) (isCluster, isClass bool) {
	data, err := l.tree.ReadFile(file)
	if err != nil {
		return false, false // a link out of the tree, say: a build would refuse it
	}
	return templates.Kinds(data)
}

// isPart says whether a file lies in a folder that kustomizations are made of, or has no place in
// a release for another reason that its folder tells.
func (l *look) isPart(file string) bool {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		if _, ok := l.scan.kustomizations[dir]; ok {
			return true
		}
		switch path.Base(dir) {
		case "bases", "base", "samples", "metrics", "docs":
			return true
		}
		if dir == "." {
			return false
		}
	}
}

// assign calls add for the infrastructure provider nearest to a path: the one that shares most of
// its folders.
func (l *look) assign(file string, add func(*Provider)) {
	best, shared := -1, -1
	for i, p := range l.found.Providers {
		if p.Provider().ClusterctlFlag() != "infrastructure" {
			continue
		}
		if n := sharedFolders(file, p.Kustomize); n > shared {
			best, shared = i, n
		}
	}
	if best < 0 {
		l.doubt("%s looks like a cluster template or ClusterClass, and the tree has no infrastructure provider to release it with", file)
		return
	}
	add(&l.found.Providers[best])
}

// entries returns the entries for files of one folder: a pattern where it names just them.
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

// byDepth returns paths in order, those nearest to the root first.
func (l *look) byDepth(paths []string) []string {
	sorted := slices.Clone(paths)
	slices.SortFunc(sorted, func(a, b string) int {
		if n := strings.Count(a, "/") - strings.Count(b, "/"); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	return sorted
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

// sharedFolders counts the folders that two paths have in common from the root on.
func sharedFolders(a, b string) int {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(as) && n < len(bs) && as[n] == bs[n] {
		n++
	}
	return n
}
