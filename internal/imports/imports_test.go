// Package imports tests that the project's packages import each other only in the permitted direction. It
// has tests only.
package imports

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

const module = "github.com/clusterctl-release/clusterctl-release"

// layers are the packages below pkg, the lowest first. A package imports only packages of lower layers. A
// new package must be added to a layer.
var layers = [][]string{
	{"pkg/format", "pkg/git", "pkg/release", "pkg/manifest", "pkg/publish/transport", "pkg/yamledit"},
	{"pkg/crdupdate", "pkg/provenance", "pkg/schemas", "pkg/tree"},
	{"pkg/components", "pkg/contract", "pkg/metadata", "pkg/publish/store", "pkg/templates"},
	{"pkg/diff", "pkg/publish/gitea", "pkg/publish/github", "pkg/publish/gitlab", "pkg/publish/oci", "pkg/topology"},
	{"pkg/move"},
	{"pkg/build", "pkg/checks", "pkg/discover", "pkg/move/draw", "pkg/pipeline", "pkg/publish"},
	{"pkg/checks/installed"},
	{"pkg/checks/rendered"},
	{
		"pkg/checks/clusterclass", "pkg/checks/components", "pkg/checks/contract", "pkg/checks/metadata",
		"pkg/checks/ownership", "pkg/checks/repository", "pkg/checks/templates", "pkg/checks/upgrade",
	},
	{"pkg/checks/catalog", "pkg/mirror"},
	{"pkg/report"},
}

// areas are the parts of the project outside of pkg, with the packages that they may import in addition to
// those of their own area. The area with the longest prefix applies.
var areas = []struct {
	prefix string
	// imports are prefixes of packages for code and tests, and tests those for tests only.
	imports, tests []string
}{
	{prefix: "cmd/clusterctl-release", imports: []string{"pkg"}, tests: []string{"internal"}},
	{prefix: "pkg", tests: []string{"pkg", "internal"}}, // layers restrict its code
	{prefix: "provider", tests: []string{"internal"}},
	{prefix: "provider/api", tests: []string{"internal"}}, // other projects import it, without the rest
	{prefix: "internal", tests: []string{"internal"}},
	{prefix: "hack", imports: []string{"pkg", "internal"}},
	{prefix: "."}, // the root has the list of dependencies
}

// apiLibraries are the modules that the code of provider/api may import, so that importing it compiles nothing else.
// See docs/explanation/provider-api.md.
var apiLibraries = []string{"k8s.io/api/", "k8s.io/apimachinery/", "sigs.k8s.io/cluster-api/api/"}

// libraryProblem returns the problem with a file's import of another module, or "".
func libraryProblem(file, imported string) string {
	host, _, _ := strings.Cut(imported, "/")
	isStandard := !strings.Contains(host, ".")
	if !strings.HasPrefix(file, "provider/api/") || strings.HasSuffix(file, "_test.go") || isStandard {
		return ""
	}
	if slices.ContainsFunc(apiLibraries, func(prefix string) bool { return strings.HasPrefix(imported, prefix) }) {
		return ""
	}
	return "importing the provider's API would compile it, too"
}

// forTests are packages that only tests and hack may import, with the packages below them.
var forTests = []string{
	"internal/giteaserver", "internal/githubserver", "internal/gitlabserver", "internal/pinned", "internal/prerequisite", "internal/schematest", "internal/tlsproxy", "internal/treetest", "internal/wire",
	"internal/testbed",
	"provider/internal/testing",
}

func TestImports(t *testing.T) {
	root := pinned.Root(t)
	seen := 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(root, file, entry.Name())
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		seen++
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if own, ok := strings.CutPrefix(imported, module+"/"); ok {
				if problem := importProblem(filepath.ToSlash(rel), own); problem != "" {
					t.Errorf("%s imports %s: %s", rel, own, problem)
				}
			} else if problem := libraryProblem(filepath.ToSlash(rel), imported); problem != "" {
				t.Errorf("%s imports %s: %s", rel, imported, problem)
			}
		}
		if place := path.Dir(filepath.ToSlash(rel)); strings.HasPrefix(place, "pkg/") && layer(place) < 0 {
			t.Errorf("%s: the package %s has no layer: add it to the table in this test", rel, place)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Errorf("checked only %d files in %s", seen, root)
	}
}

// skipFolder skips folders that don't belong to this module.
func skipFolder(root, dir, name string) error {
	if dir == root {
		return nil
	}
	if strings.HasPrefix(name, ".") || name == "testdata" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// importProblem returns the problem with a file's import of a package of the module, or "".
func importProblem(file, imported string) string {
	from := path.Dir(file)
	isTest := strings.HasSuffix(file, "_test.go") || isForTests(from)
	if isForTests(imported) && !isTest && !within(from, "hack") {
		return "it is for tests only"
	}
	best := -1
	for i, area := range areas {
		if within(from, area.prefix) && (best < 0 || len(area.prefix) > len(areas[best].prefix)) {
			best = i
		}
	}
	if best < 0 {
		return "the folder has no rule: add it to the table in this test"
	}
	area := areas[best]
	isOf := func(prefix string) bool { return within(imported, prefix) }
	if isTest && slices.ContainsFunc(area.tests, isOf) {
		return ""
	}
	if area.prefix == "pkg" && isOf("pkg") {
		if layer(imported) < layer(from) {
			return ""
		}
		return "its layer is not lower"
	}
	if isOf(area.prefix) || slices.ContainsFunc(area.imports, isOf) {
		return ""
	}
	return "packages of " + area.prefix + " must not import it"
}

func isForTests(pkg string) bool {
	return slices.ContainsFunc(forTests, func(prefix string) bool { return within(pkg, prefix) })
}

// layer returns the layer of a package below pkg, by the longest matching name in the table, or -1 for a package
// without a layer.
func layer(pkg string) int {
	longest, found := "", -1
	for i, packages := range layers {
		for _, p := range packages {
			if within(pkg, p) && len(p) > len(longest) {
				longest, found = p, i
			}
		}
	}
	return found
}

// within reports whether a package is the package of the prefix or below it.
func within(pkg, prefix string) bool {
	return prefix == "." && pkg == "." || pkg == prefix || strings.HasPrefix(pkg, prefix+"/")
}

// TestImportProblem checks the rules.
func TestImportProblem(t *testing.T) {
	for _, tc := range []struct {
		file, imported string
		allowed        bool
	}{
		{"cmd/clusterctl-release/main.go", "pkg/build", true},
		{"pkg/publish/server.go", "pkg/publish/store", true},
		{"pkg/publish/github/store.go", "pkg/publish/gitlab", false},
		{"pkg/publish/store/store.go", "pkg/publish", false},
		{"cmd/clusterctl-release/main.go", "provider/api/v1alpha1", false},
		{"cmd/clusterctl-release/main.go", "internal/pinned", false},
		{"cmd/clusterctl-release/main_test.go", "internal/pinned", true},
		{"pkg/checks/upgrade/crds.go", "pkg/checks/installed", true},
		{"pkg/checks/upgrade/crds.go", "pkg/checks/components", false},
		{"pkg/checks/check.go", "pkg/checks/catalog", false},
		{"pkg/build/build.go", "pkg/components", true},
		{"pkg/build/build.go", "pkg/publish", false},
		{"pkg/build/build_test.go", "pkg/publish", true},
		{"pkg/components/a.go", "pkg/build", false},
		{"pkg/tree/a.go", "pkg/release", true},
		{"pkg/release/a.go", "pkg/tree", false},
		{"pkg/release/a.go", "provider/api/v1alpha1", false},
		{"pkg/release/a_test.go", "provider/api/v1alpha1", false},
		{"pkg/release/a.go", "cmd/clusterctl-release", false},
		{"provider/main.go", "provider/internal/controllers", true},
		{"provider/main.go", "pkg/release", false},
		{"provider/main_test.go", "pkg/release", false},
		{"provider/main_test.go", "cmd/clusterctl-release", false},
		{"provider/api/v1alpha1/a.go", "provider/internal/hosturi", false},
		{"internal/treetest/a.go", "internal/pinned", true},
		{"internal/pinned/a.go", "pkg/release", false},
		{"internal/testbed/guest/a.go", "internal/testbed/sandbox", true},
		{"provider/main.go", "internal/testbed/sandbox", false},
		{"hack/schema/main.go", "pkg/release", true},
		{"elsewhere/a.go", "pkg/release", false},
	} {
		if problem := importProblem(tc.file, tc.imported); (problem == "") != tc.allowed {
			t.Errorf("%s imports %s: allowed %v, want %v: %s", tc.file, tc.imported, !tc.allowed, tc.allowed, problem)
		}
	}
}
