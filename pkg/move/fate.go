package move

import (
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Fate is the result of a move for an object.
type Fate string

// The fates. Copied objects are created in the target and stay in the source; objects apart are unrelated to the move;
// absent ones were not read, and are only named as owners.
const (
	FateMoved  Fate = "moved"
	FateCopied Fate = "copied"
	FateLeft   Fate = "left-behind"
	FateApart  Fate = "apart"
	FateAbsent Fate = "absent"
)

// Member is an object of a graph, or one that is only named as an owner, with its owners and its fate.
type Member struct {
	manifest.Object
	Fate Fate
	// Why is the reason for the fate.
	Why string
	// Step is the group of the move that creates it, from 1; 0 means none.
	Step   int
	Owners []Link
	// Stops are the reasons why the move ends because of this object.
	Stops []string
}

// Link leads to an owner.
type Link struct {
	// At is the owner's index in the list of members.
	At int
	// Soft means that clusterctl links the two without an owner reference.
	Soft bool
}

// Members returns all objects of the graph with their fates in a plan, and the left-behind objects that a move does not
// read; ordered by kind, namespace and name.
func (g *Graph) Members(p *Plan) []Member {
	fates := fatesOf(p)
	// A member is a node, an object that a move does not read, or both.
	type source struct {
		node   *Node
		object *Object
	}
	var sources []source
	for _, n := range g.Nodes {
		s := source{n, n.Object}
		if o, ok := g.unread[n.Object.UID]; ok && n.Virtual {
			s.object = o
		}
		sources = append(sources, s)
	}
	for _, o := range g.world.Objects {
		if _, ok := fates[o.Object]; ok && g.byUID[uid(o)] == nil {
			sources = append(sources, source{nil, o})
		}
	}
	slices.SortStableFunc(sources, func(a, b source) int { return compareObjects(a.object.Object, b.object.Object) })
	at := make(map[*Node]int, len(g.Nodes))
	for i, s := range sources {
		at[s.node] = i
	}
	members := make([]Member, len(sources))
	for i, s := range sources {
		m := &members[i]
		m.Object = s.object.Object
		fate, ok := fates[m.Object]
		switch {
		case s.node != nil && s.node.Virtual && s.object == s.node.Object:
			m.Fate, m.Why = FateAbsent, "objects have it as owner, but it was not read"
		case ok:
			m.Fate, m.Why = fate.Fate, fate.Why
		default:
			m.Fate, m.Why = FateAbsent, "objects have it as owner, but a move does not read it"
		}
		if n := s.node; n != nil {
			m.Step, m.Stops = n.group, n.stops
			for _, owner := range n.Owners {
				m.link(at[owner], false)
			}
			for _, owner := range n.SoftOwners {
				m.link(at[owner], true)
			}
		}
		if s.node == nil || s.node.Virtual {
			for _, r := range s.object.Owners {
				if owner := g.byUID[r.UID]; owner != nil {
					m.link(at[owner], false)
				}
			}
		}
		slices.SortFunc(m.Owners, func(a, b Link) int { return a.At - b.At })
	}
	return members
}

// link adds an owner, once.
func (m *Member) link(at int, soft bool) {
	if !slices.ContainsFunc(m.Owners, func(l Link) bool { return l.At == at }) {
		m.Owners = append(m.Owners, Link{At: at, Soft: soft})
	}
}

// fatesOf returns the fate of each object of a plan, without the owners.
func fatesOf(p *Plan) map[manifest.Object]Member {
	fates := map[manifest.Object]Member{}
	for _, group := range p.Groups {
		for _, m := range group {
			fate := Member{Object: m.Object, Fate: FateMoved, Why: m.Why}
			if !m.Deleted {
				fate.Fate, fate.Why = FateCopied, m.Why+"; it stays in the source as well: "+m.Kept
			}
			fates[m.Object] = fate
		}
	}
	for _, l := range p.LeftBehind {
		fates[l.Object] = Member{Object: l.Object, Fate: FateLeft, Why: l.Why}
	}
	for _, l := range p.Apart {
		fates[l.Object] = Member{Object: l.Object, Fate: FateApart, Why: l.Why}
	}
	return fates
}
