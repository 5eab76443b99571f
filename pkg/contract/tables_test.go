package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// corpusTables returns the tables of the corpus' releases, by provider label.
func corpusTables(t *testing.T) map[string][]contract.Table {
	t.Helper()
	releases, err := release.Read(filepath.Join(pinned.Corpus(t), "released"))
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][]contract.Table{}
	for _, r := range releases {
		tables[r.Provider.Label()], err = contract.Tables(r)
		if err != nil && !errors.Is(err, contract.ErrNoComponents) {
			t.Errorf("%s: %v", r, err)
		}
	}
	return tables
}

// brokenInTheField are the rules that real providers break, each with the reason why the rule is right.
// No provider that is checked with the v1beta1 rules breaks a mandatory one.
var brokenInTheField = map[string]string{
	// The provider's own control plane creates objects of the kind without a template. The page requires a
	// template for each kind nevertheless.
	"bootstrap-k0smotron K0sControllerConfig bootstrap-config-template": "broken",
	// The components have no CRDs: clusterctl refuses the release as well.
	"infrastructure-exoscale  infra-cluster-resource-definition": "broken",
	// The label declares v1beta1 alone, whose failure domains are a map, and the field is v1beta2's
	// list. metadata.yaml declares v1beta2, so the label is out of date.
	"infrastructure-kubevirt KubevirtCluster infra-cluster-failure-domains": "broken",
	// The controller of MachinePools reads status.ready only, and the kind has no other field.
	"infrastructure-docker DevMachinePool infra-machine-pool-initialization-completed": "deprecated",
}

// TestCorpus checks that the providers of the corpus break only the rules in brokenInTheField.
func TestCorpus(t *testing.T) {
	tables := corpusTables(t)
	found := map[string]string{}
	for label, list := range tables {
		for _, table := range list {
			for _, row := range table.Rows {
				if row.State != contract.Wrong && (row.State != contract.Missing || !row.Mandatory) {
					continue
				}
				for _, p := range row.Problems {
					key := label + " " + table.Kind + " " + row.ID
					found[key] = string(p.Weight)
					if brokenInTheField[key] == "" {
						t.Errorf("%s: %s: %s", key, p.Weight, p.Reason)
					}
				}
			}
		}
	}
	for key, weight := range brokenInTheField {
		if found[key] != weight {
			t.Errorf("%s: weight %q, want %q", key, found[key], weight)
		}
	}
}

// TestCorpusKinds checks the selection of kinds: those that implement a resource of the contract, and no
// identities, hosts, data, remediations or kinds of core and of add-ons.
func TestCorpusKinds(t *testing.T) {
	want := map[string]string{
		"addon-helm":                       "",
		"bootstrap-k0smotron":              "K0sControllerConfig K0sWorkerConfig",
		"bootstrap-kubeadm":                "KubeadmConfig",
		"cluster-api":                      "",
		"control-plane-kubeadm":            "KubeadmControlPlane",
		"infrastructure-aws":               "AWSCluster AWSManagedCluster ROSACluster AWSMachine AWSMachinePool AWSManagedMachinePool ROSAMachinePool EKSConfig NodeadmConfig AWSManagedControlPlane ROSAControlPlane",
		"infrastructure-docker":            "DevCluster DevMachine DevMachinePool",
		"infrastructure-hetzner":           "HetznerCluster HCloudMachine HetznerBareMetalMachine",
		"infrastructure-linode-linode":     "LinodeCluster LinodeMachine",
		"infrastructure-metal3":            "Metal3Cluster Metal3Machine",
		"infrastructure-openstack":         "OpenStackCluster OpenStackMachine",
		"infrastructure-scaleway-scaleway": "ScalewayCluster ScalewayManagedCluster ScalewayMachine ScalewayManagedMachinePool ScalewayManagedControlPlane",
		"ipam-in-cluster":                  "GlobalInClusterIPPool GlobalInClusterPrefixPool InClusterIPPool InClusterPrefixPool",
		"runtime-extension-test":           "",
	}
	tables := corpusTables(t)
	for label, kinds := range want {
		var got []string
		for _, table := range tables[label] {
			got = append(got, table.Kind)
		}
		if strings.Join(got, " ") != kinds {
			t.Errorf("%s: kinds = %q, want %q", label, got, kinds)
		}
	}
}

// TestOwnProvider checks that this project's own provider follows all mandatory rules.
func TestOwnProvider(t *testing.T) {
	tables, err := contract.Tables(ownRelease(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != 3 {
		t.Fatalf("got %d tables, want those of LibvirtCluster, LibvirtMachine and LibvirtMachinePool", len(tables))
	}
	for _, table := range tables {
		if table.Contract != "v1beta2" {
			t.Errorf("contract of %s = %q, want v1beta2", table.Kind, table.Contract)
		}
		for _, row := range table.Rows {
			if row.State == contract.Wrong || row.Mandatory && row.State != contract.Present {
				t.Errorf("%s: %s: %s: %+v", table.Kind, row.Name, row.State, row.Problems)
			}
		}
	}
}

// TestTablesErrors checks the types of the errors of Tables.
func TestTablesErrors(t *testing.T) {
	provider := release.Provider{Name: "demo", Type: "InfrastructureProvider"}
	if _, err := contract.Tables(&release.Release{Provider: provider, Version: "v0.1.0"}); !errors.Is(err, contract.ErrNoComponents) {
		t.Errorf("no components: error = %v, want %v", err, contract.ErrNoComponents)
	}
	var syntax *manifest.SyntaxError
	if _, err := contract.Tables(components("a: [")); !errors.As(err, &syntax) {
		t.Errorf("invalid YAML: error = %v, want a %T", err, syntax)
	}
}

func TestFormats(t *testing.T) {
	tables, err := contract.Tables(ownRelease(t))
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string][]string{
		"text": {
			"InfraCluster: LibvirtCluster infrastructure.cluster.x-k8s.io/v1alpha1, contract v1beta2",
			"InfraMachine: pausing", "not visible in a release", "mandatory: 7 there; optional:",
		},
		"markdown": {
			"## InfraMachinePool: LibvirtMachinePool infrastructure.cluster.x-k8s.io/v1alpha1, contract v1beta2",
			"| InfraMachine: provider ID | Yes |  | there | spec.providerID |",
		},
		"json": {`"id": "infra-machine-provider-id"`, `"state": "not visible in a release"`},
	}
	for _, name := range contract.Formats.Names() {
		var b bytes.Buffer
		if err := contract.Write(name, tables, &b); err != nil {
			t.Fatal(err)
		}
		for _, want := range wanted[name] {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q:\n%s", name, want, b.String())
			}
		}
		if name == "json" && !json.Valid(b.Bytes()) {
			t.Error("the JSON is invalid")
		}
	}
	if err := contract.Write("html", tables, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "markdown") {
		t.Errorf("unknown format: error = %v, want one that lists the formats", err)
	}
}

// TestTextOfMissingField checks that the text shows when an optional rule is mandatory, and has no trailing spaces.
func TestTextOfMissingField(t *testing.T) {
	tables, err := contract.Tables(components(definition("FooCluster", "Namespaced", "v1beta2")))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := contract.Write("text", tables, &b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "spec.controlPlaneEndpoint; mandatory if control plane endpoint is not provided by other means.\n") {
		t.Errorf("the text lacks the note of the row:\n%s", b.String())
	}
	if strings.Contains(b.String(), " \n") {
		t.Error("a line ends with a space")
	}
}

// TestFormatsOfBadReleases checks that all formats show what is wrong in a release, and remove control characters
// from its texts.
func TestFormatsOfBadReleases(t *testing.T) {
	tables, err := contract.Tables(components(definition("Foo|\x1b[31mCluster", "Namespaced", "")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range contract.Formats.Names() {
		var b bytes.Buffer
		if err := contract.Write(name, tables, &b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s contains an escape character of the release", name)
		}
		if !strings.Contains(b.String(), "declares no contract version") {
			t.Errorf("%s does not show that the contract version is missing:\n%s", name, b.String())
		}
	}
	for _, name := range contract.Formats.Names() {
		if err := contract.Write(name, nil, &bytes.Buffer{}); err != nil {
			t.Errorf("no tables as %s: %v", name, err)
		}
	}
}

// TestOddDefinitions checks CRDs that no generator writes, but that a release may contain.
func TestOddDefinitions(t *testing.T) {
	const head = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec:\n  group: infrastructure.cluster.x-k8s.io\n  names: {kind: FooCluster}\n"
	for name, versions := range map[string]string{
		"no versions":         "",
		"no schema":           "  versions: [{name: v1, storage: true}]\n",
		"an empty schema":     "  versions: [{name: v1, schema: {openAPIV3Schema: {}}}]\n",
		"a schema of no type": "  versions: [{name: v1, schema: {openAPIV3Schema: {properties: {status: {}}}}}]\n",
		"lists of schemas":    "  versions: [{name: v1, schema: {openAPIV3Schema: {properties: {status: {properties: {conditions: {type: array, items: [{type: string}]}}}}}}}]\n",
		"no further fields":   "  versions: [{name: v1, schema: {openAPIV3Schema: {properties: {spec: {type: object, additionalProperties: false}}}}}]\n",
	} {
		tables, err := contract.Tables(components(head + versions))
		if err != nil || len(tables) != 1 {
			t.Errorf("%s: %d tables: %v", name, len(tables), err)
			continue
		}
		for _, format := range contract.Formats.Names() {
			if err := contract.Write(format, tables, &bytes.Buffer{}); err != nil {
				t.Errorf("%s as %s: %v", name, format, err)
			}
		}
	}
}
