package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// pairs calls a function with the objects of some kinds that are in both releases.
func pairs(s *checks.Subject, u *upgrade, each func(before, after *manifest.Document), kinds ...string) {
	for _, after := range s.Objects(kinds...) {
		if before := u.before.Object(after.Object.GetKind(), after.Object.GetName()); before != nil {
			each(before, after)
		}
	}
}

var namespaceChanged = upgradeCheck("namespace-changed", checks.Warning, "The provider stays in its namespace, and keeps its label", sourceUpgrade,
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		reportLabelChange(s, u, report)
		before, after := installed.OwnNamespace(u.before), installed.OwnNamespace(s)
		if before == "" || after == "" || before == after {
			return nil
		}
		i := slices.IndexFunc(s.Objects(), func(d *manifest.Document) bool {
			return d.Object.GetNamespace() == after || d.Object.GetKind() == "Namespace"
		})
		place := s.Objects()[i].Place("metadata", "namespace")
		if namespaces := s.Objects("Namespace"); len(namespaces) > 0 {
			place = namespaces[0].Place("metadata", "name")
		}
		report(checks.Finding{Place: place,
			Message: fmt.Sprintf("the namespace was %s: clusterctl upgrade keeps that one, and other tools install a second provider next to the first%s", before, mentions(s, after)),
			Fix:     "keep the namespace " + before})
		return nil
	})

// reportLabelChange reports a changed value of the provider's label, which selects the provider's objects.
func reportLabelChange(s *checks.Subject, u *upgrade, report checks.Report) {
	label := func(o unstructured.Unstructured) string { return o.GetLabels()[clusterv1.ProviderNameLabel] }
	before, after := installed.MostCommon(u.before.Objects(), label), installed.MostCommon(s.Objects(), label)
	if before == "" || after == "" || before == after {
		return
	}
	i := slices.IndexFunc(s.Objects(), func(d *manifest.Document) bool { return label(d.Object) == after })
	report(checks.Finding{Place: s.Objects()[i].Place("metadata", "labels", clusterv1.ProviderNameLabel), Severity: checks.Note,
		Message: fmt.Sprintf("the label was %s: clusterctl writes its own value, but users of other tools who select objects by the label no longer find those of the previous release", before),
		Fix:     "document in the release notes which objects have to be deleted by hand"})
}

// mentions names the arguments and variables of containers that contain a namespace, which clusterctl does not change.
func mentions(s *checks.Subject, namespace string) string {
	var found []string
	for _, c := range installed.Containers(s) {
		texts := append(manifest.Texts(c.Fields, "command"), manifest.Texts(c.Fields, "args")...)
		for _, fields := range manifest.Maps(c.Fields, "env") {
			texts = append(texts, manifest.Text(fields, "value"))
		}
		for _, text := range texts {
			if strings.Contains(text, namespace) {
				found = append(found, text)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("; container arguments still name %s (%s), which clusterctl does not change", namespace, strings.Join(found, ", "))
}

// selecting are the kinds whose selectors never change.
var selecting = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}

var selectorChanged = upgradeCheck("selector-changed", checks.Warning, "Selectors of workloads stay as they are", "Kubernetes, Deployments, Label selector updates",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		pairs(s, u, func(before, after *manifest.Document) {
			old, now := manifest.Map(before.Object.Object, "spec", "selector"), manifest.Map(after.Object.Object, "spec", "selector")
			if equality.Semantic.DeepEqual(old, now) {
				return
			}
			f := checks.Finding{Place: after.Place("spec", "selector"),
				Message: "the selector changed, which Kubernetes does not allow for a workload: clusterctl upgrade deletes the workload and creates it again, kubectl apply and GitOps tools fail",
				Fix:     "keep the selector of the previous release, or give the workload a new name"}
			if equality.Semantic.DeepEqual(withoutOwnLabels(old), withoutOwnLabels(now)) {
				f.Severity = checks.Note
				f.Message = "the selector differs in a label that is intended for objects only: clusterctl upgrade deletes the workload and creates it again, users of kubectl apply have to delete it first"
				f.Fix = "announce it in the release notes: the change is an improvement and happens once"
			}
			report(f)
		}, selecting...)
		return nil
	})

// withoutOwnLabels returns a selector without the labels that clusterctl sets on objects.
func withoutOwnLabels(selector map[string]any) map[string]any {
	labels := maps.Clone(manifest.Map(selector, "matchLabels"))
	delete(labels, clusterv1.ProviderNameLabel)
	delete(labels, clusterctlv1.ClusterctlLabel)
	return map[string]any{"matchLabels": labels, "matchExpressions": selector["matchExpressions"]}
}

var roleRefChanged = upgradeCheck("role-ref-changed", checks.Error, "Bindings keep their roles", "Kubernetes, Using RBAC Authorization, RoleBinding and ClusterRoleBinding",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		pairs(s, u, func(before, after *manifest.Document) {
			old, now := manifest.Map(before.Object.Object, "roleRef"), manifest.Map(after.Object.Object, "roleRef")
			if manifest.Text(old, "kind") == manifest.Text(now, "kind") && manifest.Text(old, "name") == manifest.Text(now, "name") {
				return // the group is always the same, and has a default
			}
			f := checks.Finding{Place: after.Place("roleRef"),
				Message: fmt.Sprintf("it grants %s %s, and before %s %s: clusterctl upgrade does not delete this binding but patches it, which the API server refuses: the upgrade stops after the old manager is deleted",
					manifest.Text(now, "kind"), manifest.Text(now, "name"), manifest.Text(old, "kind"), manifest.Text(old, "name")),
				Fix: "give the binding a new name, or keep the name of the role"}
			if after.Object.GetKind() == "RoleBinding" || u.remakes(after) {
				f.Severity = checks.Warning
				f.Message = fmt.Sprintf("it grants %s %s, and before %s %s: clusterctl upgrade deletes the binding and creates it again, kubectl apply and GitOps tools fail",
					manifest.Text(now, "kind"), manifest.Text(now, "name"), manifest.Text(old, "kind"), manifest.Text(old, "name"))
			}
			report(f)
		}, "RoleBinding", "ClusterRoleBinding")
		return nil
	})

var imageRegistryChanged = upgradeCheck("image-registry-changed", checks.Warning, "Images keep their registry", "clusterctl configuration, Image overrides",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, after := range installed.Containers(s) {
			for _, before := range installed.Containers(u.before) {
				if before.Name() != after.Name() || before.Init != after.Init || before.Pod.Object.GetName() != after.Pod.Object.GetName() || before.Pod.Object.GetKind() != after.Pod.Object.GetKind() {
					continue
				}
				oldImage, known := before.Image()
				newImage, alsoKnown := after.Image()
				oldRegistry, oldPath := diff.Repository(oldImage)
				newRegistry, newPath := diff.Repository(newImage)
				if !known || !alsoKnown || oldRegistry == newRegistry && oldPath == newPath {
					continue
				}
				f := checks.Finding{Place: after.Place("image"),
					Message: fmt.Sprintf("the image was in %s and is in %s: pods can't start in clusters that reach only known registries or mirrors", oldRegistry, newRegistry),
					Fix:     "publish to both registries for some time, and announce the change in the release notes"}
				if oldRegistry == newRegistry {
					f.Severity = checks.Note
					f.Message = fmt.Sprintf("the image was %s and is %s: mirrors and image overrides use the name", oldPath, newPath)
				}
				report(f)
			}
		}
		return nil
	})

// call is a request for which the API server calls a webhook.
type call struct{ group, version, resource, operation string }

// handler is a webhook with its configuration.
type handler struct{ configuration, webhook string }

// calls returns the requests for which the webhooks of a kind of configuration are called, with the first webhook of
// each.
func calls(s *checks.Subject, kind string) (map[call]handler, []call) {
	handlers := map[call]handler{}
	var order []call
	for _, d := range s.Objects(kind) {
		for _, fields := range manifest.Maps(d.Object.Object, "webhooks") {
			for _, rule := range manifest.Maps(fields, "rules") {
				for _, group := range manifest.Texts(rule, "apiGroups") {
					for _, version := range manifest.Texts(rule, "apiVersions") {
						for _, resource := range manifest.Texts(rule, "resources") {
							for _, operation := range manifest.Texts(rule, "operations") {
								c := call{group, version, resource, operation}
								if _, known := handlers[c]; !known {
									handlers[c] = handler{d.Object.GetName(), manifest.Text(fields, "name")}
									order = append(order, c)
								}
							}
						}
					}
				}
			}
		}
	}
	return handlers, order
}

// covered reports whether some webhook is called for the same request; * matches everything.
func covered(c call, calls []call) bool {
	return slices.ContainsFunc(calls, func(o call) bool {
		return (o.group == c.group || o.group == "*") && (o.resource == c.resource || o.resource == "*" || o.resource == "*/*") &&
			(o.operation == c.operation || o.operation == "*") && (o.version == c.version || o.version == "*")
	})
}

var webhookRemoved = upgradeCheck("webhook-removed", checks.Warning, "Webhooks still default and validate the same requests", "Kubernetes, Dynamic Admission Control",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
			handlers, before := calls(u.before, kind)
			_, after := calls(s, kind)
			lost, names := map[string][]string{}, map[string][]string{}
			var order []string
			for _, c := range before {
				if covered(c, after) || !serves(s, u, c) || calledAtAnotherVersion(c, after) {
					continue
				}
				configuration, webhook := handlers[c].configuration, handlers[c].webhook
				if lost[configuration] == nil {
					order = append(order, configuration)
				}
				lost[configuration] = append(lost[configuration], fmt.Sprintf("%s of %s %s", c.operation, c.resource, c.version))
				if !slices.Contains(names[configuration], webhook) {
					names[configuration] = append(names[configuration], webhook)
				}
			}
			for _, configuration := range order {
				seen := fmt.Sprintf("%s of the previous release handled %s, and no webhook does now", firstOf(names[configuration]), firstOf(lost[configuration]))
				f := checks.Finding{Place: s.At(s.Release.Provider.ComponentsFile()),
					Message: seen + ": fields that it may have set stay empty",
					Fix:     "keep the webhook, or move its defaults into the CRD's schema"}
				f.Object = manifest.Object{APIVersion: "admissionregistration.k8s.io/v1", Kind: kind, Name: configuration}
				if kind == "ValidatingWebhookConfiguration" {
					f.Severity = checks.Note
					f.Message = seen + ": objects that it may have refused are accepted"
					f.Fix = "keep the webhook, or move its rules into the CRD's schema"
				}
				report(f)
			}
		}
		return nil
	})

// firstOf lists the first items of a list, and the number of the rest.
func firstOf(items []string) string {
	const shown = 6
	if len(items) <= shown+1 {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:shown], ", "), len(items)-shown)
}

// calledAtAnotherVersion reports whether a webhook with the same resource and operation is registered for another
// version: the API server converts the object and calls it.
// Source: Kubernetes, Dynamic Admission Control, "Matching requests: matchPolicy", whose default is Equivalent.
func calledAtAnotherVersion(c call, calls []call) bool {
	return slices.ContainsFunc(calls, func(o call) bool {
		return o.group == c.group && o.resource == c.resource && (o.operation == c.operation || o.operation == "*")
	})
}

// serves reports whether the resource of a webhook still exists. Resources of others always do.
func serves(s *checks.Subject, u *upgrade, c call) bool {
	resource, _, _ := strings.Cut(c.resource, "/")
	isOf := func(crd checks.CRD) bool { return crd.Spec.Group == c.group && crd.Spec.Names.Plural == resource }
	if !slices.ContainsFunc(u.before.CRDs(), isOf) {
		return true
	}
	return slices.ContainsFunc(s.CRDs(), func(crd checks.CRD) bool {
		if !isOf(crd) {
			return false
		}
		for _, v := range crd.Spec.Versions {
			if v.Served && (v.Name == c.version || c.version == "*") {
				return true
			}
		}
		return false
	})
}
