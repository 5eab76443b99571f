package move

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// setUnread collects the objects that a move does not read.
func (g *Graph) setUnread() {
	g.unread = map[types.UID]*Object{}
	for _, o := range g.world.Objects {
		if n := g.byUID[uid(o)]; n == nil || n.Virtual {
			g.unread[uid(o)] = o
		}
	}
}

// whyStuck returns why an object that clusterctl wants to move is in no group: one of its owners is not read, is not
// moved itself, or is in a cycle.
func (g *Graph) whyStuck(n *Node) string {
	for _, owner := range slices.Concat(n.Owners, n.SoftOwners) {
		switch {
		case owner.group > 0:
		case owner.Virtual:
			return fmt.Sprintf("its owner %s %s, so clusterctl never creates it", g.name(owner), g.absent(owner, n))
		case !owner.moves():
			return fmt.Sprintf("its owner %s is not moved, because it has no link to a moved object, so clusterctl never creates it", owner.Object)
		}
	}
	switch {
	case slices.Contains(n.cycle, n):
		return "it is in a cycle of owners, so none of them can be created first: " + cycleText(n.cycle)
	case n.cycle != nil:
		return "its owners are in a cycle, so none of them can be created first: " + cycleText(n.cycle)
	}
	return "an indirect owner is not moved, so clusterctl never creates it: " + chain(n)
}

// cycleText names the nodes of a cycle, the first of them at both ends.
func cycleText(cycle []*Node) string {
	var text strings.Builder
	for _, n := range cycle {
		text.WriteString(n.Object.String() + " -> ")
	}
	return text.String() + cycle[0].Object.String()
}

// setCycles finds the cycles of owners because of which nodes are in no group. From each such node, it follows the first
// stuck owner until a node repeats: the cycle is the nodes from there on.
func (g *Graph) setCycles() {
	done := map[*Node]bool{}
	for _, start := range g.Nodes {
		if !start.stuck() {
			continue
		}
		var path []*Node
		at := map[*Node]int{}
		var cycle []*Node
		for n := start; n != nil; n = stuckOwner(n) {
			if done[n] {
				cycle = n.cycle
				break
			}
			if i, ok := at[n]; ok {
				cycle = path[i:]
				break
			}
			at[n] = len(path)
			path = append(path, n)
		}
		for _, n := range path {
			n.cycle, done[n] = cycle, true
		}
	}
}

// stuck reports whether clusterctl wants to move a node, but never creates it.
func (n *Node) stuck() bool { return n.moves() && n.group == 0 }

// stuckOwner returns the first owner that is moved and in no group, or nil.
func stuckOwner(n *Node) *Node {
	for _, owner := range slices.Concat(n.Owners, n.SoftOwners) {
		if owner.stuck() {
			return owner
		}
	}
	return nil
}

// chain names the owners up to the cause, at most five of them.
func chain(n *Node) string {
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
func (g *Graph) name(n *Node) string {
	if o, ok := g.unread[n.Object.UID]; ok {
		return o.String()
	}
	return n.Object.String()
}

// absent returns why a move does not read an owner.
func (g *Graph) absent(owner, of *Node) string {
	o, known := g.unread[owner.Object.UID]
	_, read := g.world.Kinds[owner.kind]
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

// whyUnlinked returns why clusterctl does not want to move an object.
func (g *Graph) whyUnlinked(n *Node) string {
	if n.kind == providerKind {
		return "it is an entry of clusterctl's list of providers: `clusterctl init` creates those of the target"
	}
	if g.world.Kinds[n.kind].Unknown {
		return "it has no link to a moved object, and its CRD, whose labels decide, was not read"
	}
	if len(n.Owners) == 0 {
		if n.isGlobal {
			return "it is cluster-scoped, and neither it nor its CRD has a label to move it"
		}
		return "it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"
	}
	owner := n.Owners[0]
	if owner.Virtual {
		return fmt.Sprintf("its owner %s %s, and it has no other link to a moved object", g.name(owner), g.absent(owner, n))
	}
	return fmt.Sprintf("its owner %s is not moved either", owner.Object)
}

// notRead returns the objects that a move does not read although one of their owners is moved: their kinds lack
// clusterctl's label. Only some sources contain such objects.
func (g *Graph) notRead() []Left {
	var left []Left
	for _, o := range g.world.Objects {
		if n := g.byUID[uid(o)]; n != nil && !n.Virtual {
			continue
		}
		if _, read := g.world.Kinds[o.GroupKind()]; read {
			continue
		}
		for _, reference := range o.Owners {
			owner := g.byUID[reference.UID]
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
