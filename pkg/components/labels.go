package components

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// setProviderLabel sets the provider's label on every object. It removes the label from pod templates and from
// selectors of their pods: clusterctl sets it on objects only, a selector is immutable, and a released selector can't
// be fixed in place.
//
// Source: clusterctl provider contract, "Labels".
func (c *Components) setProviderLabel(value string) error {
	for _, o := range c.Objects {
		all := o.GetLabels()
		if all == nil {
			all = map[string]string{}
		}
		all[clusterv1.ProviderNameLabel] = value
		o.SetLabels(all)
	}
	before := podsOf(c.Objects)
	for _, o := range c.Objects {
		if o.GetKind() == "Pod" {
			continue // these are the labels of the object itself
		}
		pod, _ := manifest.PodOf(o)
		delete(pod.Labels, clusterv1.ProviderNameLabel)
	}
	after := podsOf(c.Objects)
	for _, o := range c.Objects {
		for _, selector := range podSelectors(o) {
			if err := c.cleanSelector(o, selector, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// pods are the pods of a workload of the components.
type pods struct {
	namespace string
	labels    labels.Set
}

// podsOf returns the pods of all workloads, in the order of the objects.
func podsOf(objects []unstructured.Unstructured) []pods {
	var all []pods
	for _, o := range objects {
		if pod, ok := manifest.PodOf(o); ok {
			all = append(all, pods{o.GetNamespace(), textMap(pod.Labels)})
		}
	}
	return all
}

// selector is a label selector for pods in an object.
type selector struct {
	// where names the selector's place in messages.
	where string
	// parent contains the labels under field.
	parent map[string]any
	field  string
}

// labels returns the labels that the selector requires.
func (s selector) labels() labels.Set {
	return textMap(manifest.Map(s.parent, s.field))
}

// set replaces the labels that the selector requires.
func (s selector) set(required labels.Set) error {
	return unstructured.SetNestedStringMap(s.parent, required, s.field)
}

// cleanSelector removes the provider label from one selector. The selector still selects the same pods: if the label
// alone distinguished them from others, the pods' other labels replace it.
func (c *Components) cleanSelector(o unstructured.Unstructured, s selector, before, after []pods) error {
	old := s.labels()
	if _, ok := old[clusterv1.ProviderNameLabel]; !ok {
		return nil
	}
	wanted := selected(old, o.GetNamespace(), before)
	cleaned := maps.Clone(old)
	delete(cleaned, clusterv1.ProviderNameLabel)
	if len(cleaned) > 0 && slices.Equal(selected(cleaned, o.GetNamespace(), after), wanted) {
		return s.set(cleaned)
	}
	if len(wanted) == 0 {
		return fmt.Errorf("%s: %s requires %s, which no pod of the components has: remove the label from it",
			describe(o), s.where, clusterv1.ProviderNameLabel)
	}
	shared := sharedLabels(wanted, after)
	if len(shared) == 0 || !slices.Equal(selected(shared, o.GetNamespace(), after), wanted) {
		return fmt.Errorf("%s: %s distinguishes its pods only by %s, but a release's selectors must not use that label: add another label to the pod template, e.g. control-plane: %s",
			describe(o), s.where, clusterv1.ProviderNameLabel, o.GetName())
	}
	return s.set(shared)
}

// selected returns the indices of the pods that a selector in a namespace matches.
func selected(selector labels.Set, namespace string, all []pods) []int {
	var indices []int
	for i, p := range all {
		if p.namespace == namespace && labels.SelectorFromSet(selector).Matches(p.labels) {
			indices = append(indices, i)
		}
	}
	return indices
}

// sharedLabels returns the labels that all of some pods have. There is at least one pod.
func sharedLabels(which []int, all []pods) labels.Set {
	shared := maps.Clone(all[which[0]].labels)
	for _, i := range which {
		maps.DeleteFunc(shared, func(k, v string) bool { return all[i].labels[k] != v || !all[i].labels.Has(k) })
	}
	return shared
}

// podSelectors returns the label selectors for pods in an object: those that kustomize's includeSelectors writes to.
func podSelectors(o unstructured.Unstructured) []selector {
	spec := manifest.Map(o.Object, "spec")
	var selectors []selector
	add := func(where string, parent map[string]any, field string) {
		if manifest.Map(parent, field) != nil {
			selectors = append(selectors, selector{where: where, parent: parent, field: field})
		}
	}
	switch o.GetKind() {
	case "Service", "ReplicationController":
		add("spec.selector", spec, "selector")
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "PodDisruptionBudget":
		add("spec.selector.matchLabels", manifest.Map(spec, "selector"), "matchLabels")
	case "CronJob":
		add("spec.jobTemplate.spec.selector.matchLabels", manifest.Map(spec, "jobTemplate", "spec", "selector"), "matchLabels")
	case "NetworkPolicy":
		add("spec.podSelector.matchLabels", manifest.Map(spec, "podSelector"), "matchLabels")
		for _, rule := range append(peers(spec, "ingress", "from"), peers(spec, "egress", "to")...) {
			add("a peer's podSelector.matchLabels", manifest.Map(rule, "podSelector"), "matchLabels")
		}
	}
	pod, _ := manifest.PodOf(o)
	for _, term := range schedulingTerms(pod.Spec) {
		add("a scheduling rule's labelSelector.matchLabels", manifest.Map(term, "labelSelector"), "matchLabels")
	}
	return selectors
}

// peers returns the peers in the rules of a network policy that match pods of its own namespace.
func peers(spec map[string]any, rules, side string) []map[string]any {
	var peers []map[string]any
	for _, rule := range manifest.Maps(spec, rules) {
		for _, peer := range manifest.Maps(rule, side) {
			if _, elsewhere := peer["namespaceSelector"]; !elsewhere {
				peers = append(peers, peer)
			}
		}
	}
	return peers
}

// schedulingTerms returns the terms of a pod's affinities and spread constraints.
func schedulingTerms(spec map[string]any) []map[string]any {
	var terms []map[string]any
	add := func(_ int, term map[string]any) bool {
		terms = append(terms, term)
		return true
	}
	manifest.Maps(spec, "topologySpreadConstraints")(add)
	for _, affinity := range []string{"podAffinity", "podAntiAffinity"} {
		rules := manifest.Map(spec, "affinity", affinity)
		manifest.Maps(rules, "requiredDuringSchedulingIgnoredDuringExecution")(add)
		for _, weighted := range manifest.Maps(rules, "preferredDuringSchedulingIgnoredDuringExecution") {
			if term := manifest.Map(weighted, "podAffinityTerm"); term != nil {
				terms = append(terms, term)
			}
		}
	}
	return terms
}

// textMap returns the texts of a map.
func textMap(m map[string]any) labels.Set {
	set := labels.Set{}
	for k, v := range m {
		if text, ok := v.(string); ok {
			set[k] = text
		}
	}
	return set
}
