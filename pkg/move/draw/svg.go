package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

const (
	// fontWidth is the width of a letter of the 12 pixel font, and smallWidth of the 11 pixel font: letters of
	// monospaced fonts are 0.6 times as wide as the font's size.
	fontWidth, smallWidth = 7.3, 6.7
	lineHeight            = 18
	// leastWidth leaves room for the legend.
	leastWidth = 900
	// leftShown is the maximum number of objects in the list below the picture, and warningsShown of warnings
	// above it.
	leftShown, warningsShown = 25, 8
)

// canvas collects SVG. Callers of printf escape the values of %s.
type canvas struct{ bytes.Buffer }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// escaped escapes a text for XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(printable(text))) // a strings.Builder returns no errors
	return b.String()
}

// text writes a line of text.
func (c *canvas) text(x, y int, class, text string) {
	c.printf("<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, escaped(text))
}

// writeSVG draws a complete file: a heading, the legend, the graph, and the names of the objects that are left behind.
func writeSVG(p *Picture, w io.Writer) error {
	d := p.drawing()
	l := layOut(d)
	width := max(l.width, leastWidth)
	var body canvas
	y := margin + lineHeight/2
	body.text(margin, y, "title", shorten(p.title(), int(float64(width-2*margin)/9.2)))
	y += lineHeight + 4
	for _, line := range wrap(p.Summary()+p.collapseText(d), columns(width)) {
		body.text(margin, y, "small", line)
		y += lineHeight
	}
	y = body.warnings(p, width, y)
	y = body.legend(width, y+lineHeight)
	body.printf("<g transform=\"translate(%d %d)\">\n", (width-l.width)/2, y)
	body.graph(p, d, l, "")
	body.printf("</g>\n")
	y = body.left(p, width, y+l.height)
	height := y + margin

	var out canvas
	out.printf("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title desc\">\n", width, height, width, height)
	out.printf("<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>\n%s</style>\n", escaped(p.title()), escaped(p.Summary()), svgStyle())
	out.printf("<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n")
	if _, err := body.WriteTo(&out); err != nil {
		return err
	}
	out.printf("</svg>\n")
	_, err := out.WriteTo(w)
	return err
}

// columns returns the number of letters of the small font that fit on a line of the picture.
func columns(width int) int { return int(float64(width-2*margin) / smallWidth) }

// collapseText says which objects share boxes; it is "" if none do.
func (p *Picture) collapseText(d *drawing) string {
	switch {
	case len(d.boxes) == len(p.Members):
		return ""
	case d.collapse == Siblings:
		return fmt.Sprintf("; in %d boxes: objects of a kind with the same owners and fate share one", len(d.boxes))
	}
	return fmt.Sprintf("; in %d boxes: objects of a kind and a fate share one", len(d.boxes))
}

// warnings writes the warnings above the picture, and returns where they end.
func (c *canvas) warnings(p *Picture, width, y int) int {
	warnings := p.warnings()
	for i, text := range warnings {
		if i == warningsShown {
			c.text(margin, y, "small warning", fmt.Sprintf("! and %d more", len(warnings)-i))
			y += lineHeight
			break
		}
		c.text(margin, y, "small warning", "! "+shorten(text, columns(width)-2))
		y += lineHeight
	}
	return y
}

// legend explains boxes and lines, in as many rows as needed, and returns where it ends.
func (c *canvas) legend(width, y int) int {
	x := margin
	item := func(text string, draw func(x, y int)) {
		needed := 34 + int(float64(cells(text))*smallWidth) + 24
		if x > margin && x+needed > width-margin {
			x, y = margin, y+lineHeight+6
		}
		draw(x, y)
		c.text(x+34, y+4, "small", text)
		x += needed
	}
	for _, l := range looks {
		item(l.legend, func(x, y int) {
			c.printf("<g class=\"box %s\"><rect x=\"%d\" y=\"%d\" width=\"26\" height=\"16\" rx=\"3\"/></g>\n", l.class, x, y-8)
			c.printf("<text x=\"%d\" y=\"%d\" class=\"small key mark %s\">%s</text>\n", x+13, y+4, l.class, escaped(l.marker))
		})
	}
	for _, l := range []struct{ class, text string }{{"line", hardLegend}, {"line soft", softLegend}, {"line ring", ringLegend}} {
		item(l.text, func(x, y int) {
			c.printf("<path class=\"%s\" d=\"M%d %dH%d\"/>\n", l.class, x, y, x+26)
		})
	}
	return y + lineHeight
}

// graph writes the lines and boxes. The ID of a box is the prefix and its index.
func (c *canvas) graph(p *Picture, d *drawing, l *layout, prefix string) {
	for _, class := range []string{"line", "line soft", "line ring"} {
		var lines, tips strings.Builder
		for _, ln := range l.lines {
			if class != ln.class() {
				continue
			}
			middle := (ln.from.y + ln.to.y) / 2
			fmt.Fprintf(&lines, "M%d %dC%d %d %d %d %d %d", ln.from.x, ln.from.y, ln.from.x, middle, ln.to.x, middle, ln.to.x, ln.to.y)
			if ln.through != ln.to {
				fmt.Fprintf(&lines, "V%d", ln.through.y)
			}
			if ln.head {
				fmt.Fprintf(&tips, "M%d %dl-4 -8h8z", ln.to.x, ln.to.y-1)
			}
			if ln.tail {
				fmt.Fprintf(&tips, "M%d %dl-4 8h8z", ln.from.x, ln.from.y+1)
			}
		}
		if lines.Len() > 0 {
			c.printf("<path class=\"%s\" d=\"%s\"/>\n", class, lines.String())
		}
		if tips.Len() > 0 {
			c.printf("<path class=\"tip%s\" d=\"%s\"/>\n", strings.TrimPrefix(class, "line"), tips.String())
		}
	}
	if l.isolated > 0 {
		c.text(margin, l.isolated+8, "small", "without links to others:")
	}
	for i := range d.boxes {
		c.box(p, &d.boxes[i], l.boxes[i], fmt.Sprintf("%s%d", prefix, i))
	}
}

func (ln *line) class() string {
	switch {
	case ln.ring:
		return "line ring"
	case ln.soft:
		return "line soft"
	}
	return "line"
}

// box writes a box; a box of several objects looks like a stack.
func (c *canvas) box(p *Picture, b *box, at place, id string) {
	ring := ""
	if b.ring {
		ring = " cycle"
	}
	c.printf("<g class=\"box %s%s\" data-box=\"%s\"><title>%s</title>\n", lookOf(b.fate).class, ring, id, escapedLines(p.details(b)))
	if len(b.members) > 1 {
		c.printf("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n", at.x+stack, at.y+stack, boxWidth-stack, boxHeight-stack)
	}
	c.printf("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n", at.x, at.y, boxWidth-stack, boxHeight-stack)
	width := boxWidth - stack - 18 // without the padding
	wide, small := int(float64(width)/fontWidth), int(float64(width)/smallWidth)
	c.text(at.x+9, at.y+17, "kind", shorten(b.heading(), wide))
	c.text(at.x+9, at.y+33, "name", p.names(b, wide))
	c.text(at.x+9, at.y+49, "small mark", shorten(p.status(b), small))
	c.printf("</g>\n")
}

// escapedLines escapes lines for XML and joins them.
func escapedLines(lines []string) string {
	for i := range lines {
		lines[i] = escaped(lines[i])
	}
	return strings.Join(lines, "\n")
}

// left lists the objects that are left behind, and returns where the list ends.
func (c *canvas) left(p *Picture, width, y int) int {
	left := p.leftBehind()
	if len(left) == 0 {
		return y
	}
	y += lineHeight
	c.text(margin, y, "kind mark left", fmt.Sprintf("× LEFT BEHIND: %d", len(left)))
	for i, m := range left {
		if i == leftShown {
			y += lineHeight
			c.text(margin, y, "small", fmt.Sprintf("and %d more: move-plan lists all", len(left)-i))
			break
		}
		for j, text := range wrap(printable(fmt.Sprintf("%s: %s", m.Object, m.Why)), columns(width)-2) {
			y += lineHeight
			c.text(margin+min(j, 1)*14, y, "small", text)
		}
	}
	return y
}

// wrap breaks a text at its spaces into at most three lines, and shortens lines that are too long.
func wrap(text string, columns int) []string {
	var lines []string
	line := ""
	words := strings.Fields(text)
	for i, word := range words {
		switch {
		case line == "":
			line = word
		case cells(line)+1+cells(word) <= columns:
			line += " " + word
		case len(lines) == 2:
			return append(lines, shorten(strings.Join(append([]string{line}, words[i:]...), " "), columns))
		default:
			lines = append(lines, shorten(line, columns))
			line = word
		}
	}
	return append(lines, shorten(line, columns))
}

// svgStyle returns the style of boxes and lines on both backgrounds. It uses no CSS variables: programs that convert SVG
// to images do not support them.
func svgStyle() string {
	var b strings.Builder
	b.WriteString(".graph text{font-family:ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;font-size:12px;white-space:pre}\n" +
		".graph .title{font-size:15px;font-weight:bold}.graph .kind{font-weight:bold}.graph .small{font-size:11px}\n" +
		".graph .line{fill:none;stroke-width:1.3}.graph .soft{stroke-dasharray:5 4}.graph .ring{stroke-width:2.5;stroke-dasharray:none}\n" +
		".graph .left .mark,.graph .left.mark,.graph .warning{font-weight:bold}.graph .key{text-anchor:middle}\n")
	for _, l := range looks {
		fmt.Fprintf(&b, ".graph .%s rect{stroke-width:%s", l.class, l.width)
		if l.dashes != "" {
			fmt.Fprintf(&b, ";stroke-dasharray:%s", l.dashes)
		}
		b.WriteString("}\n")
	}
	theme(&b, lightPaper, lightInk, lightFaint, lightRing, func(l look) colors { return l.light })
	b.WriteString("@media (prefers-color-scheme:dark){\n")
	theme(&b, darkPaper, darkInk, darkFaint, darkRing, func(l look) colors { return l.dark })
	b.WriteString("}\n")
	return b.String()
}

// theme writes the colours of a background.
func theme(b *strings.Builder, paper, ink, faint, ring string, of func(look) colors) {
	fmt.Fprintf(b, ".graph .paper{fill:%s}.graph text{fill:%s}.graph .line{stroke:%s}.graph .tip{fill:%s}", paper, ink, faint, faint)
	fmt.Fprintf(b, ".graph .ring.line{stroke:%s}.graph .ring.tip{fill:%s}\n", ring, ring)
	for _, l := range looks {
		c := of(l)
		fmt.Fprintf(b, ".graph .%s rect{fill:%s;stroke:%s}", l.class, c.fill, c.line)
		fmt.Fprintf(b, ".graph .%s .mark,.graph .%s.mark{fill:%s}\n", l.class, l.class, c.line)
	}
	warning := of(lookOf(move.FateLeft)).line
	fmt.Fprintf(b, ".graph .warning{fill:%s}\n", warning)
}
