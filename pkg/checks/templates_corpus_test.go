package checks_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// templateErrors are the errors in templates that clusterctl accepts: each breaks a MUST of the contract.
var templateErrors = map[string]string{
	// "The cluster template YAML MUST assume the target namespace already exists."
	"template-namespace-object": "infrastructure-harvester-harvester",
}

// blockValued are the templates that clusterctl refuses only because a block-valued variable is set to a word.
var blockValued = map[string]bool{
	"infrastructure-metal3/cluster-template.yaml":                   true,
	"infrastructure-harvester-harvester/cluster-template-dhcp.yaml": true,
}

// TestTemplatesOfTheCorpus checks every template of the corpus: a template that clusterctl refuses has an error
// or, for block-valued variables, a note. A template that it accepts has errors only if it breaks a MUST.
func TestTemplatesOfTheCorpus(t *testing.T) {
	corpus := pinned.Corpus(t)
	refused := readFailures(t, filepath.Join(corpus, "generate-cluster-failures.tsv"))
	releases, err := release.Read(filepath.Join(corpus, "released"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		result, err := catalog.All().Run(t.Context(), &checks.Subject{Release: r})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]checks.Severity{}
		for _, f := range result.Findings {
			if !release.IsClusterTemplate(f.File) {
				continue
			}
			file := r.Provider.Label() + "/" + f.File
			if f.ID == "template-rendered" || f.ID == "topology-class" {
				found[file] = f.Severity
			}
			if f.Severity == checks.Error && !refused[file] && templateErrors[f.ID] != r.Provider.Label() {
				t.Errorf("%s: %s: an error in an accepted template that breaks no MUST: %s", file, f.ID, f.Message)
			}
		}
		for file := range refused {
			if !strings.HasPrefix(file, r.Provider.Label()+"/") {
				continue
			}
			want := checks.Error
			if blockValued[file] {
				want = checks.Note
			}
			if found[file] != want {
				t.Errorf("%s: clusterctl refuses the template; the finding's severity is %q, want %q", file, found[file], want)
			}
		}
	}
}

// foundInTemplates are the units in which checks of templates and classes find something. Each finding was
// reviewed; in all other units the checks must find nothing.
var foundInTemplates = map[string][]string{
	"template-variable-syntax": nil,
	// A script without the default of the pod network; sizes and networks with two defaults.
	"template-variable-default": {"infrastructure-harvester-harvester", "infrastructure-ionoscloud", "infrastructure-linode-linode"},
	// Notes: one control plane machine where there is no load balancer, and a fixed pool.
	"template-variable-common":       {"infrastructure-aws", "infrastructure-openstack"},
	"template-cluster-scoped-object": {"infrastructure-aws"},
	"template-ref-namespace":         {"infrastructure-kubevirt"},
	"template-ref-kind":              nil, // add-ons of another provider are in a group of the core's
	"template-unreferenced-object":   nil, // clusterclass-ref-resolves reports the wrong names in Linode's class
	// ConfigMaps that the templates do not have; another template lists a Secret that a controller creates.
	"template-resource-set": {"infrastructure-harvester-harvester", "infrastructure-ionoscloud"},
	"template-secret-owner": {
		"infrastructure-harvester-harvester", "infrastructure-ionoscloud", "infrastructure-k8sproxmox", "infrastructure-scaleway-scaleway",
	},
	// Scaleway has such rules in a version that Cluster API does not read any more.
	"clusterclass-dry-run-immutability": {"infrastructure-ionoscloud", "infrastructure-linode-linode", "infrastructure-openstack"},
	"assets-complete":                   nil, // their trees are unknown
}

// TestCorpusTemplateFindings checks that the checks of templates find something in the listed units only.
func TestCorpusTemplateFindings(t *testing.T) {
	requireFound(t, corpusUnits(t), foundInTemplates)
}

// readFailures returns the templates that clusterctl refuses, as label/file.
func readFailures(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	failures := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), "\t"); len(fields) > 1 && fields[0] != "label" {
			failures[fields[0]+"/"+fields[1]] = true
		}
	}
	if err := lines.Err(); err != nil || len(failures) == 0 {
		t.Fatalf("%s lists no failures: %v", path, err)
	}
	return failures
}
