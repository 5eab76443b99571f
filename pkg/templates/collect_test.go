package templates_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

const cluster = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: ${CLUSTER_NAME}
`

const class = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: ClusterClass\nmetadata:\n  name: prod\n"

// files is a tree with templates and classes of every kind.
var files = map[string]string{
	"templates/cluster-template.yaml":              cluster,
	"templates/cluster-template-prod.yaml":         cluster + "# prod\n",
	"templates/clusterclass-prod.yaml":             class,
	"templates/my-cluster.yaml":                    cluster + "# mine\n",
	"templates/link.yaml":                          treetest.LinkTo + "my-cluster.yaml",
	"templates/out.yaml":                           treetest.LinkTo + "/etc/hostname",
	"templates/bad/cluster-template.yaml":          "a: b\nc: ${CLUSTER NAME}\n",
	"templates/broken/cluster-template.yaml":       "a: b\n---\na: [\n",
	"templates/flavors/small/kustomization.yaml":   "resources: [../../cluster-template.yaml]\nnamePrefix: small-\n",
	"templates/flavors/nothing/kustomization.yaml": "resources: [missing.yaml]\n",
	"docs/README.md":                               "text with a ${VARIABLE NAME} that is not parsed",
}

// provider returns an infrastructure provider with these entries.
func provider(templates, classes, others []release.AssetConfig) release.ProviderConfig {
	return release.ProviderConfig{
		Name: "demo", Type: clusterctlv1.InfrastructureProviderType,
		Templates: templates, ClusterClasses: classes, Files: others,
	}
}

func TestCollect(t *testing.T) {
	type assets = []release.AssetConfig
	for _, tc := range []struct {
		name     string
		provider release.ProviderConfig
		want     map[string]string // text by the name in the release
		wantErr  error
		wantText []string
	}{
		{name: "nothing", want: map[string]string{}},
		{
			name:     "copies",
			provider: provider(assets{{Path: "templates/cluster-template.yaml"}}, assets{{Path: "templates/clusterclass-prod.yaml"}}, assets{{Path: "docs/README.md"}}),
			want:     map[string]string{"cluster-template.yaml": cluster, "clusterclass-prod.yaml": class, "README.md": files["docs/README.md"]},
		},
		{
			name:     "a pattern",
			provider: provider(assets{{Path: "templates/cluster-template*.yaml"}}, nil, nil),
			want:     map[string]string{"cluster-template.yaml": cluster, "cluster-template-prod.yaml": cluster + "# prod\n"},
		},
		{
			name:     "another name",
			provider: provider(assets{{Path: "templates/my-cluster.yaml", As: "cluster-template-mine.yaml"}}, nil, nil),
			want:     map[string]string{"cluster-template-mine.yaml": cluster + "# mine\n"},
		},
		{
			name:     "a link in the tree",
			provider: provider(assets{{Path: "templates/link.yaml", As: "cluster-template.yaml"}}, nil, nil),
			want:     map[string]string{"cluster-template.yaml": cluster + "# mine\n"},
		},
		{
			name:     "a kustomization",
			provider: provider(assets{{Kustomize: "templates/flavors/small", As: "cluster-template-small.yaml"}}, nil, nil),
			want:     map[string]string{"cluster-template-small.yaml": strings.Replace(cluster, "${", "small-${", 1)},
		},
		{
			name:     "a template's name breaks the contract",
			provider: provider(assets{{Path: "templates/my-cluster.yaml"}}, nil, nil),
			wantText: []string{"templates/my-cluster.yaml", `"my-cluster.yaml" isn't a name for a cluster template`, "cluster-template-FLAVOR.yaml", "rename it", "'as' in clusterctl-release.yaml"},
		},
		{
			name:     "a class's name breaks the contract",
			provider: provider(nil, assets{{Path: "templates/my-cluster.yaml"}}, nil),
			wantText: []string{"templates/my-cluster.yaml", "isn't a name for a ClusterClass definition", "clusterclass-NAME.yaml", "'as'"},
		},
		{
			name:     "a pattern with one name",
			provider: provider(assets{{Path: "templates/cluster-template*.yaml", As: "cluster-template.yaml"}}, nil, nil),
			wantText: []string{"templates/cluster-template*.yaml matches 2 files", "templates/cluster-template-prod.yaml, templates/cluster-template.yaml", "'as: cluster-template.yaml' names one"},
		},
		{
			name:     "a template under files",
			provider: provider(nil, nil, assets{{Path: "templates/cluster-template.yaml"}}),
			wantText: []string{"templates/cluster-template.yaml", "under 'files'", "cluster-template", "rename it"},
		},
		{
			name:     "the components under files",
			provider: provider(nil, nil, assets{{Path: "docs/README.md", As: "infrastructure-components.yaml"}}),
			wantText: []string{"docs/README.md", `"infrastructure-components.yaml" under 'files'`, "components"},
		},
		{
			name:     "the metadata under files",
			provider: provider(nil, nil, assets{{Path: "docs/README.md", As: "metadata.yaml"}}),
			wantText: []string{`"metadata.yaml" under 'files'`},
		},
		{
			name:     "a link out of the tree",
			provider: provider(assets{{Path: "templates/out.yaml", As: "cluster-template.yaml"}}, nil, nil),
			wantErr:  tree.ErrOutside, wantText: []string{"templates/out.yaml", "symbolic link to /etc/hostname", "put a copy of the file into the tree"},
		},
		{
			name:     "no such file",
			provider: provider(assets{{Path: "templates/missing.yaml"}}, nil, nil),
			wantErr:  fs.ErrNotExist, wantText: []string{"templates/missing.yaml", "no file matches"},
		},
		{
			name:     "no such folder",
			provider: provider(assets{{Kustomize: "templates/flavors/missing", As: "cluster-template-missing.yaml"}}, nil, nil),
			wantErr:  fs.ErrNotExist, wantText: []string{"templates/flavors/missing"},
		},
		{
			name:     "a kustomization that does not build",
			provider: provider(assets{{Kustomize: "templates/flavors/nothing", As: "cluster-template-nothing.yaml"}}, nil, nil),
			wantText: []string{"kustomize build", "templates/flavors/nothing", "missing.yaml"},
		},
		{
			name:     "a variable with a space",
			provider: provider(assets{{Path: "templates/bad/*.yaml"}}, nil, nil),
			wantText: []string{"templates/bad/cluster-template.yaml:2:", "variable", "$${...}"},
		},
		{
			name:     "no YAML",
			provider: provider(assets{{Path: "templates/broken/*.yaml"}}, nil, nil),
			wantText: []string{"templates/broken/cluster-template.yaml", "document 2 isn't YAML", "line"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source, err := tree.Open(treetest.New(t, files))
			if err != nil {
				t.Fatal(err)
			}
			got, err := templates.Collect(source, tc.provider)
			if tc.want != nil {
				if err != nil {
					t.Fatal(err)
				}
				byName := map[string]string{}
				for _, f := range got {
					byName[f.Name] = string(f.Data)
				}
				if diff := cmp.Diff(tc.want, byName); diff != "" {
					t.Error(diff)
				}
				return
			}
			if err == nil {
				t.Fatal("error = nil, want an error")
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
