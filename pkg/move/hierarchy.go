package move

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	secretutil "sigs.k8s.io/cluster-api/util/secret"
)

// setSoftOwners adds the owners without references: a Cluster owns the Secrets that have its name as a prefix and no
// owner, and the ClusterResourceSetBinding that names it; a ClusterClass owns the Clusters that name it.
func (g *Graph) setSoftOwners() {
	clusters, classes := map[types.NamespacedName]*Node{}, map[types.NamespacedName]*Node{}
	for _, n := range g.Nodes {
		switch {
		case n.Virtual:
		case n.kind == clusterKind:
			clusters[n.name()] = n
		case n.kind == classKind:
			classes[n.name()] = n
		}
	}
	for _, n := range g.Nodes {
		var owner *Node
		switch {
		case n.Virtual:
		case n.kind == secretKind && len(n.Owners) == 0:
			if cluster, _, err := secretutil.ParseSecretName(n.Object.Name); err == nil {
				owner = clusters[types.NamespacedName{Namespace: n.Object.Namespace, Name: cluster}]
			}
		case n.kind == bindingKind:
			owner = clusters[types.NamespacedName{Namespace: n.Object.Namespace, Name: n.Object.text("spec", "clusterName")}]
		case n.cluster != nil && n.cluster.Spec.Topology.IsDefined():
			owner = classes[n.cluster.GetClassKey()]
		}
		if owner != nil {
			n.SoftOwners = append(n.SoftOwners, owner)
		}
	}
}

// name returns the name of the node's object.
func (n *Node) name() types.NamespacedName {
	return types.NamespacedName{Namespace: n.Object.Namespace, Name: n.Object.Name}
}

// link sets the dependents of all nodes.
func (g *Graph) link() {
	for _, n := range g.Nodes {
		for _, owner := range n.Owners {
			owner.Dependents = append(owner.Dependents, n)
		}
		for _, owner := range n.SoftOwners {
			owner.Dependents = append(owner.Dependents, n)
		}
	}
}

// setTenants sets the hierarchies to which the nodes belong, of namespaced and of cluster-scoped objects. It walks all
// hierarchies together and breadth first, so that each node gets the nearest.
func (g *Graph) setTenants() {
	var heads, globals []*Node
	for _, n := range g.Nodes {
		if n.forceMoveHierarchy {
			n.tenant = n
			heads = append(heads, n)
			if n.isGlobal {
				n.global = n
				globals = append(globals, n)
			}
		}
	}
	walkDependents(heads, func(owner, dependent *Node) bool {
		if dependent.tenant != nil {
			return false
		}
		dependent.tenant, dependent.via = owner.tenant, owner
		return true
	})
	walkDependents(globals, func(owner, dependent *Node) bool {
		if dependent.global != nil {
			return false
		}
		dependent.global = owner.global
		return true
	})
}

// walkDependents calls visit for each dependent of some nodes, breadth first, and continues from those for which it
// returns true.
func walkDependents(from []*Node, visit func(owner, dependent *Node) bool) {
	for len(from) > 0 {
		owner := from[0]
		from = from[1:]
		for _, dependent := range owner.Dependents {
			if visit(owner, dependent) {
				from = append(from, dependent)
			}
		}
	}
}

// setKeptFor keeps ClusterClasses in the source that other namespaces contain or use, with all objects that
// they own by references.
func (g *Graph) setKeptFor() {
	if g.Namespace == "" {
		return
	}
	for _, n := range g.Nodes {
		if n.kind == classKind && (n.Object.Namespace != g.Namespace || g.usedElsewhere.Has(n.name())) {
			keep(n)
		}
	}
}

// keep marks a class and the objects that it owns.
func keep(class *Node) {
	class.keptFor = class
	walkDependents([]*Node{class}, func(owner, dependent *Node) bool {
		if dependent.keptFor != nil || !slices.Contains(dependent.Owners, owner) {
			return false
		}
		dependent.keptFor = class
		return true
	})
}

// setSequence puts the nodes that move into groups: each comes after all of its owners. A node whose owner is in no
// group gets no group either, and is not moved.
func (g *Graph) setSequence() {
	missing := make(map[*Node]int, len(g.Nodes))
	var group []*Node
	for _, n := range g.Nodes {
		if !n.moves() {
			continue
		}
		missing[n] = len(n.Owners) + len(n.SoftOwners)
		if missing[n] == 0 {
			group = append(group, n)
		}
	}
	for number := 1; len(group) > 0; number++ {
		var next []*Node
		for _, n := range group {
			n.group = number
		}
		for _, n := range group {
			for _, dependent := range n.Dependents {
				if !dependent.moves() {
					continue
				}
				if missing[dependent]--; missing[dependent] == 0 {
					next = append(next, dependent)
				}
			}
		}
		group = next
	}
}
