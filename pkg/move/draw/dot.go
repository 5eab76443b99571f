package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// writeDOT writes the DOT language of Graphviz, for `dot -Tsvg`.
//
// Source: graphviz.org, "DOT Language" and "Character entities": in labels a backslash begins an escape
// and an ampersand an entity.
func writeDOT(p *Picture, w io.Writer) error {
	d := p.drawing()
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "digraph owners {\n  label=\"%s\";\n  labelloc=t;\n  bgcolor=white;\n", quotedDOT(append([]string{p.title(), p.Summary() + p.collapseText(d)}, p.warnings()...)...))
	fmt.Fprintf(b, "  node [shape=box, style=filled, fontname=monospace, fontsize=10];\n  edge [color=\"%s\"];\n", lightFaint)
	for i := range d.boxes {
		bx := &d.boxes[i]
		shape := ""
		if len(bx.members) > 1 {
			shape = ", peripheries=2"
		}
		fmt.Fprintf(b, "  n%d [label=\"%s\", %s%s];\n", i, quotedDOT(bx.heading(), p.names(bx, 60), p.status(bx)), dotLook(lookOf(bx.fate)), shape)
	}
	for _, a := range d.arrows {
		fmt.Fprintf(b, "  n%d -> n%d%s;\n", a.from, a.to, dotLine(a))
	}
	fmt.Fprint(b, "  subgraph cluster_legend {\n    label=\"Legend\";\n")
	for _, l := range looks {
		fmt.Fprintf(b, "    legend_%s [label=\"%s\", %s];\n", l.class, quotedDOT(l.marker+" "+l.legend), dotLook(l))
	}
	fmt.Fprintf(b, "    legend_lines [label=\"%s\", shape=plaintext, style=\"\"];\n    %slegend_lines [style=invis];\n  }\n}\n",
		quotedDOT("line: "+hardLegend, "dashed: "+softLegend, "thick: "+ringLegend), legendChain(" -> "))
	return b.Flush()
}

// legendChain links the fates of the legend, so that they are below each other.
func legendChain(link string) string {
	var b strings.Builder
	for _, l := range looks {
		b.WriteString("legend_" + l.class + link)
	}
	return b.String()
}

// dotLook returns the attributes of a fate.
func dotLook(l look) string {
	style := "filled"
	if l.dashes != "" {
		style = "filled,dashed"
	}
	return fmt.Sprintf("style=\"%s\", color=\"%s\", fillcolor=\"%s\", penwidth=%s", style, l.light.line, l.light.fill, l.width)
}

// dotLine returns the attributes of an arrow.
func dotLine(a arrow) string {
	switch {
	case a.ring:
		return fmt.Sprintf(" [color=\"%s\", penwidth=2.5, constraint=false]", lightRing)
	case a.soft:
		return " [style=dashed]"
	}
	return ""
}

var dotEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", "&amp;")

// quotedDOT joins lines and escapes them for a quoted label.
func quotedDOT(lines ...string) string {
	for i := range lines {
		lines[i] = dotEscapes.Replace(printable(lines[i]))
	}
	return strings.Join(lines, `\n`)
}
