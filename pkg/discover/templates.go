package discover

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// addTemplates assigns the templates and classes of the tree to the infrastructure providers: those that the build
// files release, or else those with matching names and folders.
func (l *look) addTemplates() {
	s := &selection{look: l}
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
	chosen []asset
	// decided means that the build files determine which templates are released.
	decided bool
}

// isAsset reports whether clusterctl reads a file of this name as a template or as a class.
func isAsset(name string) bool {
	return release.IsClusterTemplate(name) || release.IsClusterClass(name)
}

// named returns the index of the chosen asset with a name, or -1.
func (s *selection) named(name string) int {
	return slices.IndexFunc(s.chosen, func(a asset) bool { return a.name == name })
}

// takeReleased chooses the files that the build files release.
func (s *selection) takeReleased() {
	for _, a := range s.evidence.released(isAsset) {
		if a.file != "" {
			if isCluster, isClass := s.kinds(a.file); !isCluster && !isClass {
				continue
			}
		}
		s.decided = s.decided || a.use == forReleases
		s.take(a)
	}
}

// takeFiles chooses the files with names of templates and classes. Several files with one name are named after their
// folders.
func (s *selection) takeFiles() {
	named := map[string][]string{}
	var names []string
	for _, file := range byDepth(s.scan.files) {
		name := path.Base(file)
		if !isAsset(name) || isSample(file) || s.isKustomized(file) {
			continue
		}
		if isCluster, isClass := s.kinds(file); isClass || isCluster && release.IsClusterTemplate(name) {
			if named[name] == nil {
				names = append(names, name)
			}
			named[name] = append(named[name], file)
		}
	}
	for _, name := range names {
		files := named[name]
		for _, file := range files {
			if !release.IsClusterTemplate(name) || !areSiblings(files) {
				s.take(asset{name: name, file: file})
				continue
			}
			own, _ := release.Flavor(name)
			flavor := strings.Trim(flavorOf(path.Dir(file))+"-"+own, "-")
			if !isForDevelopment(flavor) {
				s.take(asset{name: release.ClusterTemplateFile(flavor), file: file})
			}
		}
	}
}

// areSiblings reports whether several files are in sibling folders, which then name flavors.
func areSiblings(files []string) bool {
	return len(files) > 1 && !slices.ContainsFunc(files, func(file string) bool {
		return path.Dir(path.Dir(file)) != path.Dir(path.Dir(files[0])) || path.Dir(file) == "."
	})
}

// isKustomized reports whether a file is one of several from which a kustomization builds a flavor.
func (s *selection) isKustomized(file string) bool {
	dir := path.Dir(file)
	names := s.scan.kustomizations[dir]
	return len(names) > 1 && slices.Contains(names, file) && s.results[dir] != nil
}

// take chooses an asset, or says that another one with its name is chosen.
func (s *selection) take(a asset) {
	if i := s.named(a.name); i < 0 {
		s.chosen = append(s.chosen, a)
	} else if other := s.chosen[i].source(); other != a.source() {
		s.doubt("%s would be released as %s, which is %s", a.source(), a.name, other)
	}
}

// takeKustomizations chooses the kustomizations with a Cluster as flavors named after their folders. A file takes
// precedence over a kustomization with the same flavor.
func (s *selection) takeKustomizations() {
	for _, dir := range s.clusterKustomizations() {
		flavor := flavorOf(dir)
		name := release.ClusterTemplateFile(flavor)
		isTemplate := strings.Contains(dir, "template") || strings.Contains(dir, "flavor")
		switch {
		case s.named(name) >= 0 || isSample(dir) || isForDevelopment(flavor) || s.isChosen(dir):
		case !isTemplate:
			s.doubt("%s gives a Cluster: release it with 'kustomize: %s' and 'as: %s' under templates", dir, dir, name)
		default:
			s.take(asset{name: name, kustomize: dir})
		}
	}
}

// isChosen reports whether a kustomization, or a file in its folder, is released.
func (s *selection) isChosen(dir string) bool {
	return slices.ContainsFunc(s.chosen, func(a asset) bool { return a.kustomize == dir || a.file != "" && path.Dir(a.file) == dir })
}

// clusterKustomizations returns the kustomizations with a Cluster, those nearest to the root first.
func (s *selection) clusterKustomizations() []string {
	var dirs []string
	for dir, objects := range s.results {
		if slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool {
			return o.GroupVersionKind().GroupKind() == clusterv1.GroupVersion.WithKind("Cluster").GroupKind()
		}) {
			dirs = append(dirs, dir)
		}
	}
	return byDepth(dirs)
}
