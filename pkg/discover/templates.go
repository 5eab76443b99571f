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
	// decided means that the build files determine which templates are released.
	decided bool
}

// isAsset reports whether clusterctl reads a file of this name as a template or as a class.
func isAsset(name string) bool {
	return release.IsClusterTemplate(name) || release.IsClusterClass(name)
}

// take chooses an asset, unless one with its name is chosen.
func (s *selection) take(a asset) bool {
	if other, taken := s.byName[a.name]; taken {
		return other.source() == a.source()
	}
	s.byName[a.name] = a
	s.chosen = append(s.chosen, a)
	return true
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
		s.takeOrDoubt(a)
	}
}

// takeFiles chooses the files with names of templates and classes. Several files with one name are named after their
// folders.
func (s *selection) takeFiles() {
	named := map[string][]string{}
	var names []string
	for _, file := range s.byDepth(s.scan.files) {
		name := path.Base(file)
		isCluster, isClass := s.kinds(file)
		if release.IsClusterTemplate(name) && (isCluster || isClass) || release.IsClusterClass(name) && isClass {
			if !isSample(file) && !s.isKustomized(file) {
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

// takeOrDoubt chooses an asset, or says why not.
func (s *selection) takeOrDoubt(a asset) {
	if !s.take(a) {
		s.doubt("%s would be released as %s, which is %s", a.source(), a.name, s.byName[a.name].source())
	}
}

// takeKustomizations chooses the kustomizations with a Cluster as flavors named after their folders. A file takes
// precedence over a kustomization with the same flavor.
func (s *selection) takeKustomizations() {
	for _, dir := range s.clusterKustomizations() {
		flavor := flavorOf(dir)
		name := release.ClusterTemplateFile(flavor)
		_, taken := s.byName[name]
		isTemplate := strings.Contains(dir, "template") || strings.Contains(dir, "flavor")
		switch {
		case taken || isSample(dir) || isForDevelopment(flavor) || s.isChosen(dir):
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
		isCluster := slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool {
			gvk := o.GroupVersionKind()
			return gvk.Group == clusterv1.GroupVersion.Group && gvk.Kind == "Cluster"
		})
		if isCluster {
			dirs = append(dirs, dir)
		}
	}
	return s.byDepth(dirs)
}
