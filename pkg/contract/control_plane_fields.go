package contract

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// replicas are optional; with them come counters, a selector and the scale subresource.
func replicas(i *Implementation) Verdict {
	v := i.holds(integer, "spec", "replicas")
	if v.State != Present && v.State != Wrong {
		return v
	}
	status := i.root.field("status")
	problems := v.Problems
	if i.old {
		// The page tells of the old counters only that they are still read.
		for _, name := range []string{"replicas", "readyReplicas", "updatedReplicas", "unavailableReplicas"} {
			problems = append(problems, may(name, integer).compare(status)...)
		}
		return verdictOf(problems)
	}
	problems = append(problems, must("selector", anyText).compare(status)...)
	for _, name := range []string{"replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"} {
		problems = append(problems, must(name, integer).compare(status)...)
	}
	v = verdictOf(append(problems, i.scale()...))
	v.Detail = "spec.replicas"
	return v
}

// scale holds the scale subresource to name the fields of the contract.
func (i *Implementation) scale() []Problem {
	index := slices.IndexFunc(i.CRD.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == i.Version })
	if index < 0 {
		return nil
	}
	at := []any{"spec", "versions", index, "subresources", "scale"}
	refuse := func(path []any, reason string) Problem {
		return Problem{
			CRD: i.CRD, Path: path, Weight: Broken, Reason: reason,
			Fix: "set the marker +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector",
		}
	}
	subresources := i.CRD.Spec.Versions[index].Subresources
	if subresources == nil || subresources.Scale == nil {
		return []Problem{refuse(at, fmt.Sprintf("%s has spec.replicas and no scale subresource: neither kubectl scale nor an autoscaler can change them", i.CRD.kind()))}
	}
	scale := subresources.Scale
	selector := ""
	if scale.LabelSelectorPath != nil {
		selector = *scale.LabelSelectorPath
	}
	var problems []Problem
	for _, path := range []struct{ name, got, want string }{
		{"specReplicasPath", scale.SpecReplicasPath, ".spec.replicas"},
		{"statusReplicasPath", scale.StatusReplicasPath, ".status.replicas"},
		{"labelSelectorPath", selector, ".status.selector"},
	} {
		if path.got != path.want {
			problems = append(problems, refuse(append(slices.Clone(at), path.name),
				fmt.Sprintf("the scale subresource has %q as its %s, and the contract has %s", path.got, path.name, path.want)))
		}
	}
	return problems
}

// kubernetesVersion is optional; with it comes what the status says of the versions that run.
func kubernetesVersion(i *Implementation) Verdict {
	v := i.holds(text(256), "spec", "version")
	if v.State != Present && v.State != Wrong {
		return v
	}
	status := i.root.field("status")
	one, all := status.field("version"), status.field("versions")
	problems := v.Problems
	if one.there() {
		problems = append(problems, text(256).compare(one)...)
	}
	if all.there() && !i.old {
		item := object(must("version", anyText), may("replicas", integer))
		list := shape{kind: typeList, items: &item, maxItems: 100, listType: typeMap, listKeys: []string{"version"}}
		problems = append(problems, list.compare(all)...)
	}
	if !one.there() && (i.old || !all.there()) {
		problems = append(problems, one.problem(Broken,
			i.CRD.kind()+" has spec.version, and neither status.versions nor status.version: Cluster API can't tell when an upgrade is done"))
	}
	v = verdictOf(problems)
	v.Detail = "spec.version"
	return v
}

// machines are optional; with them comes a template whose fields moved with the v1beta2 contract.
func machines(i *Implementation) Verdict {
	v := i.holds(i.machineTemplate(), "spec", "machineTemplate")
	if v.State != Present && v.State != Wrong {
		return v
	}
	if n := i.root.at("spec", "machineTemplate"); !hasMachineFields(n) {
		return Verdict{State: NotApplicable, Detail: n.name + " has no fields of machines: the control plane is not made of Machines"}
	}
	old := i.root.at("spec", "machineTemplate", "infrastructureRef")
	for k := range v.Problems {
		if !i.old && old.there() {
			v.Problems[k].Reason += "; spec.machineTemplate.infrastructureRef is where the v1beta1 contract has it"
		}
	}
	if n := i.root.at("status", "externalManagedControlPlane"); n.there() {
		problems := append(v.Problems, boolean.compare(n)...)
		v = verdictOf(problems)
		v.Detail = "spec.machineTemplate"
	}
	return v
}

// hasMachineFields says whether a machine template has more than metadata, which is all that one of a
// control plane without machines may have.
func hasMachineFields(template node) bool {
	if template.open || template.schema.Type != typeObject || template.schema.AdditionalProperties != nil {
		return true
	}
	for name := range template.schema.Properties {
		below := template.field(name)
		isEmpty := below.schema.Type == typeObject && len(below.schema.Properties) == 0 && !below.open
		if name != "metadata" && !isEmpty {
			return true
		}
	}
	return false
}

// machineTemplate is the shape of spec.machineTemplate.
func (i *Implementation) machineTemplate() shape {
	if i.old {
		ref := object(may("apiVersion", anyText), must("kind", anyText), must("name", anyText))
		return object(must("infrastructureRef", ref), may("metadata", anything),
			may("nodeDrainTimeout", anyText), may("nodeVolumeDetachTimeout", anyText), may("nodeDeletionTimeout", anyText))
	}
	ref := object(must("apiGroup", anyText), must("kind", anyText), must("name", anyText))
	deletion := object(may("nodeDrainTimeoutSeconds", integer), may("nodeVolumeDetachTimeoutSeconds", integer), may("nodeDeletionTimeoutSeconds", integer))
	gate := object(must("conditionType", anyText))
	taint := object(must("key", anyText), may("value", anyText), must("effect", anyText))
	return object(may("metadata", anything), must("spec", object(
		must("infrastructureRef", ref), may("deletion", deletion),
		may("readinessGates", shape{kind: typeList, items: &gate, maxItems: 32, listType: typeMap, listKeys: []string{"conditionType"}}),
		may("taints", shape{kind: typeList, items: &taint, maxItems: 64, listType: typeMap, listKeys: []string{"key", "effect"}}),
	)))
}

// rolloutAfter is spec.rollout.after, and was spec.rolloutAfter under the v1beta1 contract.
func rolloutAfter(i *Implementation) Verdict {
	if i.old {
		return i.holds(anyText, "spec", "rolloutAfter")
	}
	v := i.holds(anyText, "spec", "rollout", "after")
	if v.State != Missing {
		return v
	}
	if n := i.root.at("spec", "rolloutAfter"); n.schema != nil {
		p := n.problem(Broken, "spec.rolloutAfter is the v1beta1 contract's: under v1beta2 Cluster API's tools set spec.rollout.after, which is not there")
		p.Fix = "move the field to spec.rollout.after"
		return verdictOf([]Problem{p})
	}
	return v
}
