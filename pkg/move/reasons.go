package move

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// reasons determines why objects are not moved.
type reasons struct {
	g *Graph
	// byUID contains the objects that a move does not read.
	byUID map[types.UID]*Object
	// cycle is the cycle of owners that each node is in or belongs to, once it was looked for.
	cycle map[*Node][]*Node
}

func newReasons(g *Graph) *reasons {
	r := &reasons{g: g, byUID: map[types.UID]*Object{}, cycle: map[*Node][]*Node{}}
	for _, o := range g.world.Objects {
		if n := g.byUID[uid(o)]; n == nil || n.Virtual {
			r.byUID[uid(o)] = o
		}
	}
	return r
}

// stuck returns why an object that clusterctl wants to move is in no group: one of its owners is not read, is not moved
// itself, or is in a cycle.
func (r *reasons) stuck(n *Node) string {
	for _, owner := range slices.Concat(n.Owners, n.SoftOwners) {
		switch {
		case owner.group > 0:
		case owner.Virtual:
			return fmt.Sprintf("its owner %s %s, so clusterctl never creates it", r.name(owner), r.absent(owner, n))
		case !owner.moves():
			return fmt.Sprintf("its owner %s is not moved, because it has no link to a moved object, so clusterctl never creates it", owner.Object)
		}
	}
	if cycle := r.cycleOf(n); cycle != nil {
		if slices.Contains(cycle, n) {
			return "it is in a cycle of owners, so none of them can be created first: " + cycleText(cycle)
		}
		return "its owners are in a cycle, so none of them can be created first: " + cycleText(cycle)
	}
	return "an indirect owner is not moved, so clusterctl never creates it: " + r.chain(n)
}

// cycleText names the nodes of a cycle, the first of them at both ends.
func cycleText(cycle []*Node) string {
	var text strings.Builder
	for _, n := range cycle {
		text.WriteString(n.Object.String() + " -> ")
	}
	return text.String() + cycle[0].Object.String()
}

// cycleOf follows the first stuck owner until a node repeats, and returns the nodes from there on; nil without a cycle.
// The result is kept for all nodes on the way.
func (r *reasons) cycleOf(n *Node) []*Node {
	var path []*Node
	at := map[*Node]int{}
	var cycle []*Node
	for n != nil {
		if known, ok := r.cycle[n]; ok {
			cycle = known
			break
		}
		if i, ok := at[n]; ok {
			cycle = path[i:]
			break
		}
		at[n] = len(path)
		path = append(path, n)
		n = stuckOwner(n)
	}
	for _, p := range path {
		r.cycle[p] = cycle
	}
	return cycle
}

// stuckOwner returns the first owner that is moved and in no group, or nil.
func stuckOwner(n *Node) *Node {
	for _, owner := range slices.Concat(n.Owners, n.SoftOwners) {
		if owner.group == 0 && owner.moves() {
			return owner
		}
	}
	return nil
}

// chain names the owners up to the cause, at most five of them.
func (r *reasons) chain(n *Node) string {
	var names []string
	for owner := stuckOwner(n); owner != nil; owner = stuckOwner(owner) {
		if len(names) == 5 {
			return strings.Join(append(names, "..."), " <- ")
		}
		names = append(names, owner.Object.String())
	}
	return strings.Join(names, " <- ")
}

// name names a virtual owner.
func (r *reasons) name(n *Node) string {
	if o, ok := r.byUID[n.Object.UID]; ok {
		return o.String()
	}
	return n.Object.String()
}

// absent returns why a move does not read an owner.
func (r *reasons) absent(owner, of *Node) string {
	o, known := r.byUID[owner.Object.UID]
	_, read := r.g.world.Kinds[owner.kind]
	switch {
	case known && !read, !known && !read && !isOfKubernetes(owner.kind.Group):
		return fmt.Sprintf("is of a kind that clusterctl does not read: its CRD has no label %s", clusterctlv1.ClusterctlLabel)
	case known && o.Namespace != of.Object.Namespace:
		return "is in another namespace, which Kubernetes does not allow for owners"
	case !read:
		return "is of a kind that clusterctl does not read"
	}
	return fmt.Sprintf("does not exist (UID %s)", owner.Object.UID)
}

// unlinked returns why clusterctl does not want to move an object.
func (r *reasons) unlinked(n *Node) string {
	if n.kind == providerKind {
		return "it is an entry of clusterctl's list of providers: `clusterctl init` creates those of the target"
	}
	if r.g.world.Kinds[n.kind].Unknown {
		return "it has no link to a moved object, and its CRD, whose labels decide, was not read"
	}
	if len(n.Owners) == 0 {
		why := "it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"
		if n.isGlobal {
			why = "it is cluster-scoped, and neither it nor its CRD has a label to move it"
		}
		return why
	}
	owner := n.Owners[0]
	if owner.Virtual {
		return fmt.Sprintf("its owner %s %s, and it has no other link to a moved object", r.name(owner), r.absent(owner, n))
	}
	return fmt.Sprintf("its owner %s is not moved either", owner.Object)
}

// notRead returns the objects that a move does not read although one of their owners is moved: their kinds lack
// clusterctl's label. Only some sources contain such objects.
func (r *reasons) notRead() []Left {
	var left []Left
	for _, o := range r.g.world.Objects {
		if n := r.g.byUID[uid(o)]; n != nil && !n.Virtual {
			continue
		}
		if _, read := r.g.world.Kinds[o.GroupKind()]; read {
			continue
		}
		for _, reference := range o.Owners {
			owner := r.g.byUID[reference.UID]
			if owner == nil || owner.group == 0 || isOfKubernetes(o.GroupKind().Group) {
				continue
			}
			left = append(left, Left{Object: o.Object, UID: o.UID, Linked: true, Why: fmt.Sprintf(
				"its owner %s is moved, but clusterctl does not read this object: its CRD has no label %s", owner.Object, clusterctlv1.ClusterctlLabel)})
			break
		}
	}
	return left
}
