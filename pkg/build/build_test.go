package build_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// buildTree builds the tree in a folder with its own release file.
func buildTree(t *testing.T, dir string, options build.Options) (*build.Result, error) {
	t.Helper()
	config, err := release.Load(filepath.Join(dir, release.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	options.Config = config
	if options.Version == "" {
		options.Version = "v0.1.0"
	}
	return build.Build(t.Context(), source, options)
}

func TestTreeIsUnchanged(t *testing.T) {
	dir := treetest.Demo(t)
	before, bytesBefore := snapshot(t, dir), contents(t, dir)
	if _, err := buildTree(t, dir, build.Options{Images: map[string]string{"controller": "registry.example.com/other:v9"}}); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("the build changed the tree to %v, want %v", after, before)
	}
	if after := contents(t, dir); !reflect.DeepEqual(bytesBefore, after) {
		t.Error("the build changed files of the tree")
	}
}

func TestDemo(t *testing.T) {
	var progress []string
	result, err := buildTree(t, treetest.Demo(t), build.Options{Progress: func(doing string) { progress = append(progress, doing) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Releases) != 1 || result.Releases[0].String() != "infrastructure-demo v0.1.0" {
		t.Fatalf("releases = %v, want infrastructure-demo v0.1.0", result.Releases)
	}
	if len(result.Notes) > 0 {
		t.Errorf("notes = %v, want none", result.Notes)
	}
	if !reflect.DeepEqual(progress, []string{"building infrastructure-demo v0.1.0"}) {
		t.Errorf("progress = %v, want one line", progress)
	}
	roles := map[string]release.Role{}
	for _, f := range result.Releases[0].Files {
		roles[f.Name] = result.Releases[0].Role(f.Name)
	}
	want := map[string]release.Role{
		"NOTES.md":                       release.RoleOther,
		"cluster-template.yaml":          release.RoleClusterTemplate,
		"cluster-template-dev.yaml":      release.RoleClusterTemplate,
		"cluster-template-topology.yaml": release.RoleClusterTemplate,
		"clusterclass-demo.yaml":         release.RoleClusterClass,
		"infrastructure-components.yaml": release.RoleComponents,
		"metadata.yaml":                  release.RoleMetadata,
	}
	if !maps.Equal(roles, want) {
		t.Errorf("roles = %v, want %v", roles, want)
	}
	components, _ := result.Releases[0].Components()
	if !strings.Contains(string(components.Data), "image: registry.example.com/demo/controller:v0.1.0\n") {
		t.Error("the image does not have the release's version as its tag")
	}
}

func TestBuildErrors(t *testing.T) {
	for _, tc := range []struct {
		name     string
		files    map[string]string // added to the demo tree
		remove   string
		options  build.Options
		usage    bool
		wantErr  error
		wantText []string
	}{
		{name: "unknown provider", usage: true, options: build.Options{Providers: []string{"infrastructure-other"}},
			wantText: []string{"no provider infrastructure-other in", "clusterctl-release.yaml", "it has infrastructure-demo"}},
		{name: "unused image", usage: true, options: build.Options{Images: map[string]string{"other": "registry.example.com/other:v1"}},
			wantText: []string{"--image other=registry.example.com/other:v1", "infrastructure-demo", `no container of infrastructure-demo has an image called "other"`}},
		{name: "no version", usage: true, options: build.Options{Version: "0.1.0"}, wantText: []string{`"0.1.0"`, "v0.1.0"}},
		{name: "no metadata", remove: "metadata.yaml", wantErr: fs.ErrNotExist,
			wantText: []string{"infrastructure-demo", "metadata.yaml", "clusterctl release metadata add --version v0.1.0 --contract v1beta2 --file"}},
		{name: "no series", options: build.Options{Version: "v0.2.0"},
			wantText: []string{"infrastructure-demo", "metadata.yaml", "0.2", "clusterctl release metadata add --version v0.2.0"}},
		{name: "no kustomization", remove: "config/default", wantErr: fs.ErrNotExist, wantText: []string{"config/default"}},
		{name: "no template", remove: "templates/clusterclass-demo.yaml", wantErr: fs.ErrNotExist, wantText: []string{"infrastructure-demo", "templates/clusterclass-demo.yaml"}},
		{name: "one name for two files", files: map[string]string{
			"templates/flavors/dev/kustomization.yaml": "resources: [../../cluster-template.yaml]\n", "templates/cluster-template-dev.yaml": "kind: Cluster\n",
		}, wantText: []string{"infrastructure-demo", `two files are called "cluster-template-dev.yaml"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := treetest.Demo(t)
			treetest.Write(t, dir, tc.files)
			if tc.remove != "" {
				if err := os.RemoveAll(filepath.Join(dir, tc.remove)); err != nil {
					t.Fatal(err)
				}
			}
			_, err := buildTree(t, dir, tc.options)
			if err == nil {
				t.Fatal("error = nil, want an error")
			}
			var usage *build.UsageError
			if errors.As(err, &usage) != tc.usage {
				t.Errorf("is a UsageError: %v, want %v: %v", !tc.usage, tc.usage, err)
			}
			if tc.wantErr != nil && !errors.Is(err, tc.wantErr) {
				t.Errorf("error = %v, want %v", err, tc.wantErr)
			}
			for _, text := range tc.wantText {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not contain %q: %v", text, err)
				}
			}
		})
	}
}

// second adds a second provider to the demo tree.
var second = map[string]string{
	"second/kustomization.yaml": "resources: [../config/manager]\n",
	release.ConfigFile: `apiVersion: clusterctl-release/v1alpha1
kind: ReleaseConfig
providers:
- name: demo
  type: InfrastructureProvider
  kustomize: config/default
  images: [{name: controller, newName: registry.example.com/demo/controller}]
- name: second
  type: RuntimeExtensionProvider
  kustomize: second
`,
}

// TestSelectedProviders checks that only the selected providers are built, in the order of the release file.
func TestSelectedProviders(t *testing.T) {
	dir := treetest.Demo(t)
	treetest.Write(t, dir, second)
	images := map[string]string{"controller": "registry.example.com/second:dev"}
	for _, tc := range []struct{ selected, want []string }{
		{nil, []string{"infrastructure-demo", "runtime-extension-second"}},
		{[]string{"runtime-extension-second"}, []string{"runtime-extension-second"}},
		{[]string{"runtime-extension-second", "infrastructure-demo"}, []string{"infrastructure-demo", "runtime-extension-second"}},
		{[]string{"infrastructure-demo", "infrastructure-demo"}, []string{"infrastructure-demo"}},
	} {
		result, err := buildTree(t, dir, build.Options{Providers: tc.selected, Images: images})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range result.Releases {
			got = append(got, r.Provider.Label())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("selected %v: built %v, want %v", tc.selected, got, tc.want)
		}
	}
}

func TestCancelledBuild(t *testing.T) {
	dir := treetest.Demo(t)
	config, err := release.Load(filepath.Join(dir, release.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build.Build(ctx, source, build.Options{Config: config, Version: "v0.1.0"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want the context's error", err)
	}
}

// contents returns the mode and the bytes of all files in a folder, except hidden files.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".") {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found[rel] = info.Mode().String() + " "
		if !entry.IsDir() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found[rel] += string(data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
