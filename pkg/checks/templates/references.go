package templates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const (
	sourceInfraRefs    = "Cluster API book, Concepts, and the contracts of InfraCluster, ControlPlane and BootstrapConfig"
	sourceClusterLabel = "Cluster API book, Labels and Annotations, cluster.x-k8s.io/cluster-name"
)

// ownedRefs are the fields with which a Cluster's objects refer to their parts. Objects of other references, such as
// credentials, may already be in the cluster.
var ownedRefs = []string{"controlPlaneRef", "infrastructureRef", "configRef"}

var templateRefResolves = checks.Check{
	ID: "template-ref-resolves", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The parts of a template's objects are in the template",
	Source: sourceInfraRefs,
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		if t.MayHaveMore() {
			return nil // the variable may contain more objects
		}
		for _, o := range t.Objects {
			for _, r := range ownReferences(o) {
				// template-ref-kind reports undefined kinds.
				if !t.Has(o, r) && !t.GuessedAt(o, r.Path...) && !isUndefined(s, r.GroupKind()) {
					report(checks.Finding{Place: o.Place(append(r.Path, "name")...),
						Message: fmt.Sprintf("the template has no %s %s: the %s waits for it forever", r.Kind, r.Name, o.GetKind()),
						Fix:     "add the object to " + t.Name + ", or correct the reference"})
				}
			}
		}
		return nil
	}),
}

// ownReferences returns the references of an object of Cluster API's core or of a control plane to its parts.
func ownReferences(o rendered.Object) []rendered.Reference {
	group := o.GroupVersionKind().Group
	if group != clusterv1.GroupVersion.Group && group != "controlplane."+clusterv1.GroupVersion.Group || o.IsCore("ClusterClass") {
		return nil
	}
	var own []rendered.Reference
	for _, r := range rendered.SortedReferences(o) {
		if last, _ := r.Path[len(r.Path)-1].(string); slices.Contains(ownedRefs, last) {
			own = append(own, r)
		}
	}
	return own
}

var templateRefVersion = checks.Check{
	ID: "template-ref-version", Group: checks.Templates, Severity: checks.Warning,
	Title:  "References name versions that are served",
	Source: "Cluster API book, Developing providers, Contracts: API version labels",
	Run: rendered.All.EachObject(func(_ context.Context, s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		for _, r := range rendered.SortedReferences(o) {
			reportRefVersion(s, t, o, r, report)
		}
		return nil
	}),
}

// reportRefVersion checks a reference's version against the CRD of its kind, if that is known.
func reportRefVersion(s *checks.Subject, t *rendered.Template, o rendered.Object, r rendered.Reference, report checks.Report) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil || gv.Group == "" || t.GuessedAt(o, append(slices.Clone(r.Path), "apiVersion")...) {
		return
	}
	kind, ok := s.KnownKinds().Kind(gv.WithKind(r.Kind).GroupKind())
	if !ok || slices.Contains(kind.Served(), gv.Version) {
		return
	}
	report(checks.Finding{Place: o.Place(append(slices.Clone(r.Path), "apiVersion")...), Cause: gv.WithKind(r.Kind).String(),
		Message: fmt.Sprintf("it refers to %s in version %s, but the served versions are %s: Cluster API can't read the object", r.Kind, gv.Version, strings.Join(kind.Served(), ", ")),
		Fix:     "name a version that is served"})
}

var templateClusterName = checks.Check{
	ID: "template-cluster-name", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The objects of a template name its Cluster",
	Source: sourceClusterLabel,
	Run: rendered.Templates.Each(func(_ context.Context, _ *checks.Subject, t *rendered.Template, report checks.Report) error {
		clusters := t.ClusterNames()
		if len(clusters) == 0 {
			return nil
		}
		for _, o := range t.Objects {
			reportClusterName(t, o, clusters, report)
		}
		return nil
	}),
}

// reportClusterName checks the fields and labels of an object of the core that name a Cluster.
func reportClusterName(t *rendered.Template, o rendered.Object, clusters []string, report checks.Report) {
	paths := [][]any{{"metadata", "labels", clusterv1.ClusterNameLabel}}
	if o.GroupVersionKind().Group == clusterv1.GroupVersion.Group {
		paths = append(paths, []any{"spec", "clusterName"}, []any{"spec", "template", "spec", "clusterName"},
			[]any{"spec", "selector", "matchLabels", clusterv1.ClusterNameLabel},
			[]any{"spec", "template", "metadata", "labels", clusterv1.ClusterNameLabel})
	}
	for _, path := range paths {
		name, ok := manifest.At(o.Object, path...).(string)
		if !ok || slices.Contains(clusters, name) || t.GuessedAt(o, path...) {
			continue
		}
		report(checks.Finding{Place: o.Place(path...), Cause: t.Name + " " + name,
			Message: fmt.Sprintf("it names the cluster %q, but the template's Cluster is %q: Cluster API does not connect the two", name, strings.Join(clusters, `", "`)),
			Fix:     "write ${CLUSTER_NAME}, as the Cluster does"})
	}
}
