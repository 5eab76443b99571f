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

// demo returns a release of testdata.
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

// with returns a release with another file.
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

// TestGolden holds every format against its golden file.
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

// TestNoSecrets: what is in a Secret is in no format.
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
			t.Errorf("%s shows the secret, or does not say that it changed", format)
		}
	}
}

// TestSame: a release does not differ from itself, in any format.
func TestSame(t *testing.T) {
	r, err := Sets([]*release.Release{demo(t, "old", "v0.1.0")}, []*release.Release{demo(t, "old", "v0.1.1")})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Empty() {
		t.Errorf("there are differences: %+v", r.Differences[0])
	}
	for format, want := range map[string]string{"text": "no differences", "markdown": "No differences.", "json": `"empty": true`} {
		var out bytes.Buffer
		if err := r.Write(format, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s does not say %q:\n%s", format, want, out.String())
		}
	}
}

// TestSets: providers that only one side has, and two versions of one provider.
func TestSets(t *testing.T) {
	one, two := demo(t, "old", "v0.1.0"), demo(t, "new", "v0.2.0")
	other := demo(t, "old", "v0.1.0")
	other.Provider.Name = "other"
	r, err := Sets([]*release.Release{one, other}, []*release.Release{two})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Removed) != 1 || r.Removed[0] != other || len(r.Added) != 0 || len(r.Differences) != 1 {
		t.Errorf("the report is %+v", r)
	}
	if _, err := Sets([]*release.Release{one, two}, nil); !errors.Is(err, ErrSeveral) {
		t.Errorf("error is %v, want %v", err, ErrSeveral)
	}
	if _, err := Releases(one, other); err == nil || !strings.Contains(err.Error(), "two providers") {
		t.Errorf("error is %v", err)
	}
}

// TestUnreadable: a file of the newer release that can't be read is an error that names it, and so are
// the components of the older one.
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
				t.Errorf("%s: error is %v", name, err)
			}
			var syntax *manifest.SyntaxError
			if name == before.Provider.ComponentsFile() && !errors.As(err, &syntax) {
				t.Errorf("%s: error is a %T", name, err)
			}
		}
	}
}

// unreadable has texts that can't be read, by the names of their files.
var unreadable = map[string]string{
	"infrastructure-components.yaml": "a: b\n\tc: d\n",
	"metadata.yaml":                  "releaseSeries: 1\n",
	"cluster-template.yaml":          "a: ${B\n",
}

// TestUnreadableBefore: a file of the older release that can't be read is named in each format, and the
// rest is compared.
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
					t.Errorf("%s as %s does not say %q:\n%s", name, format, want, out.String())
				}
			}
		}
		if len(r.Differences[0].Series)+len(r.Differences[0].Contract.After) > 0 && name == "metadata.yaml" {
			t.Errorf("the series differ from those that could not be read: %+v", r.Differences[0])
		}
	}
	same := with(t, before, "metadata.yaml", unreadable["metadata.yaml"])
	if d, err := Releases(same, before); err != nil || d.Empty() {
		t.Errorf("nothing is said of what was not compared: %v", err)
	}
}

// TestJSONSchema holds docs/diff.schema.json against the report's types and the report against it.
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
			t.Errorf("%s is split into %q and %q, want %q", image, registry, path, want)
		}
	}
}
