package contract_test

import (
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// conditionFields are the fields of metav1.Condition.
const conditionFields = "status.conditions[].type string, status.conditions[].status string, status.conditions[].message string, "

// parseFields parses "path type, path type" into types by path.
func parseFields(text string) map[string]string {
	fields := map[string]string{}
	for _, f := range strings.Split(text, ",") {
		if path, kind, ok := strings.Cut(strings.TrimSpace(f), " "); ok {
			fields[path] = kind
		}
	}
	return fields
}

// subject is a correct implementation of a resource, under both contract versions.
type subject struct {
	provider release.Provider
	kind     kindOf
	// old are the fields under the v1beta1 contract.
	old string
}

var (
	templateFields = parseFields("spec.template.metadata object, spec.template.spec object, status.capacity{} string, status.nodeInfo.architecture string")
	scale          = map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
	endpointFields = "spec.controlPlaneEndpoint.host string, spec.controlPlaneEndpoint.port integer, "

	// subjects have every field that a visible rule checks.
	subjects = map[contract.Resource]subject{
		contract.InfraCluster: {
			release.Provider{Type: "InfrastructureProvider"},
			kindOf{kind: "FooCluster", group: "infrastructure.cluster.x-k8s.io", fields: parseFields(conditionFields + endpointFields +
				"status.initialization.provisioned boolean, status.failureDomains[].name string, status.failureDomains[].controlPlane boolean, status.failureDomains[].attributes{} string")},
			conditionFields + endpointFields + "status.ready boolean, status.failureDomains{}.controlPlane boolean, status.failureReason string",
		},
		contract.InfraMachine: {
			release.Provider{Type: "InfrastructureProvider"},
			kindOf{kind: "FooMachine", group: "infrastructure.cluster.x-k8s.io", fields: parseFields(conditionFields +
				"spec.providerID string, status.failureDomain string, status.addresses[].type string, status.addresses[].address string, status.initialization.provisioned boolean")},
			conditionFields + "spec.providerID string, spec.failureDomain string, status.addresses[].type string, status.addresses[].address string, status.ready boolean, status.failureMessage string",
		},
		contract.InfraMachinePool: {
			release.Provider{Type: "InfrastructureProvider"},
			kindOf{kind: "FooMachinePool", group: "infrastructure.cluster.x-k8s.io", fields: parseFields(conditionFields +
				"spec.providerID string, spec.providerIDList[] string, status.instances[].ready boolean, status.infrastructureMachineKind string, status.replicas integer, status.initialization.provisioned boolean, status.ready boolean")},
			conditionFields + "spec.providerID string, spec.providerIDList[] string, status.instances[].ready boolean, status.infrastructureMachineKind string, status.replicas integer, status.ready boolean, status.failureReason string",
		},
		contract.BootstrapConfig: {
			release.Provider{Type: "BootstrapProvider"},
			kindOf{kind: "FooConfig", group: "bootstrap.cluster.x-k8s.io", fields: parseFields(conditionFields +
				"status.dataSecretName string, status.initialization.dataSecretCreated boolean")},
			conditionFields + "status.dataSecretName string, status.ready boolean, status.failureReason string",
		},
		contract.ControlPlane: {
			release.Provider{Type: "ControlPlaneProvider"},
			kindOf{kind: "FooControlPlane", group: "controlplane.cluster.x-k8s.io", scale: scale, fields: parseFields(conditionFields + endpointFields +
				"spec.replicas integer, status.selector string, status.replicas integer, status.readyReplicas integer, status.availableReplicas integer, status.upToDateReplicas integer, " +
				"spec.version string, status.versions[].version string, spec.rollout.after string, status.initialization.controlPlaneInitialized boolean, " +
				"spec.machineTemplate.spec.infrastructureRef.apiGroup string, spec.machineTemplate.spec.infrastructureRef.kind string, spec.machineTemplate.spec.infrastructureRef.name string")},
			conditionFields + endpointFields + "spec.replicas integer, status.updatedReplicas integer, spec.version string, status.version string, spec.rolloutAfter string, status.initialized boolean, status.failureReason string, " +
				"spec.machineTemplate.infrastructureRef.kind string, spec.machineTemplate.infrastructureRef.name string",
		},
		contract.IPAM: {
			release.Provider{Type: "IPAMProvider"},
			kindOf{kind: "FooPool", group: "ipam.cluster.x-k8s.io", fields: parseFields(conditionFields)},
			"",
		},
	}
)

// implementation returns the kind of a resource with changed fields, and its template.
func implementation(t *testing.T, resource contract.Resource, version string, changes map[string]string) *contract.Implementation {
	t.Helper()
	s := subjects[resource]
	k := s.kind
	k.scope, k.contract = "Namespaced", version
	if version == "v1beta1" {
		k.fields = parseFields(s.old)
	}
	kinds := []kindOf{k.with(changes)}
	if resource != contract.IPAM {
		kinds = append(kinds, kindOf{kind: k.kind + "Template", group: k.group, scope: "Namespaced", contract: version, fields: templateFields})
	}
	for _, i := range implementations(t, s.provider, kinds...) {
		if i.Resource == resource {
			return i
		}
	}
	t.Fatalf("%s: no implementation was found", resource)
	return nil
}

// TestRulesOfGoodKinds checks all rules on kinds that have all fields.
func TestRulesOfGoodKinds(t *testing.T) {
	for _, rule := range contract.Rules() {
		for _, version := range []string{"v1beta2", "v1beta1"} {
			if rule.Resource == contract.IPAM && version == "v1beta1" {
				continue
			}
			want := contract.Present
			switch {
			case !rule.Visible():
				want = contract.NotVisible
			case strings.HasSuffix(rule.ID, "terminal-failures") && version == "v1beta2":
				want = contract.NotApplicable
			}
			v := rule.Check(implementation(t, rule.Resource, version, nil))
			if v.State != want || len(v.Problems) > 0 {
				t.Errorf("%s under %s: state %q, want %q without problems: %+v", rule.ID, version, v.State, want, v.Problems)
			}
		}
	}
}

// TestRulesOfFields removes each field, and then changes its type.
func TestRulesOfFields(t *testing.T) {
	for _, c := range []struct{ rule, version, path string }{
		{"infra-cluster-control-plane-endpoint", "v1beta2", "spec.controlPlaneEndpoint"},
		{"infra-cluster-failure-domains", "v1beta2", "status.failureDomains"},
		{"infra-cluster-failure-domains", "v1beta1", "status.failureDomains"},
		{"infra-cluster-initialization-completed", "v1beta2", "status.initialization"},
		{"infra-cluster-initialization-completed", "v1beta1", "status.ready"},
		{"infra-cluster-conditions", "v1beta2", "status.conditions"},
		{"infra-cluster-terminal-failures", "v1beta1", "status.failureReason"},
		{"infra-machine-provider-id", "v1beta2", "spec.providerID"},
		{"infra-machine-failure-domain", "v1beta2", "status.failureDomain"},
		{"infra-machine-failure-domain", "v1beta1", "spec.failureDomain"},
		{"infra-machine-addresses", "v1beta2", "status.addresses"},
		{"infra-machine-initialization-completed", "v1beta2", "status.initialization"},
		{"infra-machine-initialization-completed", "v1beta1", "status.ready"},
		{"infra-machine-conditions", "v1beta2", "status.conditions"},
		{"infra-machine-terminal-failures", "v1beta1", "status.failureMessage"},
		{"infra-machine-pool-instances", "v1beta2", "status.instances"},
		{"infra-machine-pool-machines", "v1beta2", "status.infrastructureMachineKind"},
		{"infra-machine-pool-provider-id", "v1beta2", "spec.providerID"},
		{"infra-machine-pool-provider-id-list", "v1beta2", "spec.providerIDList"},
		{"infra-machine-pool-initialization-completed", "v1beta2", "status.initialization"},
		{"infra-machine-pool-initialization-completed", "v1beta1", "status.ready"},
		{"infra-machine-pool-conditions", "v1beta2", "status.conditions"},
		{"infra-machine-pool-replicas", "v1beta2", "status.replicas"},
		{"infra-machine-pool-terminal-failures", "v1beta1", "status.failureReason"},
		{"bootstrap-config-data-secret", "v1beta2", "status.dataSecretName"},
		{"bootstrap-config-initialization-completed", "v1beta2", "status.initialization"},
		{"bootstrap-config-initialization-completed", "v1beta1", "status.ready"},
		{"bootstrap-config-conditions", "v1beta2", "status.conditions"},
		{"bootstrap-config-terminal-failures", "v1beta1", "status.failureReason"},
		{"control-plane-endpoint", "v1beta2", "spec.controlPlaneEndpoint"},
		{"control-plane-replicas", "v1beta2", "spec.replicas"},
		{"control-plane-version", "v1beta2", "spec.version"},
		{"control-plane-machines", "v1beta2", "spec.machineTemplate"},
		{"control-plane-machines", "v1beta1", "spec.machineTemplate"},
		{"control-plane-rollout-after", "v1beta2", "spec.rollout.after"},
		{"control-plane-rollout-after", "v1beta1", "spec.rolloutAfter"},
		{"control-plane-initialization-completed", "v1beta2", "status.initialization"},
		{"control-plane-initialization-completed", "v1beta1", "status.initialized"},
		{"control-plane-conditions", "v1beta2", "status.conditions"},
		{"control-plane-terminal-failures", "v1beta1", "status.failureReason"},
		{"ipam-pool-conditions", "", "status.conditions"},
	} {
		rule := find(t, c.rule)
		t.Run(c.rule+"/"+c.version, func(t *testing.T) {
			missing := rule.Check(implementation(t, rule.Resource, c.version, map[string]string{c.path: ""}))
			if missing.State != contract.Missing {
				t.Errorf("without %s: state %q, want %q: %+v", c.path, missing.State, contract.Missing, missing.Problems)
			}
			wrong := rule.Check(implementation(t, rule.Resource, c.version, map[string]string{c.path: "number"}))
			if wrong.State == contract.Missing && strings.HasSuffix(c.path, "initialization") {
				return // a number has no field below it
			}
			if wrong.State != contract.Wrong || len(wrong.Problems) == 0 {
				t.Errorf("with a number as %s: state %q, want %q: %+v", c.path, wrong.State, contract.Wrong, wrong.Problems)
			}
			for _, p := range wrong.Problems {
				if p.Reason == "" || p.CRD == nil || p.Fix == "" {
					t.Errorf("the problem has no reason, CRD or advice: %+v", p)
				}
			}
		})
	}
}

// find returns the rule with an ID.
func find(t *testing.T, id string) contract.Rule {
	t.Helper()
	for _, r := range contract.Rules() {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("rule %s is missing", id)
	return contract.Rule{}
}

// TestPoolInitialization checks the two initialization fields of pools: the contract page requires one, the
// controller of MachinePools reads the other.
func TestPoolInitialization(t *testing.T) {
	rule := find(t, "infra-machine-pool-initialization-completed")
	for name, c := range map[string]struct {
		removed []string
		state   contract.State
		weight  contract.Weight
	}{
		"both":             {nil, contract.Present, ""},
		"only the old one": {[]string{"status.initialization"}, contract.Missing, contract.Deprecated},
		"only the new one": {[]string{"status.ready"}, contract.Present, contract.Lax},
		"none of them":     {[]string{"status.ready", "status.initialization"}, contract.Missing, contract.Broken},
	} {
		changes := map[string]string{}
		for _, path := range c.removed {
			changes[path] = ""
		}
		v := rule.Check(implementation(t, contract.InfraMachinePool, "v1beta2", changes))
		var weight contract.Weight
		for _, p := range v.Problems {
			weight = p.Weight
		}
		if v.State != c.state || weight != c.weight {
			t.Errorf("%s: state %q and weight %q, want %q and %q", name, v.State, weight, c.state, c.weight)
		}
	}
}
