package move

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Risk is a property of an object for which a move loses it, moves too much, or does not start.
type Risk struct {
	// Rule is the ID of the rule, which is the ID of its check.
	Rule   string
	Object *Object
	// Path is the field, empty for the object as a whole.
	Path []any
	// Message says what is wrong with which consequence, and Fix what to do.
	Message, Fix string
}

// finder finds the risks of all rules in a graph.
type finder struct {
	*Graph
	risks []Risk
}

// rules are all rules. A new one is a method and a line here.
var rules = []func(*finder){
	(*finder).orphans, (*finder).danglingOwners, (*finder).cycles, (*finder).ownersOfReferences,
	(*finder).identities, (*finder).secrets, (*finder).classes, (*finder).stopping,
}

// Risks returns the risks of moving the objects of the graph, in the order of objects and rules. Rules about references
// need worlds with whole objects.
func (g *Graph) Risks() []Risk {
	f := &finder{Graph: g}
	for _, look := range rules {
		look(f)
	}
	slices.SortStableFunc(f.risks, func(a, b Risk) int {
		return cmp.Or(compareObjects(a.Object.Object, b.Object.Object), strings.Compare(a.Rule, b.Rule))
	})
	return f.risks
}

func (f *finder) add(rule string, o *Object, path []any, fix, format string, args ...any) {
	f.risks = append(f.risks, Risk{Rule: rule, Object: o, Path: path, Fix: fix, Message: fmt.Sprintf(format, args...)})
}

// isOther reports whether a node is a ConfigMap, a Secret or clusterctl's inventory, which a move reads but which are
// rarely relevant.
func (n *Node) isOther() bool {
	return n.kind == secretKind || n.kind == configMapKind || n.kind == providerKind
}

// orphans finds objects without a link to a moved object. Of a tree of them, it reports the root.
func (f *finder) orphans() {
	for _, n := range f.Nodes {
		if n.Virtual || n.moves() || n.isGlobal || n.isOther() || len(n.Owners) > 0 || f.world.Kinds[n.kind].Unknown {
			continue
		}
		f.add("orphan", n.Object, nil,
			"let its controller make an object that leads to the Cluster its owner, or label it or its CRD "+clusterctlv1.ClusterctlMoveLabel,
			"it has no link to a Cluster, a ClusterResourceSet or a move hierarchy: `clusterctl move` leaves it behind")
	}
}

// danglingOwners finds owners that a move does not read.
func (f *finder) danglingOwners() {
	for _, n := range f.Nodes {
		if n.Virtual || n.isOther() && !n.moves() {
			continue
		}
		for _, owner := range n.Owners {
			if !owner.Virtual {
				continue
			}
			if o := f.unread[owner.Object.UID]; o != nil && o.Namespace != n.Object.Namespace && o.Namespace != "" {
				continue // in another namespace: owner-scope reports it
			}
			result := "`clusterctl move` leaves it behind, with all objects that it owns"
			if owner.kind == clusterKind || owner.kind == classKind {
				result = "`clusterctl move` fails to get it, and moves nothing of the namespace"
			}
			f.add("dangling-owner", n.Object, []any{"metadata", "ownerReferences"}, "remove the owner reference, or let clusterctl install its kind",
				"its owner %s %s: %s", f.name(owner), f.absent(owner, n), result)
		}
	}
}

// cycles finds cycles of owners, and reports each at its first object.
func (f *finder) cycles() {
	reported := map[*Node]bool{}
	for _, n := range f.Nodes {
		if n.cycle == nil || reported[n.cycle[0]] {
			continue
		}
		reported[n.cycle[0]] = true
		first := slices.MinFunc(n.cycle, func(a, b *Node) int { return compareObjects(a.Object.Object, b.Object.Object) })
		f.add("owner-cycle", first.Object, []any{"metadata", "ownerReferences"}, "remove the owner reference that closes the cycle",
			"owner references form a cycle, so none of these objects can be created first: %s: `clusterctl move` leaves them and their dependents behind", cycleText(n.cycle))
	}
}

// ownersOfReferences finds owner references that Kubernetes does not allow, or that clusterctl can't set.
func (f *finder) ownersOfReferences() {
	for _, n := range f.Nodes {
		if n.Virtual {
			continue
		}
		controllers := 0
		for i, r := range n.Object.ownOwners() {
			path := []any{"metadata", "ownerReferences", i}
			if ptr.Deref(r.Controller, false) {
				controllers++
			}
			if owner := f.ownerOf(n.Object, r); owner != nil && owner.Namespace != "" && owner.Namespace != n.Object.Namespace {
				what := "it is in another namespace than"
				if n.Object.Namespace == "" {
					what = "it is cluster-scoped, unlike"
				}
				f.add("owner-scope", n.Object, path, "use a label or a field instead of an owner reference",
					"%s its owner %s: Kubernetes treats the owner as missing and may delete the object, and `clusterctl move` does not follow the reference", what, owner.Object)
			}
			gvk := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
			kind, known := f.world.Kinds[gvk.GroupKind()]
			if known && len(kind.Served) > 0 && !slices.Contains(kind.Served, gvk.Version) {
				f.add("owner-version", n.Object, append(path, "apiVersion"), "let its controller set the reference again with a version that is served",
					"it names its owner %s %s as %s, but the served versions are %s: clusterctl may read the owner in that version, and fail", r.Kind, r.Name, r.APIVersion, strings.Join(kind.Served, ", "))
			}
		}
		if controllers > 1 {
			f.add("two-controllers", n.Object, []any{"metadata", "ownerReferences"}, "keep controller: true for one owner only",
				"%d owners are its controller, but Kubernetes allows only one: the target of a move refuses the object", controllers)
		}
	}
}

// ownerOf returns the object of an owner reference, or nil.
func (f *finder) ownerOf(o *Object, reference metav1.OwnerReference) *Object {
	if n := f.owner(o, reference); !n.Virtual {
		return n.Object
	}
	return f.unread[reference.UID]
}

// identities finds cluster-scoped objects that are not moved, and to which moved objects refer.
func (f *finder) identities() {
	left := map[string][]*Node{}
	for _, n := range f.Nodes {
		if !n.Virtual && n.isGlobal && !n.moves() {
			left[n.Object.Name] = append(left[n.Object.Name], n)
		}
	}
	reported := map[*Node]bool{}
	for _, from := range f.Nodes {
		if from.Virtual || !from.moves() || len(left) == 0 {
			continue
		}
		for _, r := range allReferences(from.Object.Content["spec"]) {
			for _, n := range left[r.Name] {
				if reported[n] || !r.fits(n.kind, from.kind.Group) {
					continue
				}
				reported[n] = true
				f.add("identity-move", n.Object, nil, "label its CRD "+clusterctlv1.ClusterctlMoveHierarchyLabel,
					"%s refers to it, it is cluster-scoped, and neither it nor its CRD has a label to move it: `clusterctl move` leaves it behind", from.Object)
			}
		}
	}
}

// secrets finds Secrets that are not moved, and that moved objects name.
func (f *finder) secrets() {
	for n, from := range f.namedSecrets() {
		f.add("secret-unlinked", n.Object, nil, fmt.Sprintf("label it %s: \"\", or let a controller own it", clusterctlv1.ClusterctlMoveLabel),
			"%s names it, but it has no link to a moved object: `clusterctl move` leaves it behind", from.Object)
	}
}

// namedSecrets returns the Secrets that stay and that moved objects name, each with the first object that names it. A
// name without a namespace means the object's namespace. For a cluster-scoped object it means the namespaces of
// infrastructure providers, because clusterctl looks for the Secrets of such objects there.
func (g *Graph) namedSecrets() map[*Node]*Node {
	left := map[types.NamespacedName]*Node{}
	providers := sets.List(g.world.providerNamespaces())
	for _, n := range g.Nodes {
		if !n.Virtual && n.kind == secretKind && !n.moves() {
			left[n.name()] = n
		}
	}
	named := map[*Node]*Node{}
	for _, from := range g.Nodes {
		if from.Virtual || !from.moves() || isOfKubernetes(from.kind.Group) || len(left) == 0 {
			continue
		}
		for _, ref := range secretsOf(from.Object.Content["spec"]) {
			namespaces := []string{cmp.Or(ref.Namespace, from.Object.Namespace)}
			if namespaces[0] == "" {
				namespaces = providers
			}
			for _, namespace := range namespaces {
				if n := left[types.NamespacedName{Namespace: namespace, Name: ref.Name}]; n != nil && named[n] == nil {
					named[n] = from
				}
			}
		}
	}
	return named
}

// secretsOf returns the names of Secrets in fields below a value: in a reference with the kind Secret, in the name of a
// reference whose field is called after Secrets, and in a text whose field ends in SecretName. A reference may have a
// namespace.
func secretsOf(spec any) []types.NamespacedName {
	var secrets []types.NamespacedName
	manifest.Walk(spec, []any{"spec"}, func(path []any, value any) bool {
		field := strings.ToLower(manifest.FieldName(path))
		switch v := value.(type) {
		case map[string]any:
			r := manifest.ReferenceOf(v)
			if _, hasKind := v["kind"].(string); r.Name != "" && (r.Kind == secretKind.Kind || !hasKind && strings.Contains(field, "secret")) {
				secrets = append(secrets, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
			}
		case string:
			if _, isItem := path[len(path)-1].(int); !isItem && strings.HasSuffix(field, "secretname") {
				secrets = append(secrets, types.NamespacedName{Name: v})
			}
		}
		return true
	})
	return secrets
}

// classes finds Clusters with classes of other namespaces, which are copied, not moved.
func (f *finder) classes() {
	for _, n := range f.Nodes {
		if n.cluster == nil || !n.cluster.Spec.Topology.IsDefined() {
			continue
		}
		if class := n.cluster.GetClassKey(); class.Namespace != n.Object.Namespace {
			f.add("class-in-other-namespace", n.Object, []any{"spec", "topology", "classRef", "namespace"}, "move the namespaces of all Clusters of the class, and delete the class in the source by hand",
				"its ClusterClass is %s: `clusterctl move` copies the class and its templates to the target and also leaves them in the source, and later changes to one do not reach the other", class)
		}
	}
}

// stopping finds the obstacles to a move: pauses, and the annotation that blocks it.
func (f *finder) stopping() {
	for _, n := range f.Nodes {
		if n.Virtual {
			continue
		}
		if _, blocks := n.Object.Annotations[clusterctlv1.BlockMoveAnnotation]; blocks && n.moves() {
			f.add("move-blocked", n.Object, []any{"metadata", "annotations", clusterctlv1.BlockMoveAnnotation}, "let its controller remove the annotation once it has stopped its work",
				"the annotation blocks the move of the whole namespace: clusterctl waits two minutes for its removal, and then fails")
		}
		const fix = "unpause it before the move: clusterctl pauses it by itself"
		const message = "it is paused, so clusterctl refuses to move the namespace"
		switch {
		case (n.cluster != nil || n.class != nil) && annotations.HasPaused(n.Object.unstructured()):
			f.add("not-paused", n.Object, []any{"metadata", "annotations", clusterv1.PausedAnnotation}, fix, message)
		case n.cluster != nil && ptr.Deref(n.cluster.Spec.Paused, false):
			f.add("not-paused", n.Object, []any{"spec", "paused"}, fix, message)
		}
	}
}
