package diff

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/schematest"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// demo returns a release from a folder of testdata.
func demo(t testing.TB, folder, version string) *release.Release {
	t.Helper()
	dir := filepath.Join("testdata", folder)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []release.File
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, release.File{Name: entry.Name(), Data: data})
	}
	provider, err := release.ParseLabel("infrastructure-demo")
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.New(provider, version, files)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// with returns a copy of a release with another text of one file.
func with(t *testing.T, r *release.Release, name, text string) *release.Release {
	t.Helper()
	var files []release.File
	for _, f := range r.Files {
		if f.Name != name {
			files = append(files, f)
		}
	}
	edited, err := release.New(r.Provider, r.Version, append(files, release.File{Name: name, Data: []byte(text)}))
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

func sample(t *testing.T) *Report {
	t.Helper()
	r, err := Sets([]*release.Release{demo(t, "old", "v0.1.0")}, []*release.Release{demo(t, "new", "v0.2.0")})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGolden compares the output of every format with its golden file.
func TestGolden(t *testing.T) {
	for _, format := range Formats.Names() {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			if err := sample(t).Write(format, &out); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "diff."+format)
			if *update {
				if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNoSecrets checks that no format shows the contents of a Secret.
func TestNoSecrets(t *testing.T) {
	before, after := demo(t, "old", "v0.1.0"), demo(t, "new", "v0.2.0")
	file, _ := after.Components()
	after = with(t, after, file.Name, strings.Replace(string(file.Data), "${DEMO_SECRET}", "hunter2", 1))
	r, err := Sets([]*release.Release{before}, []*release.Release{after})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats.Names() {
		var out bytes.Buffer
		if err := r.Write(format, &out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), "stringData.password") {
			t.Errorf("%s shows the secret, or lacks the name of its changed field", format)
		}
	}
}

// TestSame checks that a release does not differ from itself, in any format.
func TestSame(t *testing.T) {
	r, err := Sets([]*release.Release{demo(t, "old", "v0.1.0")}, []*release.Release{demo(t, "old", "v0.1.1")})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Empty() {
		t.Errorf("differences = %+v, want none", r.Differences[0])
	}
	for format, want := range map[string]string{"text": "no differences", "markdown": "No differences.", "json": `"empty": true`} {
		var out bytes.Buffer
		if err := r.Write(format, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %q:\n%s", format, want, out.String())
		}
	}
}

// TestSets checks sets with a removed provider, with two versions of one provider, and with two providers.
func TestSets(t *testing.T) {
	one, two := demo(t, "old", "v0.1.0"), demo(t, "new", "v0.2.0")
	other := demo(t, "old", "v0.1.0")
	other.Provider.Name = "other"
	r, err := Sets([]*release.Release{one, other}, []*release.Release{two})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Removed) != 1 || r.Removed[0] != other || len(r.Added) != 0 || len(r.Differences) != 1 {
		t.Errorf("report = %+v, want one removed release and one difference", r)
	}
	if _, err := Sets([]*release.Release{one, two}, nil); !errors.Is(err, ErrSeveral) {
		t.Errorf("error = %v, want %v", err, ErrSeveral)
	}
	if _, err := Releases(one, other); err == nil || !strings.Contains(err.Error(), "two providers") {
		t.Errorf("error = %v, want one about two providers", err)
	}
}

// TestUnreadable checks that an unreadable file of the newer release, or unreadable components of the older one,
// are an error that names the file.
func TestUnreadable(t *testing.T) {
	before, after := demo(t, "old", "v0.1.0"), demo(t, "new", "v0.2.0")
	for name, text := range unreadable {
		pairs := [][2]*release.Release{{before, with(t, after, name, text)}}
		if name == before.Provider.ComponentsFile() {
			pairs = append(pairs, [2]*release.Release{with(t, before, name, text), after})
		}
		for _, pair := range pairs {
			_, err := Releases(pair[0], pair[1])
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error = %v, want one that names %s", err, name)
			}
			var syntax *manifest.SyntaxError
			if name == before.Provider.ComponentsFile() && !errors.As(err, &syntax) {
				t.Errorf("%s: error is a %T, want a %T", name, err, syntax)
			}
		}
	}
}

// unreadable are texts that can't be read, by file name.
var unreadable = map[string]string{
	"infrastructure-components.yaml": "a: b\n\tc: d\n",
	"metadata.yaml":                  "releaseSeries: 1\n",
	"cluster-template.yaml":          "a: ${B\n",
}

// TestUnreadableBefore checks that each format names an unreadable file of the older release, and that the other
// files are compared.
func TestUnreadableBefore(t *testing.T) {
	before, after := demo(t, "old", "v0.1.0"), demo(t, "new", "v0.2.0")
	for _, name := range []string{"metadata.yaml", "cluster-template.yaml"} {
		r, err := Sets([]*release.Release{with(t, before, name, unreadable[name])}, []*release.Release{after})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, format := range Formats.Names() {
			var out bytes.Buffer
			if err := r.Write(format, &out); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{name, map[string]string{"metadata.yaml": "contract and release series", "cluster-template.yaml": "variables"}[name], "quay.io/example/demo:v0.2.0", "spec.cpus", "cluster-template-gone.yaml"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s as %s lacks %q:\n%s", name, format, want, out.String())
				}
			}
		}
		if len(r.Differences[0].Series)+len(r.Differences[0].Contract.After) > 0 && name == "metadata.yaml" {
			t.Errorf("the difference has series, although the older metadata.yaml is unreadable: %+v", r.Differences[0])
		}
	}
	same := with(t, before, "metadata.yaml", unreadable["metadata.yaml"])
	if d, err := Releases(same, before); err != nil || d.Empty() {
		t.Errorf("the difference does not have the file that was not compared; error = %v", err)
	}
}

// TestJSONSchema compares docs/diff.schema.json with the report's types, and validates a report with it.
func TestJSONSchema(t *testing.T) {
	var out bytes.Buffer
	if err := sample(t).Write("json", &out); err != nil {
		t.Fatal(err)
	}
	schematest.Check(t, "diff.schema.json", &jsonReport{}, out.Bytes(), *update)
}

func TestRepository(t *testing.T) {
	for image, want := range map[string][2]string{
		"ghcr.io/a/b:v1":                {"ghcr.io", "a/b"},
		"registry.example.com:5000/a":   {"registry.example.com:5000", "a"},
		"localhost/a:v1":                {"localhost", "a"},
		"ghcr.io/a@sha256:0000":         {"ghcr.io", "a"},
		"ghcr.io/a:v1@sha256:0000":      {"ghcr.io", "a"},
		"controller:latest":             {"", "controller"},
		"library/controller":            {"", "library/controller"},
		"":                              {"", ""},
		"registry.example.com:5000/a:b": {"registry.example.com:5000", "a"},
	} {
		if registry, path := Repository(image); [2]string{registry, path} != want {
			t.Errorf("Repository(%q) = %q, %q, want %q", image, registry, path, want)
		}
	}
}
