package move

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

// Node is an object that a move reads, or one that is only known as the owner of another.
type Node struct {
	// Object is the object; for a virtual node, only the name in its owner reference.
	Object *Object
	// Virtual means that the object was named as an owner but not read: it does not exist, or a move does not read its
	// kind or namespace.
	Virtual bool
	// Owners have references in the object. SoftOwners are those that clusterctl adds.
	Owners, SoftOwners []*Node
	// Dependents are the nodes whose owners or soft owners have this one.
	Dependents []*Node

	kind schema.GroupKind
	// The following fields have the names of clusterctl's.
	forceMove, forceMoveHierarchy, isGlobal bool
	// byCRD means that forceMove and forceMoveHierarchy come from the kind, not from the object's labels.
	byCRD bool
	// tenant is the nearest object with a move hierarchy to which the node belongs, and via the owner
	// on the way there; global likewise is the cluster-scoped one. nil is none.
	tenant, via, global *Node
	// keptFor is the ClusterClass because of which the node is not deleted, clusterctl's shouldNotDelete; nil is none.
	keptFor *Node
	// cluster and class are the object as a Cluster or a ClusterClass.
	cluster *clusterv1.Cluster
	class   *clusterv1.ClusterClass
	// group is the node's group in the move sequence, from 1; 0 means none.
	group int
	// cycle is the cycle of owners because of which the node has no group, or nil.
	cycle []*Node
	// stops are the reasons why the move ends because of the node.
	stops []string
}

// moves reports whether clusterctl wants to move the node: it belongs to a hierarchy, or has a label.
func (n *Node) moves() bool { return n.tenant != nil || n.forceMove }

// Graph is clusterctl's knowledge of the objects of a namespace after discovery.
type Graph struct {
	// Namespace is the moved namespace; "" means all.
	Namespace string
	// Nodes are in an order that depends only on the objects.
	Nodes []*Node
	// Stops end a move before it has moved any object.
	Stops []Stop

	world *World
	byUID map[types.UID]*Node
	byKey map[key]*Object
	// unread contains the objects that a move does not read.
	unread map[types.UID]*Object
	// usedElsewhere contains the classes of Clusters of other namespaces.
	usedElsewhere sets.Set[types.NamespacedName]
}

// Stop is a reason for clusterctl to end with an error before it moves any object.
type Stop struct {
	Object manifest.Object `json:"object"`
	Why    string          `json:"why"`
	// DryRun and ToDirectory mean that it also ends `clusterctl move` with the flag of that name.
	DryRun      bool `json:"dryRun"`
	ToDirectory bool `json:"toDirectory"`
}

// The kinds of moves that a reason to stop ends, each with those before it.
const (
	onlyMoves = iota
	backups   // --to-directory
	dryRuns
)

// stop adds a reason to stop.
func (g *Graph) stop(n *Node, ends int, format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	n.stops = append(n.stops, why)
	g.Stops = append(g.Stops, Stop{Object: n.Object.Object, DryRun: ends >= dryRuns, ToDirectory: ends >= backups, Why: why})
}

// Discover builds the graph of a namespace as clusterctl's discovery does, "" being all namespaces. Objects that don't
// fit the type of their kind become problems of the world.
func Discover(ctx context.Context, world *World, namespace string) *Graph {
	g := &Graph{
		Namespace: namespace, world: world, usedElsewhere: sets.New[types.NamespacedName](),
		byUID: make(map[types.UID]*Node, len(world.Objects)), byKey: make(map[key]*Object, len(world.Objects)),
	}
	for _, o := range world.Objects {
		g.byKey[o.key()] = o
	}
	sorted := slices.SortedFunc(slices.Values(world.Objects), func(a, b *Object) int { return compareObjects(a.Object, b.Object) })
	providers := world.providerNamespaces()
	for _, o := range sorted {
		if g.reads(o, providers) {
			g.add(ctx, o)
		} else if namespace != "" && o.Namespace != namespace && o.GroupKind() == clusterKind {
			if cluster, err := topology.Cluster(ctx, o.unstructured()); err == nil {
				g.usedElsewhere.Insert(cluster.GetClassKey())
			} else {
				world.problem(o.String(), "it can't be read: %v", err)
			}
		}
	}
	g.addClasses(ctx)
	g.setUnread()
	g.setSoftOwners()
	g.link()
	g.setTenants()
	g.setKeptFor()
	g.setSequence()
	g.setCycles()
	g.findStops()
	return g
}

// reads reports whether discovery lists an object.
func (g *Graph) reads(o *Object, providers sets.Set[string]) bool {
	kind, known := g.world.Kinds[o.GroupKind()]
	switch {
	case !known:
		return false
	case kind.ClusterScoped, g.Namespace == "", o.Namespace == g.Namespace:
		return true
	}
	return kind.GroupKind == secretKind && providers.Has(o.Namespace)
}

// uid returns an object's UID, or its replacement if the source has none.
func uid(o *Object) types.UID {
	if o.UID != "" {
		return o.UID
	}
	return uidOfName(o.key())
}

// uidOfName replaces the UID of an object that is known only by its name. UIDs contain no spaces.
func uidOfName(k key) types.UID {
	return types.UID(k.Group + " " + k.Kind + " " + k.namespace + " " + k.name)
}

// add adds an object that was read.
func (g *Graph) add(ctx context.Context, o *Object) *Node {
	n := g.byUID[uid(o)]
	if n == nil {
		n = &Node{kind: o.GroupKind()}
		g.byUID[uid(o)] = n
		g.Nodes = append(g.Nodes, n)
	} else if !n.Virtual {
		return n // a class and its templates may be named twice
	}
	n.Object, n.Virtual, n.kind = o, false, o.GroupKind()
	g.setLabels(n)
	if err := n.readContent(ctx); err != nil {
		g.world.problem(o.String(), "it can't be read: %v", err)
	}
	for _, r := range o.Owners {
		owner := g.owner(o, r)
		if !slices.Contains(n.Owners, owner) {
			n.Owners = append(n.Owners, owner)
		}
	}
	return n
}

// owner returns the node of an owner reference of an object, a virtual one if it was not read yet.
func (g *Graph) owner(o *Object, reference metav1.OwnerReference) *Node {
	id := reference.UID
	gk := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind()
	if _, known := g.byUID[id]; id == "" || !known {
		// A source without UIDs: owners are in the namespace of the object, or cluster-scoped.
		for _, namespace := range []string{o.Namespace, ""} {
			if named, ok := g.byKey[key{GroupKind: gk, namespace: namespace, name: reference.Name}]; ok && (id == "" || named.UID == "") {
				id = uid(named)
				break
			}
		}
	}
	if id == "" {
		id = uidOfName(key{GroupKind: gk, namespace: o.Namespace, name: reference.Name})
	}
	n := g.byUID[id]
	if n == nil {
		n = &Node{
			Virtual: true, kind: gk,
			Object: &Object{UID: id, Object: manifest.Object{APIVersion: reference.APIVersion, Kind: reference.Kind, Name: reference.Name}},
		}
		g.byUID[id] = n
		g.Nodes = append(g.Nodes, n)
	}
	return n
}

// setLabels records the move labels of an object and of its kind.
func (g *Graph) setLabels(n *Node) {
	_, n.forceMove = n.Object.Labels[clusterctlv1.ClusterctlMoveLabel]
	_, n.forceMoveHierarchy = n.Object.Labels[clusterctlv1.ClusterctlMoveHierarchyLabel]
	n.byCRD = !n.forceMove && !n.forceMoveHierarchy
	kind := g.world.Kinds[n.kind]
	n.forceMove = n.forceMove || kind.Move
	n.forceMoveHierarchy = n.forceMoveHierarchy || kind.MoveHierarchy
	n.isGlobal = kind.ClusterScoped
}

// readContent reads the fields of Clusters and ClusterClasses that the rules need.
func (n *Node) readContent(ctx context.Context) error {
	var err error
	switch n.kind {
	case clusterKind:
		n.cluster, err = topology.Cluster(ctx, n.Object.unstructured())
	case classKind:
		n.class, err = topology.Class(ctx, n.Object.unstructured())
	}
	return err
}

// addClasses adds the ClusterClasses in other namespaces that Clusters name, with the templates that they refer to, of
// any kind. clusterctl gets each by its name, and ends if one is missing.
func (g *Graph) addClasses(ctx context.Context) {
	seen := sets.New[types.NamespacedName]()
	for _, n := range slices.Clone(g.Nodes) {
		if n.cluster == nil || !n.cluster.Spec.Topology.IsDefined() {
			continue
		}
		class := n.cluster.GetClassKey()
		if class.Namespace == g.Namespace || seen.Has(class) {
			continue
		}
		seen.Insert(class)
		classNode := g.fetch(ctx, n, key{GroupKind: classKind, namespace: class.Namespace, name: class.Name}, "which it names as its class")
		if classNode == nil || classNode.class == nil {
			continue
		}
		for _, r := range templatesOf(classNode.class) {
			k := key{GroupKind: r.GroupVersionKind().GroupKind(), namespace: class.Namespace, name: r.Name}
			g.fetch(ctx, classNode, k, "which it refers to")
		}
	}
}

// fetch adds the object of a reference.
func (g *Graph) fetch(ctx context.Context, from *Node, k key, why string) *Node {
	if o, ok := g.byKey[k]; ok {
		return g.add(ctx, o)
	}
	g.stop(from, dryRuns, "clusterctl reads the %s %s/%s, %s, but that object does not exist", k.Kind, k.namespace, k.name, why)
	return nil
}

// templatesOf returns the references of a class that clusterctl follows.
func templatesOf(class *clusterv1.ClusterClass) []clusterv1.ClusterClassTemplateReference {
	references := []clusterv1.ClusterClassTemplateReference{
		class.Spec.Infrastructure.TemplateRef, class.Spec.ControlPlane.TemplateRef, class.Spec.ControlPlane.MachineInfrastructure.TemplateRef,
	}
	for _, worker := range class.Spec.Workers.MachineDeployments {
		references = append(references, worker.Infrastructure.TemplateRef, worker.Bootstrap.TemplateRef)
	}
	for _, worker := range class.Spec.Workers.MachinePools {
		references = append(references, worker.Infrastructure.TemplateRef, worker.Bootstrap.TemplateRef)
	}
	return slices.DeleteFunc(references, func(r clusterv1.ClusterClassTemplateReference) bool { return !r.IsDefined() })
}
