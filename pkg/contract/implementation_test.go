package contract_test

import (
	"strings"
	"testing"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestImplementations checks which kinds implement which resources of the contract.
func TestImplementations(t *testing.T) {
	const infra, bootstrap, control = "infrastructure.foo.io", "bootstrap.foo.io", "controlplane.foo.io"
	id := parseFields("spec.providerID string")
	for name, c := range map[string]struct {
		provider clusterctlv1.ProviderType
		kinds    []kindOf
		want     string
	}{
		"nothing in an infrastructure provider": {"InfrastructureProvider", nil, "InfraCluster:"},
		"nothing in a bootstrap provider":       {"BootstrapProvider", nil, "BootstrapConfig:"},
		"nothing in a control plane provider":   {"ControlPlaneProvider", nil, "ControlPlane:"},
		"nothing in an IPAM provider":           {"IPAMProvider", nil, "IPAM:"},
		"core":                                  {"CoreProvider", []kindOf{{kind: "FooCluster", group: infra}}, ""},
		"an add-on":                             {"AddonProvider", []kindOf{{kind: "FooConfig", group: bootstrap}}, ""},
		"a group of another name":               {"InfrastructureProvider", []kindOf{{kind: "FooCluster", group: "foo.io"}}, "InfraCluster:FooCluster"},
		"kinds with similar names": {"InfrastructureProvider", []kindOf{
			{kind: "FooCluster", group: infra, fields: parseFields("spec.controlPlaneEndpoint.host string")},
			{kind: "DatabaseCluster", group: infra}, {kind: "FooMachine", group: infra, fields: id}, {kind: "PooledMachine", group: infra},
			{kind: "FooClusterIdentity", group: infra}, {kind: "FooInstallerConfig", group: infra}, {kind: "FooPool", group: infra},
		}, "InfraCluster:FooCluster InfraMachine:FooMachine"},
		"a kind known by its template": {"InfrastructureProvider", []kindOf{
			{kind: "FooCluster", group: infra}, {kind: "FooClusterTemplate", group: infra}, {kind: "BarCluster", group: infra},
		}, "InfraCluster:FooCluster"},
		"a template without its kind": {"InfrastructureProvider", []kindOf{
			{kind: "FooCluster", group: infra}, {kind: "FooMachineTemplate", group: infra},
		}, "InfraCluster:FooCluster InfraMachine:FooMachine"},
		"a managed control plane and a bootstrapper in addition to clusters": {"InfrastructureProvider", []kindOf{
			{kind: "FooCluster", group: infra}, {kind: "FooControlPlane", group: control}, {kind: "FooManagedControlPlane", group: infra, fields: parseFields("status.ready boolean")},
			{kind: "FooConfig", group: bootstrap}, {kind: "FooMachinePool", group: infra},
		}, "InfraCluster:FooCluster InfraMachinePool:FooMachinePool BootstrapConfig:FooConfig ControlPlane:FooManagedControlPlane"},
		"the kind Cluster itself": {"InfrastructureProvider", []kindOf{{kind: "Cluster", group: "databases.io"}}, "InfraCluster:"},
		"all in a control plane provider": {"ControlPlaneProvider", []kindOf{
			{kind: "FooControlPlane", group: control}, {kind: "FooConfig", group: control}, {kind: "FooCluster", group: control},
		}, "ControlPlane:FooControlPlane"},
	} {
		var got []string
		for _, i := range implementations(t, release.Provider{Type: c.provider}, c.kinds...) {
			got = append(got, string(i.Resource)+":"+i.Kind())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: implementations = %q, want %q", name, got, c.want)
		}
	}
}

// TestImplementationContract checks the contract version and the API version with which a kind is checked.
func TestImplementationContract(t *testing.T) {
	provider := release.Provider{Type: "InfrastructureProvider"}
	for label, want := range map[string]string{"v1beta2": "v1beta2", "v1beta1": "v1beta1", "v1alpha4": "", "": ""} {
		found := implementations(t, provider, kindOf{kind: "FooCluster", group: "infrastructure.foo.io", contract: label})
		if len(found) != 1 || found[0].Contract != want || found[0].Version != "v1" {
			t.Errorf("label %q: %+v, want contract %q of version v1", label, found, want)
		}
	}
}
