package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

const (
	sourceInfraRefs    = "Cluster API book, Concepts, and the contracts of InfraCluster, ControlPlane and BootstrapConfig"
	sourceClusterLabel = "Cluster API book, Labels and Annotations, cluster.x-k8s.io/cluster-name"
)

// ownedRefs are the fields by which a Cluster's objects hold what they are made of. What other
// references name, such as credentials, may be in the cluster already.
var ownedRefs = []string{"controlPlaneRef", "infrastructureRef", "configRef"}

var templateRefResolves = Check{
	ID: "template-ref-resolves", Group: Templates, Severity: Warning,
	Title:  "The objects of a template that are made of others have them in the template",
	Source: sourceInfraRefs,
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			if t.mayHaveMore() {
				continue // more objects may come with the variable
			}
			for _, o := range t.objects {
				for _, r := range ownReferences(o) {
					// Of a kind that there is not, template-ref-kind speaks.
					if !t.has(o, r) && !t.guessedAt(o, schemas.Problem{Path: r.path}) && !s.isUndefined(r.GroupKind()) {
						report(Finding{Place: o.place(append(r.path, "name")...),
							Message: fmt.Sprintf("there is no %s %s in the template: the %s waits for it for ever", r.Kind, r.Name, o.GetKind()),
							Fix:     "put the object into " + t.Name + ", or fix the reference"})
					}
				}
			}
		}
	},
}

// ownReferences returns the references of an object of Cluster API's core or of a control plane to
// what it is made of.
func ownReferences(o object) []reference {
	group := o.GroupVersionKind().Group
	if group != clusterv1.GroupVersion.Group && group != "controlplane."+clusterv1.GroupVersion.Group || isClass(o) {
		return nil
	}
	var own []reference
	for _, r := range sortedReferences(o) {
		if last, _ := r.path[len(r.path)-1].(string); slices.Contains(ownedRefs, last) {
			own = append(own, r)
		}
	}
	return own
}

// sortedReferences returns the references in an object's spec, in the order of their paths.
func sortedReferences(o object) []reference {
	found := references(o.Object["spec"], []any{"spec"})
	slices.SortFunc(found, func(a, b reference) int {
		return cmp.Compare(manifest.FieldPath(a.path...), manifest.FieldPath(b.path...))
	})
	return found
}

// has says whether a template has the object that another one refers to.
func (t *template) has(from object, r reference) bool {
	if t.objectNames == nil {
		t.objectNames = newNameIndex(t)
	}
	return t.objectNames.has(r.Kind, t.nameAt(from, manifest.Join(r.path, "name")...))
}

var templateRefVersion = Check{
	ID: "template-ref-version", Group: Templates, Severity: Warning,
	Title:  "References name versions that are served",
	Source: "Cluster API book, Developing providers, Contracts: API version labels",
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			for _, o := range t.objects {
				for _, r := range sortedReferences(o) {
					s.reportRefVersion(t, o, r, report)
				}
			}
		}
	},
}

// reportRefVersion looks a reference's version up in the CRD of its kind, where that is known.
func (s *Subject) reportRefVersion(t *template, o object, r reference, report Report) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil || gv.Group == "" || t.guessedAt(o, schemas.Problem{Path: append(slices.Clone(r.path), "apiVersion")}) {
		return
	}
	kind, ok := s.knownKinds().Kind(gv.WithKind(r.Kind).GroupKind())
	if !ok || slices.Contains(kind.Served(), gv.Version) {
		return
	}
	report(Finding{Place: o.place(append(slices.Clone(r.path), "apiVersion")...), Cause: gv.WithKind(r.Kind).String(),
		Message: fmt.Sprintf("it refers to %s in version %s, and served are %s: Cluster API can't read the object by it", r.Kind, gv.Version, strings.Join(kind.Served(), ", ")),
		Fix:     "name a version that is served"})
}

var templateClusterName = Check{
	ID: "template-cluster-name", Group: Templates, Severity: Warning,
	Title:  "The objects of a template name its Cluster",
	Source: sourceClusterLabel,
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			clusters := t.clusterNames()
			if len(clusters) == 0 {
				continue
			}
			for _, o := range t.objects {
				t.reportClusterName(o, clusters, report)
			}
		}
	},
}

// clusterNames returns the names of the Clusters of a template.
func (t *template) clusterNames() []string {
	var names []string
	for _, o := range t.objects {
		if o.GroupVersionKind().GroupKind() == clusterv1.GroupVersion.WithKind("Cluster").GroupKind() {
			names = append(names, o.GetName())
		}
	}
	return names
}

// reportClusterName looks at the fields and labels of an object of the core that name a Cluster.
func (t *template) reportClusterName(o object, clusters []string, report Report) {
	paths := [][]any{{"metadata", "labels", clusterv1.ClusterNameLabel}}
	if o.GroupVersionKind().Group == clusterv1.GroupVersion.Group {
		paths = append(paths, []any{"spec", "clusterName"}, []any{"spec", "template", "spec", "clusterName"},
			[]any{"spec", "selector", "matchLabels", clusterv1.ClusterNameLabel},
			[]any{"spec", "template", "metadata", "labels", clusterv1.ClusterNameLabel})
	}
	for _, path := range paths {
		fields := make([]string, 0, len(path))
		for _, step := range path {
			fields = append(fields, step.(string))
		}
		name, found, err := unstructured.NestedString(o.Object, fields...)
		if err != nil || !found || slices.Contains(clusters, name) || t.guessedAt(o, schemas.Problem{Path: path}) {
			continue
		}
		report(Finding{Place: o.place(path...), Cause: t.Name + " " + name,
			Message: fmt.Sprintf("it is for the cluster %q, and the template's is %q: Cluster API does not find the one from the other", name, strings.Join(clusters, `", "`)),
			Fix:     "write ${CLUSTER_NAME}, as the Cluster does"})
	}
}
