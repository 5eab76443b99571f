package move

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Plan is the effect of `clusterctl move`. As JSON, its schema is docs/move-plan.schema.json.
type Plan struct {
	// Source names the source of the objects. Namespace is the moved namespace; "" means all.
	Source    string `json:"source"`
	Namespace string `json:"namespace"`
	// Incomplete means that the source could not be read completely: see Problems.
	Incomplete  bool      `json:"incomplete"`
	Problems    []Problem `json:"problems,omitempty"`
	Assumptions []string  `json:"assumptions,omitempty"`
	// Stops end the move before any object is moved. The other fields are the effect without them.
	Stops []Stop `json:"stops,omitempty"`
	// Groups are created one after the other, the objects of a group in any order. Objects are deleted from the source
	// in the opposite order of groups.
	Groups [][]Moved `json:"groups"`
	// LeftBehind stay in the source without a copy, and belong to Cluster API, a provider, or a moved object.
	LeftBehind []Left `json:"leftBehind"`
	// Apart are ConfigMaps and Secrets that are unrelated to the move, and objects whose CRD, with the labels that decide
	// about a move, is not in the source.
	Apart []Left `json:"apart"`
}

// Moved is an object that is created in the target.
type Moved struct {
	Object manifest.Object `json:"object"`
	UID    types.UID       `json:"uid,omitempty"`
	// Why is the reason for the move.
	Why string `json:"why"`
	// IfThere is the action if the target already has the object.
	IfThere Action `json:"ifThere" jsonschema:"enum=update,enum=leave"`
	// Deleted means that it is deleted from the source; otherwise Kept is the reason why it is not.
	Deleted bool   `json:"deleted"`
	Kept    string `json:"kept,omitempty"`
}

// Action is the action for an existing object of the target.
type Action string

// The actions. Existing objects of global hierarchies stay unchanged.
const (
	Update Action = "update"
	Leave  Action = "leave"
)

// Left is an object that is not moved.
type Left struct {
	Object manifest.Object `json:"object"`
	UID    types.UID       `json:"uid,omitempty"`
	Why    string          `json:"why"`
	// Linked means that clusterctl leaves it behind although it belongs to a moved object.
	Linked bool `json:"linked"`
}

// Plan returns the effect of a move on the objects of the graph.
func (g *Graph) Plan() *Plan {
	p := &Plan{
		Source: g.world.Source, Namespace: g.Namespace, Stops: g.Stops,
		Assumptions: g.world.Assumptions, Problems: g.world.Problems, Incomplete: len(g.world.Problems) > 0,
		Groups: [][]Moved{}, LeftBehind: []Left{}, Apart: []Left{},
	}
	named := g.namedSecrets()
	for _, n := range g.Nodes {
		switch {
		case n.group > 0:
			for len(p.Groups) < n.group {
				p.Groups = append(p.Groups, nil)
			}
			p.Groups[n.group-1] = append(p.Groups[n.group-1], g.moved(n))
		case n.Virtual:
			// It was not read: the objects that name it have the reason.
		case n.moves():
			p.LeftBehind = append(p.LeftBehind, n.left(g.whyStuck(n), true))
		case named[n] != nil:
			p.LeftBehind = append(p.LeftBehind, n.left(named[n].Object.String()+" names it, and it has no owner that is moved, and no label to move it", true))
		case n.isOther() || g.world.Kinds[n.kind].Unknown:
			p.Apart = append(p.Apart, n.left(g.whyUnlinked(n), false))
		default:
			p.LeftBehind = append(p.LeftBehind, n.left(g.whyUnlinked(n), false))
		}
	}
	p.LeftBehind = append(p.LeftBehind, g.notRead()...)
	for _, group := range p.Groups {
		slices.SortFunc(group, func(a, b Moved) int { return compareObjects(a.Object, b.Object) })
	}
	slices.SortFunc(p.LeftBehind, func(a, b Left) int { return compareObjects(a.Object, b.Object) })
	slices.SortFunc(p.Apart, func(a, b Left) int { return compareObjects(a.Object, b.Object) })
	return p
}

// left returns the node's object as an object that is not moved.
func (n *Node) left(why string, linked bool) Left {
	return Left{Object: n.Object.Object, UID: n.Object.UID, Why: why, Linked: linked}
}

// moved returns the effect on an object that is moved.
func (g *Graph) moved(n *Node) Moved {
	m := Moved{Object: n.Object.Object, UID: n.Object.UID, Why: whyMoved(n), IfThere: Update}
	if n.isGlobal || n.global != nil {
		m.IfThere = Leave
	}
	switch {
	case n.isGlobal:
		m.Kept = "it is cluster-scoped, and objects outside of the move may use it"
	case n.global != nil:
		m.Kept = "it belongs to " + n.global.Object.String() + ", which is cluster-scoped, and objects outside of the move may use it"
	case n.keptFor == nil:
		m.Deleted = true
	case n.Object.Namespace != g.Namespace:
		m.Kept = "it is in another namespace than the one that is moved"
	case n.keptFor == n:
		m.Kept = "Clusters of other namespaces use it"
	default:
		m.Kept = "it belongs to " + n.keptFor.Object.String() + ", which is not deleted"
	}
	return m
}

// whyMoved returns the reason for moving an object.
func whyMoved(n *Node) string {
	switch {
	case n.tenant == n && hierarchiesOfCore[n.kind] && n.byCRD:
		return "a " + n.kind.Kind + " is moved with all its dependents"
	case n.tenant == n && n.byCRD:
		return "its CRD has the label move-hierarchy"
	case n.tenant == n:
		return "it has the label move-hierarchy"
	case n.tenant == nil && n.byCRD:
		return "its CRD has the label move"
	case n.tenant == nil:
		return "it has the label move"
	}
	link := "owned by "
	switch {
	case slices.Contains(n.Owners, n.via):
	case n.kind == secretKind:
		link = "named after "
	case n.kind == bindingKind:
		link = "binds resources to "
	default:
		link = "uses "
	}
	why := link + n.via.Object.String()
	if n.via != n.tenant {
		why += ", which belongs to " + n.tenant.Object.String()
	}
	return why
}

// Created returns how many objects are moved.
func (p *Plan) Created() int {
	n := 0
	for _, group := range p.Groups {
		n += len(group)
	}
	return n
}

// Clashes returns the names of files that `clusterctl move --to-directory` would write for several objects, of which it
// keeps one: the name consists of kind, namespace and name, without the group.
func (p *Plan) Clashes() []string {
	seen := map[string]int{}
	var names []string
	for _, group := range p.Groups {
		for _, m := range group {
			name := FileName(m.Object)
			if seen[name]++; seen[name] == 2 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// FileName returns the name of the file that `clusterctl move --to-directory` writes for an object.
func FileName(o manifest.Object) string {
	return strings.Join([]string{o.Kind, o.Namespace, o.Name}, "_") + ".yaml"
}
