package contract

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// replicas judges the optional replicas, and with them the counters, a selector and the scale subresource.
func replicas(i *Implementation) Verdict {
	v := fieldRule{path: "spec.replicas", shape: integer}.judge(i)
	switch status := i.root.field("status"); {
	case v.State == Missing:
		return v
	case i.old:
		v.Detail = "" // the counters are optional, so the row names no place
		// The page says about the old counters only that they are still read.
		return v.with(fields{
			may("replicas", integer), may("readyReplicas", integer), may("updatedReplicas", integer), may("unavailableReplicas", integer),
		}.compare(status))
	default:
		return v.with(fields{
			must("selector", anyText), must("replicas", integer), must("readyReplicas", integer), must("availableReplicas", integer), must("upToDateReplicas", integer),
		}.compare(status)).with(i.scale())
	}
}

// scale judges whether the scale subresource has the fields of the contract.
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
		return []Problem{refuse(at, fmt.Sprintf("%s has spec.replicas without a scale subresource: neither kubectl scale nor an autoscaler can change the replicas", i.CRD.kind()))}
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
				fmt.Sprintf("the scale subresource has %q as its %s, but the contract requires %s", path.got, path.name, path.want)))
		}
	}
	return problems
}

// kubernetesVersion judges the optional version, and with it the running versions in the status.
func kubernetesVersion(i *Implementation) Verdict {
	v := fieldRule{path: "spec.version", shape: text(256)}.judge(i)
	if v.State == Missing {
		return v
	}
	status := i.root.field("status")
	want := fields{may("version", text(256))}
	hasVersions := false
	if !i.old {
		hasVersions = status.field("versions").there()
		want = append(want, may("versions", mergedBy(100, object(must("version", anyText), may("replicas", integer)), "version")))
	}
	problems := want.compare(status)
	if one := status.field("version"); !one.there() && !hasVersions {
		problems = append(problems, one.problem(Broken,
			i.CRD.kind()+" has spec.version, but neither status.versions nor status.version: Cluster API can't detect the end of an upgrade"))
	}
	return v.with(problems)
}

// machines judges the optional template of machines, whose fields moved with the v1beta2 contract.
func machines(i *Implementation) Verdict {
	v := fieldRule{path: "spec.machineTemplate", shape: i.machineTemplate()}.judge(i)
	if v.State == Missing {
		return v
	}
	if n := i.root.at("spec.machineTemplate"); !hasMachineFields(n) {
		return Verdict{State: NotApplicable, Detail: n.name + " has no fields of machines: the control plane does not consist of Machines"}
	}
	old := i.root.at("spec.machineTemplate.infrastructureRef")
	for k := range v.Problems {
		if !i.old && old.there() {
			v.Problems[k].Reason += "; spec.machineTemplate.infrastructureRef is the field of the v1beta1 contract"
		}
	}
	if n := i.root.at("status.externalManagedControlPlane"); n.there() {
		v = v.with(boolean.compare(n))
	}
	return v
}

// hasMachineFields reports whether a machine template has more than metadata, the only field of a control plane without
// machines.
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
	return object(may("metadata", anything), must("spec", object(
		must("infrastructureRef", ref), may("deletion", deletion),
		may("readinessGates", mergedBy(32, object(must("conditionType", anyText)), "conditionType")),
		may("taints", mergedBy(64, object(must("key", anyText), may("value", anyText), must("effect", anyText)), "key", "effect")),
	)))
}

// rolloutAfter judges spec.rollout.after, which was spec.rolloutAfter under the v1beta1 contract.
func rolloutAfter(i *Implementation) Verdict {
	v := fieldRule{path: "spec.rollout.after", shape: anyText, old: &fieldRule{path: "spec.rolloutAfter", shape: anyText}}.judge(i)
	if n := i.root.at("spec.rolloutAfter"); v.State == Missing && n.schema != nil {
		p := n.problem(Broken, "spec.rolloutAfter is the field of the v1beta1 contract: under v1beta2, Cluster API's tools set spec.rollout.after, which is missing")
		p.Fix = "move the field to spec.rollout.after"
		return verdictOf([]Problem{p})
	}
	return v
}
