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

// setProviderLabel labels every object as the provider's and takes the label out of pod templates
// and of the selectors that look for their pods: clusterctl puts it on objects only, a selector is
// immutable, and a label that is in one can never be fixed in place.
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
			continue // its labels are the object's own
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

// pods are those that a workload of the components makes.
type pods struct {
	namespace string
	labels    labels.Set
}

// podsOf returns the pods of all workloads, in the objects' order.
func podsOf(objects []unstructured.Unstructured) []pods {
	var all []pods
	for _, o := range objects {
		if pod, ok := manifest.PodOf(o); ok {
			all = append(all, pods{o.GetNamespace(), textMap(pod.Labels)})
		}
	}
	return all
}

// selector is a place in an object where pods are looked for by their labels.
type selector struct {
	// where names the place in messages.
	where string
	// parent holds the labels under field.
	parent map[string]any
	field  string
}

// labels returns the labels that the selector asks for.
func (s selector) labels() labels.Set {
	return textMap(manifest.Map(s.parent, s.field))
}

// cleanSelector takes the provider label out of one selector. The selector goes on selecting the
// same pods: where the label was all that distinguished them from others, the pods' other labels take its place.
func (c *Components) cleanSelector(o unstructured.Unstructured, s selector, before, after []pods) error {
	old := s.labels()
	if _, ok := old[clusterv1.ProviderNameLabel]; !ok {
		return nil
	}
	wanted := selected(old, o.GetNamespace(), before)
	cleaned := maps.Clone(old)
	delete(cleaned, clusterv1.ProviderNameLabel)
	if len(cleaned) > 0 && slices.Equal(selected(cleaned, o.GetNamespace(), after), wanted) {
		s.parent[s.field] = anyMap(cleaned)
		return nil
	}
	if len(wanted) == 0 {
		return fmt.Errorf("%s: %s asks for %s, which no pod of the components has: take the label out of it",
			describe(o), s.where, clusterv1.ProviderNameLabel)
	}
	shared := sharedLabels(wanted, after)
	if len(shared) == 0 || !slices.Equal(selected(shared, o.GetNamespace(), after), wanted) {
		return fmt.Errorf("%s: %s tells its pods from others by %s alone, and a release's selectors must not use that label: give the pod template a label of its own, e.g. control-plane: %s",
			describe(o), s.where, clusterv1.ProviderNameLabel, o.GetName())
	}
	s.parent[s.field] = anyMap(shared)
	return nil
}

// selected returns the indices of the pods that a selector in a namespace finds.
func selected(selector labels.Set, namespace string, all []pods) []int {
	var indices []int
	for i, p := range all {
		if p.namespace == namespace && labels.SelectorFromSet(selector).Matches(p.labels) {
			indices = append(indices, i)
		}
	}
	return indices
}

// sharedLabels returns the labels that all of some pods have.
func sharedLabels(which []int, all []pods) labels.Set {
	var shared labels.Set
	for n, i := range which {
		if n == 0 {
			shared = maps.Clone(all[i].labels)
			continue
		}
		maps.DeleteFunc(shared, func(k, v string) bool { return all[i].labels[k] != v || !all[i].labels.Has(k) })
	}
	return shared
}

// podSelectors returns the places of an object where pods are selected by labels: those that
// kustomize's includeSelectors writes to.
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

// peers returns the peers in the rules of a network policy that mean pods of its own namespace.
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

// anyMap is the way back from textMap.
func anyMap(set labels.Set) map[string]any {
	m := make(map[string]any, len(set))
	for k, v := range set {
		m[k] = v
	}
	return m
}
