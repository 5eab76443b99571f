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
	why := newReasons(g)
	at := make(map[*Node]int, len(g.Nodes))
	named := make(map[manifest.Object]int, len(g.Nodes)) // by the names that stops use
	var members []Member
	for i, n := range g.Nodes {
		m := Member{Object: n.Object.Object, Fate: FateAbsent, Step: n.group}
		if n.Virtual {
			m.Why = "objects have it as owner, but it was not read"
			if o, known := why.byUID[n.Object.UID]; known {
				m.Object, m.Why = o.Object, "objects have it as owner, but a move does not read it"
			}
		}
		if fate, ok := fates[m.Object]; ok {
			m.Fate, m.Why = fate.Fate, fate.Why
			delete(fates, m.Object)
		}
		at[n], named[n.Object.Object] = i, i
		members = append(members, m)
	}
	for i, n := range g.Nodes {
		for _, owner := range n.Owners {
			members[i].link(at[owner], false)
		}
		for _, owner := range n.SoftOwners {
			members[i].link(at[owner], true)
		}
		if o, known := why.byUID[n.Object.UID]; n.Virtual && known {
			g.linkUnread(&members[i], o, at)
		}
	}
	// The remaining fates belong to objects that aren't nodes, because a move doesn't read them.
	for _, o := range g.world.Objects {
		if m, ok := fates[o.Object]; ok {
			delete(fates, o.Object)
			g.linkUnread(&m, o, at)
			members = append(members, m)
		}
	}
	for _, s := range g.Stops {
		if i, ok := named[s.Object]; ok {
			members[i].Stops = append(members[i].Stops, s.Why)
		}
	}
	return sortMembers(members)
}

// link adds an owner, once.
func (m *Member) link(at int, soft bool) {
	if !slices.ContainsFunc(m.Owners, func(l Link) bool { return l.At == at }) {
		m.Owners = append(m.Owners, Link{At: at, Soft: soft})
	}
}

// linkUnread adds the owners of an object that a move does not read, as far as they are in the graph.
func (g *Graph) linkUnread(m *Member, o *Object, at map[*Node]int) {
	for _, r := range o.Owners {
		if owner := g.byUID[r.UID]; owner != nil {
			m.link(at[owner], false)
		}
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

// sortMembers orders members, and keeps their links right.
func sortMembers(members []Member) []Member {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareObjects(members[a].Object, members[b].Object) })
	place := make([]int, len(members))
	sorted := make([]Member, len(members))
	for to, from := range order {
		place[from] = to
		sorted[to] = members[from]
	}
	for i := range sorted {
		for j := range sorted[i].Owners {
			sorted[i].Owners[j].At = place[sorted[i].Owners[j].At]
		}
		slices.SortFunc(sorted[i].Owners, func(a, b Link) int { return a.At - b.At })
	}
	return sorted
}
