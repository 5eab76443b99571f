package templates

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const (
	sourceResourceSet = "Cluster API book, Tasks, ClusterResourceSet"
	sourceMove        = "clusterctl provider contract, Additional notes, Move"
)

// isResourceSet reports whether an object is a ClusterResourceSet.
func isResourceSet(o rendered.Object) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == addonsv1.GroupVersion.Group && gvk.Kind == "ClusterResourceSet"
}

// resource is an entry in the list of a ClusterResourceSet.
type resource struct {
	kind, name string
	path       []any
}

// resourcesOf returns the resources that a ClusterResourceSet lists, without those whose names users set.
func resourcesOf(t *rendered.Template, o rendered.Object) []resource {
	var listed []resource
	for i, fields := range manifest.Maps(o.Object, "spec", "resources") {
		path := []any{"spec", "resources", i, "name"}
		if !t.GuessedAt(o, path...) {
			listed = append(listed, resource{kind: manifest.Text(fields, "kind"), name: manifest.Text(fields, "name"), path: path})
		}
	}
	return listed
}

var templateResourceSet = checks.Check{
	ID: "template-resource-set", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The resources of a ClusterResourceSet are in the template, and apply to its Cluster",
	Source: sourceResourceSet,
	Run: rendered.All.EachObject(func(_ context.Context, _ *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		if !isResourceSet(o) {
			return nil
		}
		if !t.MayHaveMore() {
			for _, r := range resourcesOf(t, o) {
				reportResource(t, o, r, report)
			}
		}
		reportSelector(t, o, report)
		return nil
	}),
}

// reportResource reports a wrong or missing resource. A controller may create a missing Secret at run time, but never a
// ConfigMap.
func reportResource(t *rendered.Template, o rendered.Object, r resource, report checks.Report) {
	find := func(kind string) int {
		return slices.IndexFunc(t.Objects, func(other rendered.Object) bool {
			return other.GetAPIVersion() == "v1" && other.GetKind() == kind && other.GetName() == r.name
		})
	}
	if i := find(r.kind); i >= 0 {
		found := t.Objects[i]
		if kind, _ := found.Object["type"].(string); r.kind == "Secret" && kind != string(addonsv1.ClusterResourceSetSecretType) && !t.GuessedAt(found, "type") {
			report(checks.Finding{Place: found.Place("type"),
				Message: fmt.Sprintf("the ClusterResourceSet %s lists the Secret, but Cluster API applies only Secrets of type %s: this one is %q", o.GetName(), addonsv1.ClusterResourceSetSecretType, kind),
				Fix:     "write type: " + string(addonsv1.ClusterResourceSetSecretType)})
		}
		return
	}
	for _, other := range []string{"ConfigMap", "Secret"} {
		if find(other) >= 0 {
			report(checks.Finding{Place: o.Place(r.path...),
				Message: fmt.Sprintf("the template has %s as a %s, not as a %s: Cluster API does not find it", r.name, other, r.kind),
				Fix:     "use the kind of the object"})
			return
		}
	}
	if r.kind == "ConfigMap" {
		report(checks.Finding{Place: o.Place(r.path...),
			Message: fmt.Sprintf("the template has no ConfigMap %s: its content is not applied until somebody creates it", r.name),
			Fix:     "add the ConfigMap to " + t.Name + ", or correct the name"})
	}
}

// reportSelector compares the labels of the template's Clusters with a ClusterResourceSet's selector.
func reportSelector(t *rendered.Template, o rendered.Object, report checks.Report) {
	path := []any{"spec", "clusterSelector"}
	var selector metav1.LabelSelector
	fields := manifest.Map(o.Object, "spec", "clusterSelector")
	if fields == nil || t.GuessedAt(o, path...) ||
		runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &selector) != nil {
		return // template-schema reports the wrong type
	}
	chosen, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return
	}
	clusters := 0
	for _, other := range t.Objects {
		if !other.IsCore("Cluster") {
			continue
		}
		clusters++
		_, _, err := unstructured.NestedStringMap(other.Object, "metadata", "labels")
		if err != nil || chosen.Matches(labels.Set(other.GetLabels())) || // template-schema reports labels that aren't strings
			t.GuessedAt(other, "metadata", "labels") {
			return
		}
	}
	if clusters > 0 {
		report(checks.Finding{Place: o.Place(path...),
			Message: fmt.Sprintf("the selector %s does not match the labels of the template's Cluster: the ClusterResourceSet does not apply to it", chosen),
			Fix:     "add the labels to the Cluster, or correct the selector"})
	}
}

var templateSecretOwner = checks.Check{
	ID: "template-secret-owner", Group: checks.Templates, Severity: checks.Warning,
	Title:  "`clusterctl move` moves the Secrets of templates",
	Source: sourceMove,
	Run: rendered.All.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		for i, o := range t.Objects {
			if o.GetKind() != "Secret" || o.GetAPIVersion() != corev1.SchemeGroupVersion.Version || moves(t, o) {
				continue
			}
			finding := checks.Finding{Place: o.Place(),
				Message: "the Secret has neither an owner nor a move label: `clusterctl move` leaves it behind, and it stays when the Cluster is deleted",
				Fix:     fmt.Sprintf("label it %s: \"\"", clusterctlv1.ClusterctlMoveLabel)}
			if t.IsNamed(i) && mayOwnSecrets(s) {
				finding.Severity = checks.Note
				finding.Message = "the Secret has neither an owner in the template nor a move label: unless the manager, which may update it, makes a Cluster its owner, `clusterctl move` leaves it behind, and it stays when the Cluster is deleted"
			}
			report(finding)
		}
		return nil
	}),
}

// mayOwnSecrets reports whether the provider's roles allow to change Secrets, which setting an owner requires.
func mayOwnSecrets(s *checks.Subject) bool {
	return slices.ContainsFunc(installed.Rules(s, "Role", "ClusterRole"), func(r installed.Rule) bool {
		return r.Grants("", "secrets", "update") || r.Grants("", "secrets", "patch")
	})
}

// moves reports whether `clusterctl move` moves a Secret: it has a move label, an owner, the name of one of the
// Cluster's own Secrets, or a ClusterResourceSet that becomes its owner.
func moves(t *rendered.Template, o rendered.Object) bool {
	if rendered.HasMoveLabel(o.GetLabels()) || len(o.GetOwnerReferences()) > 0 {
		return true
	}
	if cluster, _, err := secret.ParseSecretName(o.GetName()); err == nil && slices.Contains(t.ClusterNames(), cluster) {
		return true
	}
	for _, set := range t.Objects {
		if isResourceSet(set) && slices.ContainsFunc(resourcesOf(t, set), func(r resource) bool { return r.kind == "Secret" && r.name == o.GetName() }) {
			return true
		}
	}
	return false
}
