package discover

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// leaveOut reports files and kustomizations that look like templates or classes and are not released.
func (s *selection) leaveOut() {
	var left, samples []string
	shipped := s.evidence.released(func(name string) bool { return path.Ext(name) == ".yaml" })
	isShipped := func(file string) bool {
		return slices.ContainsFunc(shipped, func(a asset) bool { return a.file == file && a.use == forReleases })
	}
	for _, file := range byDepth(s.scan.files) {
		isCluster, isClass := s.kinds(file)
		if !isCluster && !isClass || slices.ContainsFunc(s.chosen, func(a asset) bool { return a.file == file }) {
			continue
		}
		switch name := path.Base(file); {
		case isSample(file):
			if isAsset(name) || strings.Contains("/"+file, "/examples/") {
				samples = append(samples, file)
			}
		case isAsset(name):
			if !slices.ContainsFunc(s.found.Doubts, func(doubt string) bool { return strings.HasPrefix(doubt, file+" ") }) && !s.isInKustomization(file) {
				left = append(left, file)
			}
		case s.isPart(file) || s.decided && !isShipped(file):
		case isClass:
			s.doubt("%s has a ClusterClass: release it with 'path: %s' and 'as: clusterclass-%s.yaml' under clusterClasses", file, file, cmp.Or(s.className(file), "NAME"))
		default:
			s.doubt("%s has a Cluster: release it with 'path: %s' and 'as: %s' under templates", file, file, release.ClusterTemplateFile(freeFlavor(file)))
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
		s.doubt("skipped, because %s: %s", why, listed(left, maxListed))
	}
	if len(samples) > 0 {
		s.doubt("skipped, because they are in folders of samples: %s", listed(samples, maxListed))
	}
}

// isInKustomization reports whether a released kustomization, or one for development, contains a file.
func (s *selection) isInKustomization(file string) bool {
	dir := path.Dir(file)
	_, ok := s.scan.kustomizations[dir]
	return ok && (s.isChosen(dir) || slices.Contains(s.clusterKustomizations(), dir))
}

// maxListed is the number of paths that a message lists.
const maxListed = 12

// listed returns the first paths, and the number of the others, for a message.
func listed(paths []string, most int) string {
	if len(paths) <= most {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:most], ", "), len(paths)-most)
}

// isPart reports whether a file is in a folder of parts of kustomizations, or in one of isSample.
func (l *look) isPart(file string) bool {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		if _, ok := l.scan.kustomizations[dir]; ok {
			return true
		}
		if dir == "." {
			return isSample(path.Dir(file))
		}
	}
}
