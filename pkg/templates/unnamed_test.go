package templates_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

func TestUnnamed(t *testing.T) {
	const cluster = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: \"${CLUSTER_NAME}\"}\n"
	const class = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: ClusterClass\nmetadata: {name: a}\n"
	dir := t.TempDir()
	for name, content := range map[string]string{
		"templates/cluster-template.yaml":          cluster,
		"templates/cluster-template-named.yaml":    cluster,
		"templates/cluster-template-gpu.yaml":      cluster,
		"templates/cluster-template-patch.yaml":    "kind: Patch\n",
		"templates/cluster.yaml":                   cluster,
		"classes/clusterclass-a.yaml":              class,
		"second/templates/cluster-template-b.yaml": cluster,
		"flavors/ha/kustomization.yaml":            "resources: [cluster-template-ha.yaml]\n",
		"flavors/ha/cluster-template-ha.yaml":      cluster,
		"flavors/ha/more/cluster-template-c.yaml":  cluster,
		"tried/kustomization.yaml":                 "resources: [cluster-template-f.yaml]\n",
		"tried/cluster-template-f.yaml":            cluster,
		"tried/cluster-template-g.yaml":            cluster,
		"test/e2e/cluster-template-ci.yaml":        cluster,
		".github/cluster-template-d.yaml":          cluster,
		"docs/book/cluster-template-e.yaml":        cluster,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	first := release.ProviderConfig{
		Name: "first", Type: clusterctlv1.InfrastructureProviderType, Kustomize: "config/default",
		Templates: []release.AssetConfig{{Path: "templates/cluster-template.yaml"}, {Path: "./templates/*-named.yaml"}},
	}
	second := release.ProviderConfig{Name: "second", Type: clusterctlv1.InfrastructureProviderType, Kustomize: "second/config/default"}
	bootstrap := release.ProviderConfig{Name: "third", Type: clusterctlv1.BootstrapProviderType, Kustomize: "templates"}

	tests := map[string]struct {
		providers []release.ProviderConfig
		want      []templates.Forgotten
	}{
		"each is assigned to the nearest infrastructure provider": {
			providers: []release.ProviderConfig{bootstrap, first, second},
			want: []templates.Forgotten{
				{Path: "classes/clusterclass-a.yaml", Field: "clusterClasses", Provider: first.Provider()},
				{Path: "second/templates/cluster-template-b.yaml", Field: "templates", Provider: second.Provider()},
				{Path: "templates/cluster-template-gpu.yaml", Field: "templates", Provider: first.Provider()},
				{Path: "tried/cluster-template-f.yaml", Field: "templates", Provider: first.Provider()},
				{Path: "tried/cluster-template-g.yaml", Field: "templates", Provider: first.Provider()},
			},
		},
		"none without an infrastructure provider": {providers: []release.ProviderConfig{bootstrap}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := templates.Unnamed(source, &release.Config{Providers: test.providers})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
