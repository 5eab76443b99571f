package draw

import "github.com/clusterctl-release/clusterctl-release/pkg/move"

// rings tells which objects own each other in a circle.
type rings struct {
	// of is the number of each member's component: members that own each other, directly or not, have
	// the same one. order lists the components with owners before what they own.
	of    []int
	order [][]int
	// in says of each member that it is in a cycle.
	in []bool
}

// count returns how many members are in cycles.
func (r *rings) count() int {
	n := 0
	for _, in := range r.in {
		if in {
			n++
		}
	}
	return n
}

// ringsOf finds the strongly connected components, by Tarjan's algorithm, from each object to its
// owners: so owners' components are complete first.
func ringsOf(members []move.Member) rings {
	t := tarjan{
		members: members, index: make([]int, len(members)), low: make([]int, len(members)), open: make([]bool, len(members)),
		rings: rings{of: make([]int, len(members)), in: make([]bool, len(members))},
	}
	for i := range members {
		if t.index[i] == 0 {
			t.visit(i)
		}
	}
	return t.rings
}

type tarjan struct {
	members    []move.Member
	index, low []int
	open       []bool
	stack      []int
	last       int
	rings      rings
}

func (t *tarjan) visit(i int) {
	t.last++
	t.index[i], t.low[i], t.open[i] = t.last, t.last, true
	t.stack = append(t.stack, i)
	for _, owner := range t.members[i].Owners {
		switch {
		case owner.At == i:
			t.rings.in[i] = true
		case t.index[owner.At] == 0:
			t.visit(owner.At)
			t.low[i] = min(t.low[i], t.low[owner.At])
		case t.open[owner.At]:
			t.low[i] = min(t.low[i], t.index[owner.At])
		}
	}
	if t.low[i] != t.index[i] {
		return
	}
	var component []int
	for {
		top := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		t.open[top], t.rings.of[top] = false, len(t.rings.order)
		component = append(component, top)
		if top == i {
			break
		}
	}
	if len(component) > 1 {
		for _, c := range component {
			t.rings.in[c] = true
		}
	}
	t.rings.order = append(t.rings.order, component)
}
