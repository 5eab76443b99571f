// Package draw draws an owner graph: the owners of objects, and the fate of each object in a move, with left-behind
// objects in red. No format needs a network or another program for viewing.
package draw

import (
	"fmt"
	"io"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// Picture is a drawing of a graph.
type Picture struct {
	// Plan is what a move does to the objects.
	Plan *move.Plan
	// Members are the objects, in an order that depends only on them.
	Members []move.Member
	// Collapse says which objects share a box; "" is Auto.
	Collapse Collapse
	// Color lets the text format use colours.
	Color bool

	rings rings
}

// Of returns the picture of a graph and its plan.
func Of(g *move.Graph, plan *move.Plan) *Picture {
	return newPicture(plan, g.Members(plan))
}

func newPicture(plan *move.Plan, members []move.Member) *Picture {
	return &Picture{Plan: plan, Members: members, rings: ringsOf(members)}
}

// Formats are the formats of a picture. A new one is one file and one line here.
var Formats = format.List[*Picture]{
	{Name: "text", Write: writeText},
	{Name: "json", Write: writeJSON},
	{Name: "dot", Write: writeDOT},
	{Name: "mermaid", Write: writeMermaid},
	{Name: "svg", Write: writeSVG},
	{Name: "html", Write: writeHTML},
}

// Write writes the picture in a format. The same objects result in the same text.
func (p *Picture) Write(name string, w io.Writer) error {
	return Formats.Write(name, "the graph", p, w)
}

// title names the source of the picture.
func (p *Picture) title() string {
	where := "all namespaces"
	if p.Plan.Namespace != "" {
		where = "the namespace " + p.Plan.Namespace
	}
	return printable(fmt.Sprintf("Owners in %s of %s", where, p.Plan.Source))
}

// Summary counts the objects by their fates.
func (p *Picture) Summary() string {
	texts := []string{plural(len(p.Members), "object")}
	for _, l := range looks {
		n := 0
		for i := range p.Members {
			if p.Members[i].Fate == l.fate {
				n++
			}
		}
		if n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", n, l.label))
		}
	}
	if n := p.rings.count(); n > 0 {
		texts = append(texts, fmt.Sprintf("%d in cycles of owners", n))
	}
	return strings.Join(texts, ", ")
}

// warnings describe why the picture may be incomplete, and why the move would not start.
func (p *Picture) warnings() []string {
	var lines []string
	for _, problem := range p.Plan.Problems {
		lines = append(lines, printable("INCOMPLETE: "+problem.String()))
	}
	// A namespace without ready objects has a stop for each Machine: stops with the same reason share a line.
	var reasons []string
	objects := map[string][]string{}
	for _, stop := range p.Plan.Stops {
		if len(objects[stop.Why]) == 0 {
			reasons = append(reasons, stop.Why)
		}
		objects[stop.Why] = append(objects[stop.Why], stop.Object.String())
	}
	for _, why := range reasons {
		who := objects[why][0]
		if n := len(objects[why]) - 1; n > 0 {
			who += fmt.Sprintf(" and %d more", n)
		}
		lines = append(lines, printable(fmt.Sprintf("The move does not start now: %s: %s", who, why)))
	}
	return lines
}

// leftBehind are the objects that a move leaves behind.
func (p *Picture) leftBehind() []*move.Member {
	var left []*move.Member
	for i := range p.Members {
		if p.Members[i].Fate == move.FateLeft {
			left = append(left, &p.Members[i])
		}
	}
	return left
}

// plural returns a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
