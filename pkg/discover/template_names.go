package discover

import (
	"bytes"
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
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

// kinds reports whether a file has a Cluster and a ClusterClass of Cluster API. A link out of the tree has none.
func (l *look) kinds(file string) (isCluster, isClass bool) {
	data, _ := l.tree.ReadFile(file)
	f := release.File{Data: data}
	return f.HasKind("Cluster"), f.HasKind("ClusterClass")
}

// className returns the name of the ClusterClass in a file, or "" if it is not known.
func (l *look) className(file string) string {
	data, _ := l.tree.ReadFile(file) // a link out of the tree is empty here
	for document := range bytes.SplitSeq(data, []byte("\n---")) {
		name := classNameLine.FindSubmatch(document)
		if name != nil && (release.File{Data: document}).HasKind("ClusterClass") && (release.Provider{Name: string(name[1]), Type: clusterctlv1.InfrastructureProviderType}).Validate() == nil {
			return string(name[1])
		}
	}
	return ""
}

// classNameLine matches the name of an object.
var classNameLine = regexp.MustCompile(`(?m)^metadata:\s*(?:\{\s*|(?:\n  +.*)*?\n  +)name:\s*["']?([^"'\s,}]+)`)

// freeFlavor returns a flavor for a file without a template's name.
func freeFlavor(file string) string {
	flavor := strings.TrimSuffix(path.Base(file), path.Ext(file))
	for _, prefix := range []string{"cluster-template-", "cluster-class-", "cluster-", "template-"} {
		flavor = strings.TrimPrefix(flavor, prefix)
	}
	return flavor
}

// byDepth returns paths in order, those nearest to the root first.
func byDepth(paths []string) []string {
	return slices.SortedFunc(slices.Values(paths), func(a, b string) int {
		return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
	})
}
