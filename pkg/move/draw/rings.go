package draw

import (
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// rings are the cycles of owners.
type rings struct {
	// of is the index of each member's component: members that own each other, directly or not, are in one
	// component. order lists the components, owners first.
	of    []int
	order [][]int
	// in says of each member whether it is in a cycle.
	in []bool
}

// count returns the number of members in cycles.
func (r *rings) count() int {
	n := 0
	for _, in := range r.in {
		if in {
			n++
		}
	}
	return n
}

// ringsOf finds the strongly connected components by Tarjan's algorithm. It walks from each object to its owners, so
// that the owners' components are complete first.
func ringsOf(members []move.Member) rings {
	r := rings{of: make([]int, len(members)), in: make([]bool, len(members))}
	const incomplete = -1 // as the index of a component
	visited := 0
	index, low := make([]int, len(members)), make([]int, len(members)) // from 1; 0 is not visited
	var stack []int
	var visit func(i int)
	visit = func(i int) {
		bottom := len(stack)
		stack = append(stack, i)
		visited++
		index[i], low[i], r.of[i] = visited, visited, incomplete
		for _, owner := range members[i].Owners {
			switch {
			case owner.At == i:
				r.in[i] = true
			case index[owner.At] == 0:
				visit(owner.At)
				low[i] = min(low[i], low[owner.At])
			case r.of[owner.At] == incomplete:
				low[i] = min(low[i], index[owner.At])
			}
		}
		if low[i] != index[i] {
			return
		}
		component := slices.Clone(stack[bottom:])
		stack = stack[:bottom]
		for _, c := range component {
			r.of[c] = len(r.order)
			r.in[c] = r.in[c] || len(component) > 1
		}
		r.order = append(r.order, component)
	}
	for i := range members {
		if index[i] == 0 {
			visit(i)
		}
	}
	return r
}
