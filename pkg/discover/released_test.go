package discover_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/discover"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// released is the release of a provider in a tree.
type released struct {
	// provider, kustomization and metadata are as in source-released.tsv.
	provider, kustomization, metadata string
	// assets are the templates and classes as "name <- file" or "name <- folder of a kustomization".
	assets []string
}

const (
	byohTemplates    = "test/e2e/data/infrastructure-provider-byoh/v1beta1/templates/"
	hetznerTemplates = "templates/cluster-templates/v1beta1/"
	dockerTemplates  = "test/infrastructure/docker/templates/"
)

// releasedByTree are the releases of the trees of the corpus. For trees without build files, names and folders
// determine the release.
var releasedByTree = map[string][]released{
	"bringyourownhost": {{"infrastructure-byoh", "config/default", "metadata.yaml", []string{
		"cluster-template-docker.yaml <- " + byohTemplates + "docker/cluster-template.yaml",
		"cluster-template-topology-docker.yaml <- " + byohTemplates + "docker/cluster-template-topology-docker.yaml",
		"cluster-template-topology.yaml <- " + byohTemplates + "vm/cluster-template-topology.yaml",
		"cluster-template.yaml <- " + byohTemplates + "vm/cluster-template.yaml",
		"clusterclass-quickstart-docker.yaml <- " + byohTemplates + "docker/clusterclass-quickstart-docker.yaml",
		"clusterclass-quickstart.yaml <- " + byohTemplates + "vm/clusterclass-quickstart.yaml",
	}}},
	"cluster-api": {
		{provider: "cluster-api", kustomization: "core/config/default", metadata: "metadata.yaml"},
		{provider: "bootstrap-kubeadm", kustomization: "bootstrap/kubeadm/config/default", metadata: "metadata.yaml"},
		{provider: "control-plane-kubeadm", kustomization: "controlplane/kubeadm/config/default", metadata: "metadata.yaml"},
		{"infrastructure-docker", "test/infrastructure/docker/config/default", "metadata.yaml", sameNames(dockerTemplates,
			"cluster-template-development-mp.yaml", "cluster-template-development.yaml", "cluster-template-in-memory.yaml",
			"clusterclass-in-memory.yaml", "clusterclass-quick-start.yaml")},
	},
	"digitalocean": {{"infrastructure-digitalocean", "config/default", "metadata.yaml",
		sameNames("templates/", "cluster-template-ext-etcd-storage.yaml", "cluster-template.yaml")}},
	"gcp": {{"infrastructure-gcp", "config/default", "metadata.yaml", sameNames("templates/",
		"cluster-template-clusterclass.yaml", "cluster-template-gke-autopilot-clusterclass.yaml",
		"cluster-template-gke-autopilot-topology.yaml", "cluster-template-gke-autopilot.yaml",
		"cluster-template-gke-clusterclass.yaml", "cluster-template-gke-topology.yaml", "cluster-template-gke.yaml",
		"cluster-template-topology.yaml", "cluster-template.yaml")}},
	"hetzner": {{"infrastructure-hetzner", "config/default", "metadata.yaml", []string{
		"cluster-template-hcloud-network.yaml <- " + hetznerTemplates + "hcloud-network",
		"cluster-template-hcloud.yaml <- " + hetznerTemplates + "hcloud",
		"cluster-template-hetzner-baremetal-control-planes-remediation.yaml <- " + hetznerTemplates + "hetzner-baremetal-control-planes-remediation",
		"cluster-template-hetzner-baremetal-control-planes.yaml <- " + hetznerTemplates + "hetzner-baremetal-control-planes",
		"cluster-template-hetzner-hcloud-control-planes.yaml <- " + hetznerTemplates + "hetzner-hcloud-control-planes",
	}}},
	"k3s": {
		{provider: "bootstrap-k3s", kustomization: "bootstrap/config/default", metadata: "metadata.yaml"},
		{provider: "control-plane-k3s", kustomization: "controlplane/config/default", metadata: "metadata.yaml"},
	},
	"metal3": {{provider: "infrastructure-metal3", kustomization: "config/default", metadata: "metadata.yaml"}},
	"opennebula": {{"infrastructure-opennebula", "config/default", "metadata.yaml", []string{
		"cluster-template-rke2.yaml <- kustomize/v1beta1/rke2",
		"cluster-template.yaml <- kustomize/v1beta1/default",
	}}},
	"rke2": {
		{provider: "bootstrap-rke2", kustomization: "bootstrap/config/default", metadata: "metadata.yaml"},
		{provider: "control-plane-rke2", kustomization: "controlplane/config/default", metadata: "metadata.yaml"},
	},
	"scaleway": {{"infrastructure-scaleway", "config/default", "metadata.yaml",
		sameNames("templates/", "cluster-template-managed.yaml", "cluster-template-private-network.yaml", "cluster-template.yaml")}},
	"sidero": {{"infrastructure-sidero", "config", "config/metadata/metadata.yaml", sameNames("templates/", "cluster-template.yaml")}},
}

// sameNames returns assets that are released under the names of their files.
func sameNames(dir string, names ...string) []string {
	assets := make([]string, 0, len(names))
	for _, name := range names {
		assets = append(assets, name+" <- "+dir+name)
	}
	return assets
}

// TestReleasedByTrees compares the found providers in the trees of the corpus with those that they release.
func TestReleasedByTrees(t *testing.T) {
	root := filepath.Join(pinned.Corpus(t), "source")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		t.Run(entry.Name(), func(t *testing.T) {
			source, err := tree.Open(filepath.Join(root, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			found, err := discover.Look(t.Context(), source, quiet)
			if err != nil {
				t.Fatal(err)
			}
			config, err := release.Parse(release.ConfigFile, found.YAML())
			if err != nil {
				t.Fatal(err)
			}
			var got []released
			for _, p := range config.Providers {
				got = append(got, released{p.Provider().Label(), p.Kustomize, config.MetadataPath(p), assetsOf(t, source, p)})
			}
			if diff := cmp.Diff(releasedByTree[entry.Name()], got, cmp.AllowUnexported(released{})); diff != "" {
				t.Errorf("released (-want +found):\n%s", diff)
			}
		})
	}
}

// assetsOf returns the templates and classes of a provider's entry.
func assetsOf(t *testing.T, source *tree.Tree, p release.ProviderConfig) []string {
	t.Helper()
	var assets []string
	for _, asset := range slices.Concat(p.Templates, p.ClusterClasses) {
		if asset.As != "" {
			assets = append(assets, asset.As+" <- "+asset.Path+asset.Kustomize)
			continue
		}
		files, err := source.Glob(asset.Path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			assets = append(assets, filepath.Base(file)+" <- "+file)
		}
	}
	slices.Sort(assets)
	return assets
}

// TestReleasedTable checks that releasedByTree has the same data as the table of the corpus.
func TestReleasedTable(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(pinned.Corpus(t), "source-released.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(data)), "\n")[1:]
	if len(rows) != 7 {
		t.Errorf("the table has %d rows, want 7", len(rows))
	}
	for _, row := range rows {
		columns := strings.Split(row, "\t")
		if !slices.ContainsFunc(releasedByTree[columns[0]], func(r released) bool {
			return r.provider == columns[1] && r.kustomization == columns[2] && r.metadata == columns[3] && (columns[4] == "none") == (len(r.assets) == 0)
		}) {
			t.Errorf("releasedByTree lacks %s", row)
		}
	}
}
