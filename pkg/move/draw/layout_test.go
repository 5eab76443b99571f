package draw

import (
	"fmt"
	"testing"
)

// TestLayout checks that boxes don't overlap, that lines don't cross boxes, that each arrow has a line, and that
// owners are above the objects that they own.
func TestLayout(t *testing.T) {
	for name, p := range pictures(t) {
		for _, collapse := range []Collapse{None, Siblings, Kinds} {
			t.Run(fmt.Sprintf("%s, %s", name, collapse), func(t *testing.T) {
				d := p.collapsed(collapse)
				l := layOut(d)
				checkBoxes(t, l)
				checkLines(t, l)
				checkArrows(t, d, l)
			})
		}
	}
}

// checkBoxes checks that boxes don't overlap and are within the drawing.
func checkBoxes(t *testing.T, l *layout) {
	t.Helper()
	for i, a := range l.boxes {
		if a.x < 0 || a.y < 0 || a.x+boxWidth > l.width || a.y+boxHeight > l.height {
			t.Errorf("the box %d at %v is outside of the drawing of %d x %d", i, a, l.width, l.height)
		}
		for j, b := range l.boxes[:i] {
			if a.x < b.x+boxWidth && b.x < a.x+boxWidth && a.y < b.y+boxHeight && b.y < a.y+boxHeight {
				t.Errorf("the boxes %d at %v and %d at %v overlap", i, a, j, b)
			}
		}
	}
}

// checkLines checks that lines touch boxes only with their ends. A line bends between two rows, within the
// rectangle of its ends, and is vertical from there on.
func checkLines(t *testing.T, l *layout) {
	t.Helper()
	for _, ln := range l.lines {
		left, right := min(ln.from.x, ln.to.x), max(ln.from.x, ln.to.x)
		for i, b := range l.boxes {
			bends := left < b.x+boxWidth && right > b.x && ln.from.y < b.y+boxHeight-stack && ln.to.y > b.y
			passes := ln.through.y > ln.to.y && ln.to.x > b.x && ln.to.x < b.x+boxWidth && ln.to.y < b.y+boxHeight && ln.through.y > b.y
			if bends || passes {
				t.Errorf("the line %v touches the box %d at %v", ln, i, b)
			}
		}
	}
}

// checkArrows follows the lines down from each box and compares the boxes at their ends with the arrows.
func checkArrows(t *testing.T, d *drawing, l *layout) {
	t.Helper()
	at := map[place]int{} // boxes by the ends of their lines
	for i, b := range l.boxes {
		at[place{b.x + boxWidth/2, b.y}] = i
		at[place{b.x + boxWidth/2, b.y + boxHeight - stack}] = i
	}
	below := map[place][]line{}
	for _, ln := range l.lines {
		below[ln.from] = append(below[ln.from], ln)
	}
	type found struct {
		from, to   int
		soft, ring bool
	}
	seen := map[found]bool{}
	var follow func(top int, from place, style *line)
	follow = func(top int, from place, style *line) {
		for _, ln := range below[from] {
			if style != nil && (ln.soft != style.soft || ln.ring != style.ring) {
				continue
			}
			if end, ok := at[ln.to]; ok {
				seen[found{top, end, ln.soft, ln.ring}] = true
				continue
			}
			follow(top, ln.through, &ln)
		}
	}
	for i, b := range l.boxes {
		follow(i, place{b.x + boxWidth/2, b.y + boxHeight - stack}, nil)
	}
	turned := 0
	for _, a := range d.arrows {
		switch {
		case seen[found{a.from, a.to, a.soft, a.ring}]:
			if l.boxes[a.from].y >= l.boxes[a.to].y {
				t.Errorf("the owner %d is not above %d", a.from, a.to)
			}
		case seen[found{a.to, a.from, a.soft, a.ring}]:
			turned++
		default:
			t.Errorf("the arrow %+v has no line", a)
		}
	}
	if cycles := cyclic(d); turned > 0 && !cycles {
		t.Errorf("%d arrows point upwards without a cycle", turned)
	}
	if len(seen) > len(d.arrows) {
		t.Errorf("got %d lines for %d arrows", len(seen), len(d.arrows))
	}
}

// cyclic reports whether boxes are in cycles: some are left when all boxes without an owner are removed.
func cyclic(d *drawing) bool {
	missing := make([]int, len(d.boxes))
	for _, a := range d.arrows {
		missing[a.to]++
	}
	var free []int
	for b, n := range missing {
		if n == 0 {
			free = append(free, b)
		}
	}
	taken := 0
	for ; len(free) > 0; taken++ {
		b := free[0]
		free = free[1:]
		for _, a := range d.arrows {
			if a.from == b {
				if missing[a.to]--; missing[a.to] == 0 {
					free = append(free, a.to)
				}
			}
		}
	}
	return taken < len(d.boxes)
}

// TestReadable checks that a collapsed picture of 500 objects fits a large screen, and that one with a box for each
// object can be shown in a browser.
func TestReadable(t *testing.T) {
	p := pictureOf(namespace(500))
	if len(p.Members) < 500 {
		t.Fatalf("only %d objects", len(p.Members))
	}
	d := p.drawing()
	l := layOut(d)
	if len(d.boxes) > readable || l.width > 2000 || l.height > 2000 {
		t.Errorf("%d boxes on %d x %d pixels", len(d.boxes), l.width, l.height)
	}
	all := layOut(p.collapsed(None))
	if area := len(p.Members) * (boxWidth + gap) * (boxHeight + rowGap); all.width*all.height > 4*area {
		t.Errorf("%d objects take %d x %d pixels", len(p.Members), all.width, all.height)
	}
	for format, most := range map[string]int{"svg": 100 << 10, "html": 2 << 20, "dot": 50 << 10, "mermaid": 50000} { // the last is mermaid's own limit
		if n := len(drawn(t, p, format)); n > most {
			t.Errorf("%s has %d bytes, want at most %d", format, n, most)
		}
	}
}

func TestCollapse(t *testing.T) {
	p := pictureOf(namespace(500))
	for _, tc := range []struct {
		collapse Collapse
		boxes    int
		has      []string
	}{
		{None, len(p.Members), []string{"Cluster"}},
		{Siblings, 0, []string{"Secret ×4", "MachineSet ×3", "Machine ×9", "DemoDisk ×4", "ClusterClass"}},
		{Kinds, 12, []string{"Machine ×99", "Secret ×143", "DemoDisk ×4", "DemoRing ×8"}},
		{Auto, 12, nil},
	} {
		p.Collapse = tc.collapse
		d := p.drawing()
		if tc.boxes > 0 && len(d.boxes) != tc.boxes {
			t.Errorf("%s: got %d boxes, want %d", tc.collapse, len(d.boxes), tc.boxes)
		}
		headings := map[string]bool{}
		for i := range d.boxes {
			headings[d.boxes[i].heading()] = true
		}
		for _, want := range tc.has {
			if !headings[want] {
				t.Errorf("%s: no box %q in %v", tc.collapse, want, headings)
			}
		}
	}
}

// TestRings checks that objects in cycles of owners are found, and that owners come before the objects that they own.
func TestRings(t *testing.T) {
	p := pictureOf(namespace(500))
	if n := p.rings.count(); n != 8 {
		t.Errorf("%d objects are in cycles, want 8", n)
	}
	for i := range p.Members {
		if ring := p.Members[i].Kind == "DemoRing"; p.rings.in[i] != ring {
			t.Errorf("%s in a cycle: %v", p.Members[i].Object, !ring)
		}
	}
	for seed := range uint64(20) {
		p := pictureOf(tangle(seed, 30))
		place := map[int]int{}
		for at, component := range p.rings.order {
			for _, i := range component {
				place[i] = at
			}
		}
		for i := range p.Members {
			for _, owner := range p.Members[i].Owners {
				if place[owner.At] > place[i] {
					t.Errorf("seed %d: %d comes before its owner %d", seed, i, owner.At)
				}
			}
		}
	}
}
