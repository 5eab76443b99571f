package discover

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// withoutMeaning are names of folders that do not name a flavor.
var withoutMeaning = regexp.MustCompile(`^(\.|default|base|bases|templates?|cluster-?templates?|flavors?|clusters?|kustomize|kustomization|config|overlays?|v\d+((alpha|beta)\d+)?)$`)

// flavorOf returns the flavor that a folder is named after; "" is the default one.
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

// isForDevelopment reports whether a flavor is for developers and tests, by its name: a variant of another one, or one
// for tests. A flavor called just "dev" is not.
func isForDevelopment(flavor string) bool {
	words := wordsIn(flavor)
	return slices.ContainsFunc(words, func(w string) bool {
		return w == "dev" && len(words) > 1 || w == "e2e" || w == "ci" || w == "test" || w == "tilt"
	})
}

// isSample reports whether a path is in a folder of samples, or of parts of templates.
func isSample(name string) bool {
	return isIn(name, "samples", "sample", "examples", "docs", "base", "bases", "metrics")
}

// isIn reports whether a path contains one of the folders.
func isIn(name string, folders ...string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(dir string) bool { return slices.Contains(folders, dir) })
}

// kinds reports whether a file has a Cluster and a ClusterClass of Cluster API.
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

// className returns the name of the ClusterClass in a file, or "" if it is not known.
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

// classNameLine matches the name of an object.
var classNameLine = regexp.MustCompile(`(?m)^metadata:\s*(?:\{\s*|(?:\n  +.*)*?\n  +)name:\s*["']?([^"'\s,}]+)`)

// freeFlavor returns a flavor for a file without a template's name.
func (s *selection) freeFlavor(file string) string {
	flavor := strings.TrimSuffix(path.Base(file), path.Ext(file))
	for _, prefix := range []string{"cluster-template-", "cluster-class-", "cluster-", "template-"} {
		flavor = strings.TrimPrefix(flavor, prefix)
	}
	return flavor
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
