package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

// Rendered returns the world for a flavor of a release, "" being the default one: rendered with these values, its
// topologies expanded, with the owner references that Cluster API's controllers set. Kinds of other providers come from
// the releases with. It contains no objects that controllers create later, which their creators own. The error is
// clusterctl's, or that of a release's CRDs.
func Rendered(ctx context.Context, r *release.Release, flavor string, values map[string]string, with ...*release.Release) (*World, error) {
	rendered, err := templates.Render(ctx, r, flavor, values)
	if err != nil {
		return nil, err
	}
	kinds, err := schemas.For(append([]*release.Release{r}, with...)...)
	if err != nil {
		return nil, err
	}
	return OfTemplate(ctx, fmt.Sprintf("%s of %s", release.ClusterTemplateFile(flavor), r), kinds, rendered.Objects), nil
}

// OfTemplate returns the world for the objects of a rendered template and of the classes that it names, as Rendered
// does. It keeps existing owner references.
func OfTemplate(ctx context.Context, source string, kinds *schemas.Kinds, objects []unstructured.Unstructured) *World {
	w := &World{Source: source, Desired: true}
	expanded, err := topology.Expand(ctx, kinds, objects)
	switch {
	case err == nil:
		objects = replaced(objects, expanded)
	case !errors.Is(err, topology.ErrUnmanaged):
		w.problem("", "the topology can't be expanded, so what Cluster API makes of it is missing: %v", err)
	}
	w.setKindsOfReleases(kinds)
	for i := range objects {
		if kind, ok := w.Kinds[objects[i].GroupVersionKind().GroupKind()]; ok && kind.ClusterScoped {
			objects[i].SetNamespace("") // clusterctl sets one on objects of unknown kinds
		}
		o := FromUnstructured(&objects[i], manifest.Place{})
		if _, known := w.Kinds[o.GroupKind()]; !known && !isOfKubernetes(o.GroupKind().Group) {
			w.Kinds[o.GroupKind()] = Kind{GroupKind: o.GroupKind(), Unknown: true}
			w.assume("%s belongs to a provider whose release is not given: it is treated as a namespaced kind that clusterctl installed (name the release by --with)", o.GroupKind())
		}
		w.Objects = append(w.Objects, o)
	}
	w.own()
	return w
}

// replaced returns objects, in which objects of a second list replace those with the same names.
func replaced(objects, with []unstructured.Unstructured) []unstructured.Unstructured {
	name := func(o unstructured.Unstructured) key {
		return key{GroupKind: o.GroupVersionKind().GroupKind(), namespace: o.GetNamespace(), name: o.GetName()}
	}
	kept := slices.DeleteFunc(slices.Clone(objects), func(o unstructured.Unstructured) bool {
		return slices.ContainsFunc(with, func(w unstructured.Unstructured) bool { return name(w) == name(o) })
	})
	return append(kept, with...)
}

// setKindsOfReleases sets the kinds to those of releases and of the core. clusterctl labels all of them when it installs
// them.
func (w *World) setKindsOfReleases(kinds *schemas.Kinds) {
	w.Kinds = KindsOf()
	for _, kind := range kinds.All() {
		known := newKind(kind.GroupKind, kind.Scope == apiextensionsv1.ClusterScoped, kind.Labels)
		known.Served = kind.Served()
		w.Kinds[kind.GroupKind] = known
	}
}

// ownership is a rule of a controller: the objects that fields of a kind refer to get an owner.
type ownership struct {
	// kind is the kind of the objects with the fields. If it is empty, the kinds are those that the controlPlaneRef of
	// a Cluster names.
	kind schema.GroupKind
	// byCluster means that the Cluster becomes the owner, instead of the referring object.
	byCluster bool
	// fields are paths of references; a step that is a list stands for all of its items.
	fields [][]string
}

// ownerships are the rules of Cluster API's controllers. The first finds the Clusters of control planes for the others.
//
// Source: Cluster API book, "Owner references" (reference/owner_references), and the provider contracts.
var ownerships = []ownership{
	{kind: clusterKind, fields: [][]string{{"spec", "infrastructureRef"}, {"spec", "controlPlaneRef"}}},
	{kind: machineKind, fields: [][]string{{"spec", "infrastructureRef"}, {"spec", "bootstrap", "configRef"}}},
	{kind: coreKind("MachineDeployment"), byCluster: true, fields: templateFields},
	{kind: coreKind("MachineSet"), byCluster: true, fields: templateFields},
	{kind: coreKind("MachinePool"), fields: templateFields},
	{byCluster: true, fields: [][]string{{"spec", "machineTemplate", "spec", "infrastructureRef"}, {"spec", "machineTemplate", "infrastructureRef"}}},
	{kind: resourceSetKind, fields: [][]string{{"spec", "resources"}}},
	{kind: classKind, fields: [][]string{
		{"spec", "infrastructure"}, {"spec", "controlPlane"}, {"spec", "controlPlane", "machineInfrastructure"},
		{"spec", "workers", "machineDeployments", "infrastructure"}, {"spec", "workers", "machineDeployments", "bootstrap"},
		{"spec", "workers", "machineDeployments", "template", "infrastructure"}, {"spec", "workers", "machineDeployments", "template", "bootstrap"},
		{"spec", "workers", "machinePools", "infrastructure"}, {"spec", "workers", "machinePools", "bootstrap"},
		{"spec", "workers", "machinePools", "template", "infrastructure"}, {"spec", "workers", "machinePools", "template", "bootstrap"},
	}},
}

var templateFields = [][]string{{"spec", "template", "spec", "infrastructureRef"}, {"spec", "template", "spec", "bootstrap", "configRef"}}

func coreKind(kind string) schema.GroupKind { return clusterv1.GroupVersion.WithKind(kind).GroupKind() }

// ownedByCluster are the kinds whose objects the Cluster in spec.clusterName owns.
var ownedByCluster = []schema.GroupKind{
	machineKind, coreKind("MachineDeployment"), coreKind("MachineSet"), coreKind("MachinePool"), coreKind("MachineHealthCheck"),
}

// own sets the owner references that controllers would set.
func (w *World) own() {
	at := map[key]*Object{}
	for _, o := range w.Objects {
		at[o.key()] = o
	}
	controlPlanes := map[schema.GroupKind]bool{}
	for _, o := range w.Objects {
		gk := o.GroupKind()
		if gk == clusterKind {
			controlPlanes[manifest.ReferenceOf(manifest.Map(o.Content, "spec", "controlPlaneRef")).GroupKind()] = true
		}
		if cluster := at[o.clusterKey(o.text("spec", "clusterName"))]; cluster != nil && slices.Contains(ownedByCluster, gk) {
			o.addOwner(cluster)
		}
	}
	for _, rule := range ownerships {
		for _, o := range w.Objects {
			if gk := o.GroupKind(); rule.kind == gk || rule.kind.Kind == "" && controlPlanes[gk] {
				rule.apply(o, at)
			}
		}
	}
	w.ownRest(at)
}

// apply sets the owners of what the fields of an object refer to.
func (r ownership) apply(o *Object, at map[key]*Object) {
	owner := o
	if r.byCluster {
		owner = at[o.clusterKey(o.clusterName())]
	}
	for _, path := range r.fields {
		for _, to := range references(o.Content, path) {
			owned := at[key{GroupKind: to.GroupKind(), namespace: o.Namespace, name: to.Name}]
			if owned != nil && owner != nil {
				owned.addOwner(owner)
			}
		}
	}
}

// clusterKey names a Cluster in the namespace of the object.
func (o *Object) clusterKey(name string) key {
	return key{GroupKind: clusterKind, namespace: o.Namespace, name: name}
}

// clusterName returns the name of the Cluster of an object, from its field or its owner.
func (o *Object) clusterName() string {
	if name := o.text("spec", "clusterName"); name != "" {
		return name
	}
	for _, owner := range o.Owners {
		if schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() == clusterKind {
			return owner.Name
		}
	}
	return ""
}

// ownRest sets owners of the providers' objects that have none: the objects that refer to them, or the Cluster that they
// name. Providers' controllers must set these owners, but a release does not show whether they do.
func (w *World) ownRest(at map[key]*Object) {
	free := map[string][]*Object{} // objects without owners, by name
	for _, o := range w.Objects {
		gk := o.GroupKind()
		if len(o.Owners) == 0 && o.Namespace != "" && !isOfKubernetes(gk.Group) && !hierarchiesOfCore[gk] {
			free[o.Name] = append(free[o.Name], o)
		}
	}
	for _, from := range w.Objects {
		if isOfKubernetes(from.GroupKind().Group) {
			continue
		}
		for _, r := range allReferences(from.Content["spec"]) {
			for _, o := range free[r.Name] {
				if o == from || o.Namespace != from.Namespace || len(o.Owners) > 0 || !r.fits(o.GroupKind(), from.GroupKind().Group) {
					continue
				}
				o.addOwner(from)
				w.assume("%s refers to %s: the plan assumes that its provider's controller makes it the owner", from.Object, o.Object)
			}
		}
	}
	for _, objects := range free {
		for _, o := range objects {
			cluster := at[o.clusterKey(o.text("spec", "clusterName"))]
			if cluster != nil && len(o.Owners) == 0 {
				o.addOwner(cluster)
				w.assume("%s names %s: its provider's controller is taken to make that the owner", o.Object, cluster.Object)
			}
		}
	}
	slices.Sort(w.Assumptions)
}

// addOwner adds an owner reference, once.
func (o *Object) addOwner(owner *Object) {
	r := metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	if !slices.Contains(o.Owners, r) {
		o.Owners = append(o.Owners, r)
		o.addedOwners++
	}
}

// references returns the references at a path; a ClusterClass has them in templateRef or ref below.
func references(value any, path []string) []manifest.Reference {
	if items, ok := value.([]any); ok {
		var all []manifest.Reference
		for _, item := range items {
			all = append(all, references(item, path)...)
		}
		return all
	}
	m, ok := value.(map[string]any)
	switch {
	case !ok:
		return nil
	case len(path) > 0:
		return references(m[path[0]], path[1:])
	}
	for _, below := range []string{"templateRef", "ref"} {
		if r, ok := m[below].(map[string]any); ok {
			return []manifest.Reference{manifest.ReferenceOf(r)}
		}
	}
	return []manifest.Reference{manifest.ReferenceOf(m)}
}

// guess is a map below a spec that may be a reference.
type guess struct {
	manifest.Reference
	// field is the name of the field.
	field string
}

// allReferences returns the possible references below a value: maps with a name.
func allReferences(value any) []guess {
	var guesses []guess
	manifest.Walk(value, nil, func(path []any, value any) bool {
		fields, _ := value.(map[string]any)
		if manifest.Text(fields, "name") != "" {
			guesses = append(guesses, guess{manifest.ReferenceOf(fields), manifest.FieldName(path)})
		}
		return true
	})
	return guesses
}

// fits reports whether the reference may name an object of a kind. In a reference without a kind, the name of the field
// must contain the kind: dataTemplate, rosaRoleConfigRef.
func (g guess) fits(gk schema.GroupKind, ownGroup string) bool {
	if g.Group != "" && g.Group != gk.Group || g.Group == "" && gk.Group != ownGroup {
		return false
	}
	if g.Kind != "" {
		return g.Kind == gk.Kind
	}
	stem := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(g.field, "Reference"), "Ref"))
	return stem != "" && strings.HasSuffix(strings.ToLower(gk.Kind), stem)
}
