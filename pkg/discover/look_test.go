package discover_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/discover"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// quiet ignores all progress.
var quiet = discover.Watch{Building: func(string) {}, Fetching: func(string) {}}

// look returns the result of Look for a tree with these files, and checks that its YAML can be parsed.
func look(t *testing.T, files map[string]string) *discover.Found {
	t.Helper()
	source, err := tree.Open(treetest.New(t, files))
	if err != nil {
		t.Fatal(err)
	}
	found, err := discover.Look(t.Context(), source, quiet)
	if err != nil {
		t.Fatal(err)
	}
	config, err := release.Parse(release.ConfigFile, found.YAML())
	if err != nil {
		t.Fatalf("the YAML can't be parsed: %v\n%s", err, found.YAML())
	}
	for i, p := range found.Providers {
		want := p.ProviderConfig
		if want.Metadata == "" {
			want.Metadata = release.MetadataFile // the file that the user has to create
		}
		got := config.Providers[i]
		got.Metadata = config.MetadataPath(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the YAML differs from the found providers: %s\n%s", diff, found.YAML())
		}
	}
	return found
}

// summary returns a line for each found provider, with its kustomization, metadata, images and assets.
func summary(found *discover.Found) []string {
	var lines []string
	for _, p := range found.Providers {
		line := p.Provider().Label() + " from " + p.Kustomize + " with " + p.Metadata
		for _, image := range p.Images {
			line += ", image " + image.Name
		}
		for _, assets := range [][]release.AssetConfig{p.Templates, p.ClusterClasses, p.Files} {
			for _, asset := range assets {
				line += ", " + asset.Path + asset.Kustomize
				if asset.As != "" {
					line += " as " + asset.As
				}
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// lookCases are trees with the expected results of Look.
var lookCases = []struct {
	name  string
	files map[string]string
	want  []string
	// remarks and doubts are parts of the expected remarks and doubts, in order.
	remarks, doubts []string
	golden          bool
}{
	{
		name: "labelled", files: demo,
		want: []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
	},
	{
		name: "unlabelled",
		files: map[string]string{
			"go.mod":                           "module example.com/someone/cluster-api-control-plane-provider-Demo\n",
			defaultPath + "kustomization.yaml": resources("manager.yaml", "crd.yaml"),
			defaultPath + "manager.yaml":       manager("controller:latest"),
			defaultPath + "crd.yaml":           crd("controlplane.cluster.x-k8s.io", "DemoControlPlane"),
		},
		want: []string{"control-plane-demo from config/default with , image controller"},
		remarks: []string{
			"Name and type are guessed: no object has the label cluster.x-k8s.io/provider",
			`Clusterctl refuses the image "controller:latest"`,
			"No metadata.yaml was found: create it with `clusterctl release metadata add --version v0.1.0 --contract v1beta2`",
		},
		golden: true,
	},
	{
		name: "unlabelled, and without a known name",
		files: map[string]string{
			"go.mod":                           "module example.com/someone/_\n",
			defaultPath + "kustomization.yaml": resources("manager.yaml"),
			defaultPath + "manager.yaml":       manager(image),
			"metadata.yaml":                    metadata,
		},
		want:    []string{"runtime-extension-provider from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		remarks: []string{"Name and type are guessed"},
	},
	{
		name: "a label that isn't a provider's",
		files: treetest.Clone(demo, map[string]string{
			defaultPath + "kustomization.yaml": resources("manager.yaml", "crd.yaml") + "labels:\n- pairs: {cluster.x-k8s.io/provider: demo}\n",
			defaultPath + "crd.yaml":           crd(infraGroup, "DemoMachine"),
		}),
		want:    []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		remarks: []string{`is "demo", which isn't a provider's label`},
	},
	{
		name: "core",
		files: map[string]string{
			defaultPath + "kustomization.yaml": resources("manager.yaml", "crd.yaml", "ipam.yaml"),
			defaultPath + "manager.yaml":       manager(image),
			defaultPath + "crd.yaml":           crd("cluster.x-k8s.io", "Cluster"),
			defaultPath + "ipam.yaml":          crd("ipam.cluster.x-k8s.io", "IPAddress"),
			"metadata.yaml":                    metadata,
		},
		want:    []string{"cluster-api from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		remarks: []string{"guessed"},
	},
	{
		name: "several",
		files: map[string]string{
			"infra/config/default/kustomization.yaml":     labelled(demoInfra),
			"infra/config/default/manager.yaml":           manager("registry.example.com/demo/infra:dev"),
			"infra/metadata.yaml":                         metadata,
			"infra/templates/cluster-template.yaml":       cluster,
			"bootstrap/config/default/kustomization.yaml": labelled("bootstrap-demo"),
			"bootstrap/config/default/manager.yaml":       manager("registry.example.com/demo/bootstrap@sha256:" + strings.Repeat("0", 64)),
			"extension/deploy/kustomization.yaml":         labelled("runtime-extension-demo"),
			"extension/deploy/manager.yaml":               manager("registry.example.com:5000/demo/extension"),
			"metadata.yaml":                               metadata,
		},
		want: []string{
			"bootstrap-demo from bootstrap/config/default with metadata.yaml, image registry.example.com/demo/bootstrap",
			"infrastructure-demo from infra/config/default with infra/metadata.yaml, image registry.example.com/demo/infra, infra/templates/cluster-template.yaml",
			"runtime-extension-demo from extension/deploy with metadata.yaml, image registry.example.com:5000/demo/extension",
		},
		golden: true,
	},
	{
		name: "an overlay of config/default is the same provider",
		files: treetest.Clone(demo, map[string]string{
			"config/overlay/kustomization.yaml": resources("../default") + "namePrefix: x-\n",
		}),
		want: []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
	},
	{
		name: "another kustomization with the same provider",
		files: treetest.Clone(demo, map[string]string{
			"config/other/kustomization.yaml": labelled(demoInfra),
			"config/other/manager.yaml":       manager(image),
		}),
		want:   []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		doubts: []string{"config/other also contains infrastructure-demo; config/default is used"},
	},
	{
		name: "not in config/default",
		files: map[string]string{
			"config/base/kustomization.yaml": resources("manager.yaml"),
			"config/base/manager.yaml":       manager(image),
			"config/kustomization.yaml":      resources("base") + "labels:\n- pairs: {cluster.x-k8s.io/provider: ipam-demo}\n",
			"config/metadata.yaml":           metadata,
		},
		want: []string{"ipam-demo from config with config/metadata.yaml, image registry.example.com/demo/controller"},
	},
	{
		name: "at the root of the tree",
		files: map[string]string{
			"kustomization.yaml": labelled("addon-demo"), "manager.yaml": manager(image), "metadata.yaml": metadata,
		},
		want: []string{"addon-demo from . with metadata.yaml, image registry.example.com/demo/controller"},
	},
	{
		name:  "an image by a variable",
		files: treetest.Clone(demo, map[string]string{defaultPath + "manager.yaml": manager(`"${IMAGE:=registry.example.com/demo:dev}"`)}),
		want:  []string{"infrastructure-demo from config/default with metadata.yaml"},
	},
	{
		name: "a kustomization that does not build",
		files: treetest.Clone(demo, map[string]string{
			"config/broken/kustomization.yaml": resources("missing.yaml"),
		}),
		want:   []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		doubts: []string{"config/broken does not build"},
	},
	{
		name: "cyclic kustomizations",
		files: treetest.Clone(demo, map[string]string{
			"config/round/kustomization.yaml": resources("../a"),
			"config/a/kustomization.yaml":     resources("../b"),
			"config/b/kustomization.yaml":     resources("../a"),
		}),
		want:   []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		doubts: []string{"config/round does not build"},
	},
	{
		name: "files that lead out of the tree",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml":  treetest.LinkTo + "/etc/hostname",
			"templates/round.yaml":             treetest.LinkTo + "round.yaml",
			"config/linked/kustomization.yaml": resources("a.yaml"),
			"config/linked/a.yaml":             treetest.LinkTo + "/etc/hostname",
		}),
		want:   []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
		doubts: []string{"config/linked does not build"},
	},
	{
		name: "folders without anything to release",
		files: treetest.Clone(demo, map[string]string{
			"vendor/example.com/x/config/default/kustomization.yaml":       labelled("infrastructure-vendored"),
			"vendor/example.com/x/config/default/manager.yaml":             manager(image),
			"test/e2e/config/kustomization.yaml":                           resources("missing.yaml"),
			"test/e2e/data/infrastructure-demo/cluster-template.yaml":      cluster,
			".github/config/default/kustomization.yaml":                    labelled("infrastructure-hidden"),
			".github/config/default/manager.yaml":                          manager(image),
			"out/release/infrastructure-demo/v0.1.0/cluster-template.yaml": cluster,
		}),
		want: []string{"infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"},
	},
}

func TestLook(t *testing.T) {
	for _, tc := range slices.Concat(lookCases, templateCases, evidenceCases) {
		t.Run(tc.name, func(t *testing.T) {
			found := look(t, tc.files)
			if got := summary(found); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
			}
			var remarks []string
			for _, p := range found.Providers {
				remarks = append(remarks, p.Remarks...)
			}
			requireEach(t, "remarks", remarks, tc.remarks)
			requireEach(t, "doubts", found.Doubts, tc.doubts)
			if tc.golden {
				compareGolden(t, strings.ReplaceAll(tc.name, " ", "-")+".yaml", found.YAML())
			}
		})
	}
}

// requireEach checks that got has as many texts as parts, and that each contains its part.
func requireEach(t *testing.T, name string, got, parts []string) {
	t.Helper()
	if len(got) != len(parts) {
		t.Errorf("got %d %s, want %d:\n%s", len(got), name, len(parts), strings.Join(got, "\n"))
		return
	}
	for i, part := range parts {
		if !strings.Contains(got[i], part) {
			t.Errorf("%s: %q does not contain %q", name, got[i], part)
		}
	}
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestLookNoProvider(t *testing.T) {
	for name, tc := range map[string]struct {
		files    map[string]string
		wantText []string
	}{
		"empty":         {wantText: []string{"none of its 0 kustomizations"}},
		"no Deployment": {files: map[string]string{"config/kustomization.yaml": resources("a.yaml"), "config/a.yaml": crd(infraGroup, "Demo")}, wantText: []string{"none of its 1 kustomizations"}},
		"no container called manager": {
			files:    map[string]string{"config/kustomization.yaml": resources("a.yaml"), "config/a.yaml": strings.ReplaceAll(manager(image), "name: manager", "name: main")},
			wantText: []string{`a container called "manager"`},
		},
		"the only one does not build": {
			files: map[string]string{
				defaultPath + "kustomization.yaml": resources("missing.yaml"), "config/other/kustomization.yaml": resources("a.yaml"), "config/other/a.yaml": crd(infraGroup, "Demo"),
				"Makefile": "generate:\n\ttouch config/default/missing.yaml\n",
			},
			wantText: []string{"a kustomization does not build:", "config/default does not build", "config/default/missing.yaml does not exist", "does `make generate` create it?"},
		},
		"no kustomization, and a file to install": {
			files:    map[string]string{"deploy/install.yaml": manager(image), "chart/templates/install.yaml": strings.ReplaceAll(manager(image), "name: manager", "name: {{ .Values.name }}")},
			wantText: []string{"none of its 0 kustomizations", "deploy/install.yaml has such a Deployment: write a kustomization.yaml into its folder with the line 'resources: [install.yaml]'"},
		},
		"a base that can't be fetched": {
			files:    map[string]string{defaultPath + "kustomization.yaml": resources("https://127.0.0.1:1/x/y//config?ref=v1")},
			wantText: []string{"config/default is not built, as its base https://127.0.0.1:1/x/y//config?ref=v1 can't be fetched", "connection refused", "put a copy of it into the tree"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_PROXY", "127.0.0.1")
			t.Setenv("no_proxy", "127.0.0.1")
			source, err := tree.Open(treetest.New(t, tc.files))
			if err != nil {
				t.Fatal(err)
			}
			_, err = discover.Look(t.Context(), source, quiet)
			if !errors.Is(err, discover.ErrNoProvider) {
				t.Fatalf("error = %v, want ErrNoProvider", err)
			}
			if strings.Contains(err.Error(), "accumulating resources") {
				t.Errorf("the error has kustomize's own text, although the reason is known: %v", err)
			}
			for _, text := range append(tc.wantText, source.Root()) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not contain %q: %v", text, err)
				}
			}
		})
	}
}

func TestLookCancelled(t *testing.T) {
	source, err := tree.Open(treetest.New(t, demo))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := discover.Look(ctx, source, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want the context's error", err)
	}
}

// TestLookFetching checks that fetched bases are reported, and that each host is tried once.
func TestLookFetching(t *testing.T) {
	t.Setenv("NO_PROXY", "127.0.0.1")
	t.Setenv("no_proxy", "127.0.0.1")
	const base = "https://127.0.0.1:1/x.yaml"
	source, err := tree.Open(treetest.New(t, treetest.Clone(demo, map[string]string{
		"config/one/kustomization.yaml": resources(base), "config/two/kustomization.yaml": resources(base),
	})))
	if err != nil {
		t.Fatal(err)
	}
	watch := quiet
	var fetched []string
	watch.Fetching = func(base string) { fetched = append(fetched, base) }
	found, err := discover.Look(t.Context(), source, watch)
	if err != nil {
		t.Fatal(err)
	}
	requireEach(t, "bases", fetched, []string{"fetching " + base + ", a base of "})
	requireEach(t, "doubts", found.Doubts, []string{"config/one is not built, as its base " + base, "config/two is not built"})
}

// TestLookNewestTag checks that of two metadata.yaml files the one with the series of the newest tag is chosen.
func TestLookNewestTag(t *testing.T) {
	dir := treetest.New(t, treetest.Clone(demo, map[string]string{"metadata.yaml": series("1", "2"), "config/metadata.yaml": series("1", "3")}))
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."},
		{"-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "demo"},
		{"tag", "v0.1.9"}, {"tag", "v0.2.0"}, {"tag", "api/v9.0.0"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	found, err := discover.Look(t.Context(), source, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got := found.Providers[0].Metadata; got != "metadata.yaml" {
		t.Errorf("Metadata = %q, want metadata.yaml", got)
	}
}
