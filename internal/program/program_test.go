package program

import (
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// TestMissingLicence checks that a module without a licence is an error that names the module.
func TestMissingLicence(t *testing.T) {
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{
		"LICENSE": "of the program", "go.mod": "module example.com/program\ngo 1.26.0\nrequire (\n\texample.com/library v0.0.0\n\tgolang.org/x/sys v0.0.0\n)\n" +
			"replace (\n\texample.com/library => ./library\n\tgolang.org/x/sys => ./sys\n)\n",
		"main.go":        "package main\n\nimport (\n\t_ \"example.com/library/inner\"\n\t_ \"golang.org/x/sys\"\n)\n\nfunc main() {}\n",
		"library/go.mod": "module example.com/library\n", "library/inner/inner.go": "package inner\n", "library/NOTICE": "a notice",
		"library/license.go": "package library\n", "library/other/LICENSE": "of a package that is not used",
		"sys/go.mod": "module golang.org/x/sys\n", "sys/sys.go": "package sys\n", "sys/LICENSE": "of Go",
	})
	find := func() ([]Licence, error) {
		return Program{Package: "."}.Licences(t.Context(), dir, Platform{"linux", "arm64"})
	}
	if _, err := find(); err == nil || !strings.Contains(err.Error(), "example.com/library has no licence") {
		t.Errorf("a module without a licence: %v", err)
	}
	treetest.Write(t, dir, map[string]string{"library/inner/COPYING.md": "of the package"})
	licences, err := find()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, l := range licences {
		list = append(list, l.Path+": "+string(l.Text))
	}
	want := `example.com/library/NOTICE: a notice
example.com/library/inner/COPYING.md: of the package
example.com/program/LICENSE: of the program
go/LICENSE: of Go
golang.org/x/sys/LICENSE: of Go`
	if got := strings.Join(list, "\n"); got != want {
		t.Errorf("the licences are\n%s\nwant\n%s", got, want)
	}
}
