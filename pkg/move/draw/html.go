package draw

import (
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string

	// ZoomStyle is the style that ZoomScript needs.
	//go:embed zoom.css
	ZoomStyle string
	// ZoomScript lets the first child of each element of the class viewport be zoomed and dragged. It fits
	// the element at first.
	//go:embed zoom.js
	ZoomScript string

	page = template.Must(template.New("page").Parse(pageText))
)

// mostDrawn is the maximum number of boxes on a page: a browser scrolls slowly with more.
const mostDrawn = 2000

// pageData is what a page shows.
type pageData struct {
	Title, Summary, Policy string
	Style                  template.CSS
	Script                 template.JS
	Warnings, Assumptions  []string
	Looks, Lines           []pageLook
	Drawings               []pageDrawing
	Kinds                  []*pageKind
}

type pageLook struct{ Class, Marker, Legend string }

type pageDrawing struct {
	Name, Label string
	Shown       bool
	SVG         template.HTML
}

type pageKind struct {
	Kind, Group string
	Count, Left int
	Objects     []pageObject
}

type pageObject struct {
	Class, Marker, Label, Name, Why string
	Owners                          []string
	// Boxes are the IDs of the object's box in each drawing.
	Boxes string
	Cycle bool
	Stops []string
}

// writeHTML writes a page that loads nothing: the graph as SVG for each way to collapse it, and all objects by kind.
// Everything except the search works without scripts. The page's policy forbids the browser to load anything and to run
// another script.
func writeHTML(p *Picture, w io.Writer) error {
	script := pageScript + ZoomScript
	sum := sha256.Sum256([]byte(script))
	data := pageData{
		Title: p.title(), Summary: p.Summary(), Warnings: p.warnings(),
		Policy: "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		Script: template.JS(script), //nolint:gosec // they are files of this package
	}
	for _, a := range p.Plan.Assumptions {
		data.Assumptions = append(data.Assumptions, printable(a))
	}
	var styles strings.Builder
	styles.WriteString(pageStyle + ZoomStyle)
	for _, l := range looks {
		data.Looks = append(data.Looks, pageLook{l.class, l.marker, l.legend})
		fmt.Fprintf(&styles, ".%s .badge,.%s .mark{color:%s}@media (prefers-color-scheme:dark){.%s .badge,.%s .mark{color:%s}}\n",
			l.class, l.class, l.light.line, l.class, l.class, l.dark.line)
	}
	red := lookOf(move.FateLeft)
	fmt.Fprintf(&styles, ".warning{color:%s}.stroke.ring{border-color:%s}@media (prefers-color-scheme:dark){.warning{color:%s}.stroke.ring{border-color:%s}}\n",
		red.light.line, lightRing, red.dark.line, darkRing)
	data.Lines = []pageLook{{Class: "hard", Legend: hardLegend}, {Class: "soft", Legend: softLegend}, {Class: "ring", Legend: ringLegend}}
	shown := p.drawing()
	boxes := make([][]string, len(p.Members))
	for _, c := range []Collapse{Kinds, Siblings, None} {
		d := p.collapsed(c)
		if len(d.boxes) > mostDrawn && c != shown.collapse {
			continue
		}
		fmt.Fprintf(&styles, "#show-%s:checked~.%s{display:block}\n", c, c)
		prefix := string(c[0])
		data.Drawings = append(data.Drawings, pageDrawing{
			Name: string(c), Label: fmt.Sprintf("%s (%d)", drawingLabels[c], len(d.boxes)), Shown: c == shown.collapse,
			SVG: template.HTML(inlineSVG(p, d, prefix)), //nolint:gosec // all its text is escaped
		})
		for i, b := range d.of {
			boxes[i] = append(boxes[i], fmt.Sprintf("%s%d", prefix, b))
		}
	}
	styles.WriteString(svgStyle())
	data.Style = template.CSS(styles.String()) //nolint:gosec // it has no text of the objects
	data.Kinds = p.pageKinds(boxes)
	return page.Execute(w, data)
}

// drawingLabels name the ways to collapse on the page.
var drawingLabels = map[Collapse]string{Kinds: "by kind", Siblings: "objects of an owner together", None: "each object"}

// inlineSVG draws only the graph; the page has the legend.
func inlineSVG(p *Picture, d *drawing, prefix string) string {
	l := layOut(d)
	var c canvas
	c.printf("<svg class=\"graph\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", l.width, l.height, l.width, l.height, escaped(p.title()))
	c.printf("<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n")
	c.graph(p, d, l, prefix)
	c.printf("</svg>\n")
	return c.String()
}

// pageKinds lists all objects by kind.
func (p *Picture) pageKinds(boxes [][]string) []*pageKind {
	at := map[[2]string]*pageKind{}
	var kinds []*pageKind
	for i := range p.Members {
		m := &p.Members[i]
		key := [2]string{m.Kind, m.GroupKind().Group}
		k := at[key]
		if k == nil {
			k = &pageKind{Kind: printable(m.Kind), Group: printable(key[1])}
			at[key] = k
			kinds = append(kinds, k)
		}
		k.Count++
		if m.Fate == move.FateLeft {
			k.Left++
		}
		l := lookOf(m.Fate)
		o := pageObject{
			Class: l.class, Marker: l.marker, Label: l.label, Name: printable(strings.TrimPrefix(m.Namespace+"/"+m.Name, "/")),
			Why: printable(m.Why), Boxes: strings.Join(boxes[i], " "), Cycle: p.rings.in[i],
		}
		for _, owner := range m.Owners {
			o.Owners = append(o.Owners, printable(p.Members[owner.At].String()))
		}
		for _, stop := range m.Stops {
			o.Stops = append(o.Stops, printable(stop))
		}
		k.Objects = append(k.Objects, o)
	}
	return kinds
}
