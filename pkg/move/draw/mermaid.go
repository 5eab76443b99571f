package draw

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// writeMermaid writes a Mermaid flowchart, which GitHub and GitLab show in Markdown.
//
// Source: mermaid.js.org, "Flowcharts - Basic Syntax", "Entity codes to escape characters".
func writeMermaid(p *Picture, w io.Writer) error {
	d := p.drawing()
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%%%% %s\n%%%% %s\nflowchart TD\n", mermaidComment(p.title()), mermaidComment(p.Summary()+p.collapseText(d)))
	for i := range d.boxes {
		bx := &d.boxes[i]
		open, shut := "[", "]"
		if len(bx.members) > 1 {
			open, shut = "[[", "]]"
		}
		fmt.Fprintf(b, "  n%d%s\"%s<br/>%s<br/>%s\"%s:::%s\n", i, open, entities(bx.heading()), entities(p.names(bx, 60)), entities(p.status(bx)), shut, lookOf(bx.fate).class)
	}
	for i, warning := range p.warnings() {
		fmt.Fprintf(b, "  warning%d[\"%s\"]:::left\n", i, entities("! "+warning))
	}
	var rings []string
	for i, a := range d.arrows {
		line := "-->"
		switch {
		case a.ring:
			line = "==>"
			rings = append(rings, fmt.Sprint(i))
		case a.soft:
			line = "-.->"
		}
		fmt.Fprintf(b, "  n%d %s n%d\n", a.from, line, a.to)
	}
	fmt.Fprint(b, "  subgraph legend[Legend]\n    direction TB\n")
	for _, l := range looks {
		fmt.Fprintf(b, "    legend_%s[\"%s\"]:::%s\n", l.class, entities(l.marker+" "+l.legend), l.class)
	}
	fmt.Fprintf(b, "    legend_lines[\"%s<br/>%s<br/>%s\"]\n    %slegend_lines\n  end\n",
		entities("line: "+hardLegend), entities("dashed: "+softLegend), entities("thick: "+ringLegend), legendChain(" ~~~ "))
	if len(rings) > 0 {
		fmt.Fprintf(b, "  linkStyle %s stroke:%s\n", strings.Join(rings, ","), lightRing)
	}
	for _, l := range looks {
		dashes := ""
		if l.dashes != "" {
			dashes = ",stroke-dasharray:" + l.dashes
		}
		// The colour of the text is set too: Mermaid's default is white on dark pages.
		fmt.Fprintf(b, "  classDef %s fill:%s,stroke:%s,stroke-width:%spx,color:%s%s\n", l.class, l.light.fill, l.light.line, l.width, lightInk, dashes)
	}
	return b.Flush()
}

// mermaidComment returns a text for a comment, without braces: Mermaid would read them as a directive.
func mermaidComment(text string) string {
	return strings.NewReplacer("{", "(", "}", ")").Replace(printable(text))
}

// entities replaces all characters except letters, digits, spaces and some punctuation by their numbers, because Mermaid
// reads HTML and Markdown in labels.
func entities(text string) string {
	var b strings.Builder
	for _, r := range printable(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(" -./:,+", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}
