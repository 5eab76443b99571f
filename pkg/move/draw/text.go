package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/fatih/color"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// writeText writes a tree, with owned objects below their owner. Lines are easy to search, so objects are collapsed
// only on request.
func writeText(p *Picture, w io.Writer) error {
	collapse := p.Collapse
	if collapse == Auto || collapse == "" {
		collapse = None
	}
	t := &tree{p: p, d: p.collapsed(collapse), w: bufio.NewWriter(w), red: color.New(color.FgRed, color.Bold), faint: color.New(color.Faint)}
	for _, c := range []*color.Color{t.red, t.faint} {
		if p.Color {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	parents := t.d.parents()
	t.below, t.above = make([][]int, len(t.d.boxes)), make([][]int, len(t.d.boxes))
	for i, a := range t.d.arrows {
		t.above[a.to] = append(t.above[a.to], i)
		if parents[a.to] == i {
			t.below[a.from] = append(t.below[a.from], i)
		}
	}
	fmt.Fprintf(t.w, "%s\n%s%s\n", p.title(), p.Summary(), p.collapseText(t.d))
	for _, warning := range p.warnings() {
		fmt.Fprintf(t.w, "%s\n", t.red.Sprint(warning))
	}
	fmt.Fprintln(t.w)
	for b := range t.d.boxes {
		if parents[b] < 0 {
			t.show(b, -1, "", "")
		}
	}
	fmt.Fprintf(t.w, "\n%s\n", t.faint.Sprint("~ "+softLegend))
	for _, l := range looks {
		fmt.Fprintf(t.w, "%s\n", t.faint.Sprint(l.marker+" "+l.legend))
	}
	return t.w.Flush()
}

// tree writes boxes as lines.
type tree struct {
	p *Picture
	d *drawing
	w *bufio.Writer
	// above are the arrows to each box, and below the arrows from it to its children in the tree.
	below, above [][]int
	red, faint   *color.Color
}

// parents returns for each box the arrow from its parent in the tree, or -1. The parent is the owner that is furthest
// from the top. Arrows that close cycles are left out, so that each box is in the tree.
func (d *drawing) parents() []int {
	// Rows have no limit here, so parts don't affect each other and all boxes can be one part.
	s := newSheet(part{boxes: make([]int, len(d.boxes)), arrows: d.arrows}, len(d.boxes))
	s.setRows()
	parents := make([]int, len(d.boxes))
	for b := range parents {
		parents[b] = -1
	}
	for i, a := range d.arrows {
		if s.reversed[i] {
			continue
		}
		if best := parents[a.to]; best < 0 || s.nodes[a.from].row > s.nodes[d.arrows[best].from].row {
			parents[a.to] = i
		}
	}
	return parents
}

// show writes a box and, below it, its children. via is the arrow from its parent, or -1.
func (t *tree) show(b, via int, lead, indent string) {
	bx := &t.d.boxes[b]
	soft := ""
	if via >= 0 && t.d.arrows[via].soft {
		soft = "~ "
	}
	first := &t.p.Members[bx.members[0]]
	name := first.String()
	if len(bx.members) > 1 {
		name = fmt.Sprintf("%s (%s and %d more)", bx.heading(), first.Name, len(bx.members)-1)
	}
	status := t.p.status(bx)
	if bx.fate == move.FateLeft {
		status += ": " + first.Why
	}
	var others []string
	for _, i := range t.above[b] {
		if i != via {
			owner := &t.d.boxes[t.d.arrows[i].from]
			others = append(others, t.p.Members[owner.members[0]].String())
		}
	}
	line := fmt.Sprintf("%s%s  %s", soft, printable(name), printable(status))
	if bx.fate == move.FateLeft {
		line = t.red.Sprint(line)
	}
	if len(others) > 0 {
		line += t.faint.Sprint("  (and of " + printable(strings.Join(others, ", ")) + ")")
	}
	fmt.Fprintf(t.w, "%s%s\n", lead, line)
	for n, i := range t.below[b] {
		branch, more := "├─ ", "│  "
		if n == len(t.below[b])-1 {
			branch, more = "└─ ", "   "
		}
		t.show(t.d.arrows[i].to, i, indent+branch, indent+more)
	}
}
