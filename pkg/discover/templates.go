package discover

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/kustomize/api/resource"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// addTemplates gives the infrastructure providers the templates and classes of the tree: those that
// the build files release, or else those that their names and folders tell.
func (l *look) addTemplates() {
	s := &selection{look: l, byName: map[string]asset{}}
	s.takeReleased()
	if !s.decided {
		s.takeFiles()
		s.takeKustomizations()
	}
	s.leaveOut()
	s.assignAll()
}

// selection is the choice of templates and classes.
type selection struct {
	*look
	// byName are the chosen assets by their names in the release, and chosen are the same in order.
	byName map[string]asset
	chosen []asset
	// decided says that the build files tell which templates are released.
	decided bool
}

// isAsset says whether clusterctl reads a file of this name as a template or as a class.
func isAsset(name string) bool {
	return release.IsClusterTemplate(name) || release.IsClusterClass(name)
}

// take chooses an asset, unless there is one of its name.
func (s *selection) take(a asset) bool {
	if other, taken := s.byName[a.name]; taken {
		return other.source() == a.source()
	}
	s.byName[a.name] = a
	s.chosen = append(s.chosen, a)
	return true
}

// takeReleased chooses what the build files release.
func (s *selection) takeReleased() {
	for _, a := range s.evidence.released(isAsset) {
		if a.file != "" {
			if isCluster, isClass := s.kinds(a.file); !isCluster && !isClass {
				continue
			}
		}
		s.decided = s.decided || a.use == forReleases
		if !s.take(a) {
			s.doubt("%s would be released as %s, which is %s", a.source(), a.name, s.byName[a.name].source())
		}
	}
}

// takeFiles chooses the files that are called like templates and classes. Where several have one
// name they are called after their folders.
func (s *selection) takeFiles() {
	named := map[string][]string{}
	var names []string
	for _, file := range s.byDepth(s.scan.files) {
		name := path.Base(file)
		isCluster, isClass := s.kinds(file)
		if release.IsClusterTemplate(name) && (isCluster || isClass) || release.IsClusterClass(name) && isClass {
			if !s.isSample(file) && !s.isKustomized(file) {
				if named[name] == nil {
					names = append(names, name)
				}
				named[name] = append(named[name], file)
			}
		}
	}
	for _, name := range names {
		files := named[name]
		for _, file := range files {
			if !release.IsClusterTemplate(name) || !areSiblings(files) {
				s.takeOrDoubt(asset{name: name, file: file})
				continue
			}
			own, _ := release.Flavor(name)
			flavor := strings.Trim(flavorOf(path.Dir(file))+"-"+own, "-")
			if !isForDevelopment(flavor) {
				s.takeOrDoubt(asset{name: release.ClusterTemplateFile(flavor), file: file})
			}
		}
	}
}

// areSiblings says whether several files are in folders next to each other, which then name flavors.
func areSiblings(files []string) bool {
	return len(files) > 1 && !slices.ContainsFunc(files, func(file string) bool {
		return path.Dir(path.Dir(file)) != path.Dir(path.Dir(files[0])) || path.Dir(file) == "."
	})
}

// isKustomized says whether a file is one of several that a kustomization makes a flavor of.
func (s *selection) isKustomized(file string) bool {
	dir := path.Dir(file)
	return len(s.scan.listed[dir]) > 1 && slices.Contains(s.scan.listed[dir], file) && s.results[dir] != nil
}

// takeOrDoubt chooses an asset, or says why it is none.
func (s *selection) takeOrDoubt(a asset) {
	if !s.take(a) {
		s.doubt("%s would be released as %s, which is %s", a.source(), a.name, s.byName[a.name].source())
	}
}

// takeKustomizations chooses the kustomizations that give a Cluster as flavors called after their
// folders. A file wins over a kustomization that gives the same flavor.
func (s *selection) takeKustomizations() {
	for _, dir := range s.clusterKustomizations() {
		flavor := flavorOf(dir)
		name := release.ClusterTemplateFile(flavor)
		_, taken := s.byName[name]
		isTemplate := strings.Contains(dir, "template") || strings.Contains(dir, "flavor")
		switch {
		case taken || s.isSample(dir) || isForDevelopment(flavor) || s.isChosen(dir):
		case !isTemplate:
			s.doubt("%s gives a Cluster: release it with 'kustomize: %s' and 'as: %s' under templates", dir, dir, name)
		default:
			s.take(asset{name: name, kustomize: dir})
		}
	}
}

// isChosen says whether a kustomization, or a file in its folder, is released.
func (s *selection) isChosen(dir string) bool {
	return slices.ContainsFunc(s.chosen, func(a asset) bool { return a.kustomize == dir || a.file != "" && path.Dir(a.file) == dir })
}

// clusterKustomizations returns the kustomizations that give a Cluster, those nearest to the root first.
func (s *selection) clusterKustomizations() []string {
	var dirs []string
	for dir, result := range s.results {
		isCluster := slices.ContainsFunc(result.Resources(), func(r *resource.Resource) bool {
			gvk := r.GetGvk()
			return gvk.Group == clusterv1.GroupVersion.Group && gvk.Kind == "Cluster"
		})
		if isCluster {
			dirs = append(dirs, dir)
		}
	}
	return s.byDepth(dirs)
}

// leaveOut says which files and kustomizations look like templates or classes and are not released.
func (s *selection) leaveOut() {
	var left, samples []string
	shipped := s.evidence.released(func(name string) bool { return path.Ext(name) == ".yaml" })
	isShipped := func(file string) bool {
		return slices.ContainsFunc(shipped, func(a asset) bool { return a.file == file && a.use == forReleases })
	}
	for _, file := range s.byDepth(s.scan.files) {
		isCluster, isClass := s.kinds(file)
		if !isCluster && !isClass || slices.ContainsFunc(s.chosen, func(a asset) bool { return a.file == file }) {
			continue
		}
		switch name := path.Base(file); {
		case s.isSample(file):
			if isAsset(name) || strings.Contains("/"+file, "/examples/") {
				samples = append(samples, file)
			}
		case isAsset(name):
			if !slices.ContainsFunc(s.found.Doubts, func(doubt string) bool { return strings.HasPrefix(doubt, file+" ") }) && !s.isMadeOf(file) {
				left = append(left, file)
			}
		case s.isPart(file) || s.decided && !isShipped(file):
		case isClass:
			s.doubt("%s has a ClusterClass: release it with 'path: %s' and 'as: clusterclass-%s.yaml' under clusterClasses", file, file, cmp.Or(s.className(file), "NAME"))
		default:
			s.doubt("%s has a Cluster: release it with 'path: %s' and 'as: %s' under templates", file, file, release.ClusterTemplateFile(s.freeFlavor(file)))
		}
	}
	for _, dir := range s.clusterKustomizations() {
		if s.decided && !s.isChosen(dir) || isForDevelopment(flavorOf(dir)) {
			left = append(left, dir)
		}
	}
	why := "they look like flavors for development"
	if s.decided {
		why = "the build files release others (" + placed(s.chosen) + ")"
	}
	if len(left) > 0 {
		s.doubt("left out, as %s: %s", why, listed(left))
	}
	if len(samples) > 0 {
		s.doubt("left out, as they are in folders of samples: %s", listed(samples))
	}
}

// isMadeOf says whether a kustomization that is released, or that is for development, lists a file.
func (s *selection) isMadeOf(file string) bool {
	dir := path.Dir(file)
	_, ok := s.scan.kustomizations[dir]
	return ok && (s.isChosen(dir) || slices.Contains(s.clusterKustomizations(), dir))
}

// className returns the name of the ClusterClass in a file, or "" where it is not known.
func (l *look) className(file string) string {
	data, err := l.tree.ReadFile(file)
	if err != nil {
		return "" // a link out of the tree
	}
	for _, document := range bytes.Split(data, []byte("\n---")) {
		_, isClass := templates.Kinds(document)
		name := classNameLine.FindSubmatch(document)
		if isClass && name != nil && (release.Provider{Name: string(name[1]), Type: clusterctlv1.InfrastructureProviderType}).Validate() == nil {
			return string(name[1])
		}
	}
	return ""
}

// classNameLine is where an object has its name.
var classNameLine = regexp.MustCompile(`(?m)^metadata:\s*(?:\{\s*|(?:\n  +.*)*?\n  +)name:\s*["']?([^"'\s,}]+)`)

// freeFlavor returns a flavor for a file that is not called like a template.
func (s *selection) freeFlavor(file string) string {
	flavor := strings.TrimSuffix(path.Base(file), path.Ext(file))
	for _, prefix := range []string{"cluster-template-", "cluster-class-", "cluster-", "template-"} {
		flavor = strings.TrimPrefix(flavor, prefix)
	}
	return flavor
}

// assignAll gives the chosen assets to the providers.
func (s *selection) assignAll() {
	if len(s.chosen) > 0 && !slices.ContainsFunc(s.found.Providers, func(p Provider) bool { return p.Type == clusterctlv1.InfrastructureProviderType }) {
		var sources []string
		for _, a := range s.chosen {
			sources = append(sources, a.source())
		}
		s.doubt("left out, as the tree has no infrastructure provider to release templates with: %s", listed(sources))
		return
	}
	var files, classTemplates []string
	for _, a := range s.chosen {
		if a.file != "" && path.Base(a.file) == a.name {
			files = append(files, a.file)
		}
		if isCluster, isClass := s.kinds(a.file); a.file != "" && isClass && !isCluster && release.IsClusterTemplate(a.name) {
			classTemplates = append(classTemplates, a.file)
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
		s.assign(group[0], func(p *Provider) {
			p.Templates = append(p.Templates, s.entries(flavors, "cluster-template*.yaml")...)
			p.ClusterClasses = append(p.ClusterClasses, s.entries(classes, "clusterclass-*.yaml")...)
		})
	}
	for _, a := range s.chosen {
		s.assign(a.source(), func(p *Provider) {
			if release.IsClusterClass(a.name) {
				p.classes++
			} else {
				p.templates++
			}
			if s.decided {
				p.templatesBy = placed(s.chosen)
			}
		})
		if a.file != "" && path.Base(a.file) == a.name {
			continue
		}
		s.assign(a.source(), func(p *Provider) {
			entry := release.AssetConfig{Path: a.file, Kustomize: a.kustomize, As: a.name}
			if release.IsClusterClass(a.name) {
				p.ClusterClasses = append(p.ClusterClasses, entry)
			} else {
				p.Templates = append(p.Templates, entry)
			}
		})
	}
	for _, file := range classTemplates {
		s.assign(file, func(p *Provider) {
			remark := file + " holds only a ClusterClass: clusterctl gives it out as a flavor, and finds no class under its name"
			if name := s.className(file); name != "" {
				remark += fmt.Sprintf(": release it once more with 'path: %s' and 'as: clusterclass-%s.yaml' under clusterClasses", file, name)
			}
			p.Remarks = append(p.Remarks, remark+".")
		})
	}
}

// maxListed is how many paths a message lists.
const maxListed = 12

// listed returns paths for a message.
func listed(paths []string) string {
	if len(paths) <= maxListed {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:maxListed], ", "), len(paths)-maxListed)
}

// withoutMeaning are names of folders that do not name a flavor.
var withoutMeaning = regexp.MustCompile(`^(\.|default|base|bases|templates?|cluster-?templates?|flavors?|clusters?|kustomize|kustomization|config|overlays?|v\d+((alpha|beta)\d+)?)$`)

// flavorOf returns the flavor that a folder is called after, "" being the default one.
func flavorOf(dir string) string {
	name := path.Base(dir)
	if withoutMeaning.MatchString(name) {
		return ""
	}
	for _, prefix := range []string{"cluster-template-", "template-", "flavor-"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// isForDevelopment says whether a flavor is for its developers and tests, by its name: a variant of
// another one, or one of the tests'. One that is called "dev" and nothing else is a flavor.
func isForDevelopment(flavor string) bool {
	words := wordsIn(flavor)
	return slices.ContainsFunc(words, func(w string) bool {
		return w == "dev" && len(words) > 1 || w == "e2e" || w == "ci" || w == "test" || w == "tilt"
	})
}

// isSample says whether a path is in a folder that shows something, or that templates are made of.
func (l *look) isSample(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(dir string) bool {
		return slices.Contains([]string{"samples", "sample", "examples", "docs", "base", "bases", "metrics"}, dir)
	})
}

// kinds says whether a file has a Cluster and a ClusterClass of Cluster API's.
func (l *look) kinds(file string) (isCluster, isClass bool) {
	if known, ok := l.kindsOf[file]; ok {
		return known[0], known[1]
	}
	if data, err := l.tree.ReadFile(file); err == nil { // not a link out of the tree, say, which a build would refuse
		isCluster, isClass = templates.Kinds(data)
	}
	l.kindsOf[file] = [2]bool{isCluster, isClass}
	return isCluster, isClass
}

// isPart says whether a file lies in a folder that kustomizations are made of, or has no place in
// a release for another reason that its folder tells.
func (l *look) isPart(file string) bool {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		if _, ok := l.scan.kustomizations[dir]; ok {
			return true
		}
		switch path.Base(dir) {
		case "bases", "base", "samples", "sample", "metrics", "docs", "examples":
			return true
		}
		if dir == "." {
			return false
		}
	}
}

// assign calls add for the infrastructure provider nearest to a path: the one that shares most of
// its folders. There is one.
func (l *look) assign(file string, add func(*Provider)) {
	best, shared := -1, -1
	for i, p := range l.found.Providers {
		if p.Type != clusterctlv1.InfrastructureProviderType {
			continue
		}
		if n := sharedFolders(file, p.Kustomize); n > shared {
			best, shared = i, n
		}
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
