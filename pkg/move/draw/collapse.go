package draw

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// Collapse says which objects share a box.
type Collapse string

// The ways to collapse. Auto is the first of the others that results in a readable number of boxes.
const (
	Auto Collapse = "auto"
	// None gives each object a box.
	None Collapse = "none"
	// Siblings puts objects of a kind, a namespace, a fate and the same owners together.
	Siblings Collapse = "siblings"
	// Kinds puts objects of a kind and a fate together.
	Kinds Collapse = "kinds"
)

// Collapses are all ways to collapse.
func Collapses() []Collapse { return []Collapse{Auto, None, Siblings, Kinds} }

// ParseCollapse returns an error that lists the ways to collapse if the value is not one of them.
func ParseCollapse(name Collapse) error {
	if slices.Contains(Collapses(), name) {
		return nil
	}
	return fmt.Errorf("%q isn't a way to collapse: use %s, %s, %s or %s", name, Auto, None, Siblings, Kinds)
}

// readable is the number of boxes that a person can read.
const readable = 60

// box is one object, or several of a kind and a fate.
type box struct {
	members   []int
	kind      string
	fate      move.Fate
	ring      bool
	inside    int // the number of links between members
	namespace string
	// spread says that the members are in several namespaces.
	spread bool
}

// arrow points from a box of owners to a box of objects that they own.
type arrow struct {
	from, to int
	// soft means that no link is an owner reference, and ring that a link is part of a cycle.
	soft, ring bool
	// links is the number of links.
	links int
}

// drawing has the boxes and arrows of a picture.
type drawing struct {
	collapse Collapse
	boxes    []box
	arrows   []arrow
	// of is the box of each member.
	of []int
}

// drawing returns the boxes and arrows as the picture's Collapse says.
func (p *Picture) drawing() *drawing {
	if p.Collapse != Auto && p.Collapse != "" {
		return p.collapsed(p.Collapse)
	}
	var d *drawing
	for _, c := range []Collapse{None, Siblings, Kinds} {
		if c == None && len(p.Members) > readable {
			continue
		}
		if d = p.collapsed(c); len(d.boxes) <= readable {
			break
		}
	}
	return d
}

// collapsed returns the boxes and arrows for a way to collapse.
func (p *Picture) collapsed(c Collapse) *drawing {
	d := &drawing{collapse: c, of: make([]int, len(p.Members))}
	keys := p.keys(c)
	at := map[string]int{}
	for i := range p.Members {
		m := &p.Members[i]
		place, ok := at[keys[i]]
		if !ok {
			place = len(d.boxes)
			at[keys[i]] = place
			d.boxes = append(d.boxes, box{kind: printable(m.Kind), fate: m.Fate, ring: p.rings.in[i], namespace: m.Namespace})
		}
		b := &d.boxes[place]
		b.members = append(b.members, i)
		b.spread = b.spread || b.namespace != m.Namespace
		d.of[i] = place
	}
	d.setArrows(p)
	return d
}

// keys returns a key for each member; members with the same key share a box.
func (p *Picture) keys(c Collapse) []string {
	keys := make([]string, len(p.Members))
	switch c {
	case Siblings:
		return p.siblingKeys()
	case Kinds:
		for i := range p.Members {
			m := &p.Members[i]
			keys[i] = fmt.Sprintf("%q %q %s %v", m.GroupKind().Group, m.Kind, m.Fate, p.rings.in[i])
		}
	default:
		for i := range p.Members {
			keys[i] = fmt.Sprint(i)
		}
	}
	return keys
}

// siblingKeys gives the same key to objects of a kind, namespace and fate whose owners have the same keys. The head of a
// hierarchy and an object in a cycle have a key of their own.
func (p *Picture) siblingKeys() []string {
	owns := make([]bool, len(p.Members))
	for i := range p.Members {
		for _, owner := range p.Members[i].Owners {
			owns[owner.At] = true
		}
	}
	numbers := make([]int, len(p.Members)) // short names of keys
	seen := map[string]int{}
	keys := make([]string, len(p.Members))
	for _, component := range p.rings.order {
		for _, i := range component {
			m := &p.Members[i]
			var owners []string
			for _, owner := range m.Owners {
				owners = append(owners, fmt.Sprintf("%d %v", numbers[owner.At], owner.Soft))
			}
			slices.Sort(owners)
			owners = slices.Compact(owners)
			keys[i] = fmt.Sprintf("%q %q %q %s %s", m.GroupKind().Group, m.Kind, m.Namespace, m.Fate, strings.Join(owners, ","))
			if p.rings.in[i] || len(m.Owners) == 0 && owns[i] {
				keys[i] += fmt.Sprintf(" alone %d", i)
			}
			if _, ok := seen[keys[i]]; !ok {
				seen[keys[i]] = len(seen) + 1
			}
			numbers[i] = seen[keys[i]]
		}
	}
	return keys
}

// setArrows adds the links between boxes.
func (d *drawing) setArrows(p *Picture) {
	at := map[[2]int]int{}
	for i := range p.Members {
		for _, owner := range p.Members[i].Owners {
			from, to := d.of[owner.At], d.of[i]
			if from == to {
				d.boxes[to].inside++
				continue
			}
			place, ok := at[[2]int{from, to}]
			if !ok {
				place = len(d.arrows)
				at[[2]int{from, to}] = place
				d.arrows = append(d.arrows, arrow{from: from, to: to, soft: true})
			}
			a := &d.arrows[place]
			a.links++
			a.soft = a.soft && owner.Soft
			a.ring = a.ring || p.rings.in[i] && p.rings.of[i] == p.rings.of[owner.At]
		}
	}
	slices.SortFunc(d.arrows, func(a, b arrow) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
}

// heading is a box's first line: the kind and the number of objects.
func (b *box) heading() string {
	if len(b.members) == 1 {
		return b.kind
	}
	return fmt.Sprintf("%s ×%d", b.kind, len(b.members))
}

// names is a box's second line: the name of its first object and the number of others.
func (p *Picture) names(b *box, columns int) string {
	more := ""
	if n := len(b.members) - 1; n > 0 {
		more = fmt.Sprintf(" +%d more", n)
	}
	return shorten(printable(p.Members[b.members[0]].Name), columns-cells(more)) + more
}

// status is a box's third line: its fate, and whether it is in a cycle or in another namespace.
func (p *Picture) status(b *box) string {
	l := lookOf(b.fate)
	text := l.marker + " " + l.label
	if b.ring {
		text += ", ↻ cycle"
	} else if b.inside > 0 {
		text += ", own each other"
	}
	switch {
	case b.spread:
		text += ", several namespaces"
	case b.namespace != p.Plan.Namespace && b.namespace != "":
		text += ", in " + printable(b.namespace)
	}
	return text
}

// longest is the number of objects that a tooltip lists.
const longest = 20

// details lists the objects of a box, one per line, with the reasons for their fates.
func (p *Picture) details(b *box) []string {
	lines := []string{b.heading() + ": " + lookOf(b.fate).legend}
	for n, i := range b.members {
		if n == longest {
			lines = append(lines, fmt.Sprintf("and %d more", len(b.members)-n))
			break
		}
		m := &p.Members[i]
		lines = append(lines, printable(fmt.Sprintf("%s: %s", m.Object, m.Why)))
		for _, stop := range m.Stops {
			lines = append(lines, printable("  the move does not start: "+stop))
		}
	}
	return lines
}
