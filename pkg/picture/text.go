package picture

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/fatih/color"

	"github.com/clusterctl-release/clusterctl-release/pkg/ownership"
)

// writeText writes a tree: what is owned below its first owner. Objects are collapsed where that was
// asked for only: lines are easy to search.
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
	t.below, t.above = make([][]int, len(t.d.boxes)), make([][]int, len(t.d.boxes))
	for i, a := range t.d.arrows {
		t.below[a.from] = append(t.below[a.from], i)
		t.above[a.to] = append(t.above[a.to], i)
	}
	t.shown = make([]bool, len(t.d.boxes))
	fmt.Fprintf(t.w, "%s\n%s%s\n", p.title(), p.summary(), p.collapseText(t.d))
	for _, warning := range p.warnings() {
		fmt.Fprintf(t.w, "%s\n", t.red.Sprint(warning))
	}
	fmt.Fprintln(t.w)
	for b := range t.d.boxes {
		if len(t.above[b]) == 0 {
			t.show(b, -1, "", "")
		}
	}
	for b := range t.d.boxes { // what only cycles lead to
		if !t.shown[b] {
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
	// below and above are the arrows from and to each box.
	below, above [][]int
	shown        []bool
	red, faint   *color.Color
}

// show writes a box, and below it what it owns and is not shown yet. via is the arrow that led there.
func (t *tree) show(b, via int, lead, indent string) {
	t.shown[b] = true
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
	if bx.fate == ownership.FateLeft {
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
	if bx.fate == ownership.FateLeft {
		line = t.red.Sprint(line)
	}
	if len(others) > 0 {
		line += t.faint.Sprint("  (and of " + printable(strings.Join(others, ", ")) + ")")
	}
	fmt.Fprintf(t.w, "%s%s\n", lead, line)
	var next []int
	for _, i := range t.below[b] {
		// Claimed now, so that nothing further down takes it.
		if to := t.d.arrows[i].to; !t.shown[to] {
			t.shown[to] = true
			next = append(next, i)
		}
	}
	for n, i := range next {
		branch, more := "├─ ", "│  "
		if n == len(next)-1 {
			branch, more = "└─ ", "   "
		}
		t.show(t.d.arrows[i].to, i, indent+branch, indent+more)
	}
}
