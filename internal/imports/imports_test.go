// Package imports holds the project's packages against the direction in which they may depend on
// each other. It has tests only.
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

// layers are the packages below pkg, the lowest first. A package imports packages of lower layers,
// and none of its own layer or a higher one. A package that is not here yet needs a place.
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

// areas are the parts of the project outside of pkg, with what their packages may import besides
// packages of their own area. The longest prefix holds.
var areas = []struct {
	prefix string
	// imports are prefixes of packages, for code; tests may import what is in tests as well.
	imports, tests []string
}{
	{prefix: "cmd/clusterctl-release", imports: []string{"pkg"}, tests: []string{"internal"}},
	{prefix: "pkg", tests: []string{"pkg", "internal"}}, // its code goes by layers
	{prefix: "provider", tests: []string{"internal"}},
	{prefix: "provider/api", tests: []string{"internal"}}, // what others import has to stand alone
	{prefix: "internal", tests: []string{"internal"}},
	{prefix: "hack", imports: []string{"pkg", "internal"}},
	{prefix: "."}, // the root has the list of dependencies
}

// apiLibraries are the modules that the code of provider/api may import: those who import it compile nothing else, see
// docs/explanation/provider-api.md.
var apiLibraries = []string{"k8s.io/api/", "k8s.io/apimachinery/", "sigs.k8s.io/cluster-api/api/"}

// judgeLibrary says what is wrong with a file's import of another module, or "".
func judgeLibrary(file, imported string) string {
	host, _, _ := strings.Cut(imported, "/")
	isStandard := !strings.Contains(host, ".")
	if !strings.HasPrefix(file, "provider/api/") || strings.HasSuffix(file, "_test.go") || isStandard {
		return ""
	}
	if slices.ContainsFunc(apiLibraries, func(prefix string) bool { return strings.HasPrefix(imported, prefix) }) {
		return ""
	}
	return "those who import the provider's API would compile it too"
}

// forTests are packages that, with all that is below them, only tests and hack import.
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
				if complaint := judge(filepath.ToSlash(rel), own); complaint != "" {
					t.Errorf("%s imports %s: %s", rel, own, complaint)
				}
			} else if complaint := judgeLibrary(filepath.ToSlash(rel), imported); complaint != "" {
				t.Errorf("%s imports %s: %s", rel, imported, complaint)
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
		t.Errorf("only %d files were looked at in %s", seen, root)
	}
}

// skipFolder ignores what is not of this module.
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

// judge says what is wrong with a file's import of a package of the module, or "".
func judge(file, imported string) string {
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
		return "it is not of a lower layer"
	}
	if isOf(area.prefix) || slices.ContainsFunc(area.imports, isOf) {
		return ""
	}
	return "packages of " + area.prefix + " must not"
}

func isForTests(pkg string) bool {
	return slices.ContainsFunc(forTests, func(prefix string) bool { return within(pkg, prefix) })
}

// layer returns the layer of a package below pkg, which is that of the longest name in the table that it
// is within, or -1 where it has none.
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

// within reports whether a package is the one that a prefix names, or below it.
func within(pkg, prefix string) bool {
	return prefix == "." && pkg == "." || pkg == prefix || strings.HasPrefix(pkg, prefix+"/")
}

// TestJudge: the rules themselves.
func TestJudge(t *testing.T) {
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
		if complaint := judge(tc.file, tc.imported); (complaint == "") != tc.allowed {
			t.Errorf("%s imports %s: allowed is %v, want %v: %s", tc.file, tc.imported, !tc.allowed, tc.allowed, complaint)
		}
	}
}
