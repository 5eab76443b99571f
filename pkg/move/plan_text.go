package move

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

// Formats are the formats of a plan.
var Formats = format.List[*Plan]{
	{Name: "text", Write: writePlanText},
	{Name: "json", Write: format.JSON[*Plan]},
}

// Write shows the plan in a format.
func (p *Plan) Write(name string, w io.Writer) error {
	return Formats.Write(name, "the plan", p, w)
}

func writePlanText(plan *Plan, w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Move of the namespace %s of %s\n", plan.Namespace, plan.Source)
	if plan.Incomplete {
		fmt.Fprintf(&b, "\nINCOMPLETE, as not everything could be read:\n")
		for _, p := range plan.Problems {
			fmt.Fprintf(&b, "  %s\n", p)
		}
	}
	writeList(&b, "Assumptions", plan.Assumptions)
	var stops []string
	for _, s := range plan.Stops {
		stops = append(stops, fmt.Sprintf("%s: %s", s.Object, s.Why))
	}
	writeList(&b, "The move does not start now", stops)
	writeGroups(&b, plan)
	var kept []string
	for _, group := range plan.Groups {
		for _, m := range group {
			if !m.Deleted {
				text := fmt.Sprintf("%s: %s", m.Object, m.Kept)
				if m.IfThere == Leave {
					text += "; left as it is where the target has it"
				}
				kept = append(kept, text)
			}
		}
	}
	fmt.Fprintf(&b, "\nDeleted from the source: %d, in the reverse order\n", plan.Created()-len(kept))
	writeList(&b, "Kept in the source", kept)
	var left []string
	for _, l := range plan.LeftBehind {
		left = append(left, fmt.Sprintf("%s: %s", l.Object, l.Why))
	}
	writeList(&b, fmt.Sprintf("LEFT BEHIND: %d", len(left)), left)
	writeList(&b, "Files of --to-directory that several objects share, of which one is lost", plan.Clashes())
	switch {
	case len(left) > 0:
	case plan.Incomplete:
		fmt.Fprintf(&b, "\nNothing of what could be read is left behind\n")
	default:
		fmt.Fprintf(&b, "\nNothing is left behind\n")
	}
	if n := len(plan.Apart); n > 0 {
		fmt.Fprintf(&b, "\nAlso read, and not linked to what is moved: %s (--format json lists them)\n", kindsText(plan.Apart))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeGroups lists the objects that are created, group by group.
func writeGroups(b *strings.Builder, plan *Plan) {
	fmt.Fprintf(b, "\nCreated: %d, those with the same number together; updated where the target has them\n", plan.Created())
	width := 0
	for _, group := range plan.Groups {
		for _, m := range group {
			width = max(width, len(m.Object.String()))
		}
	}
	for i, group := range plan.Groups {
		for _, m := range group {
			fmt.Fprintf(b, "  %d  %-*s  %s\n", i+1, min(width, 60), m.Object, m.Why)
		}
	}
}

// writeList writes a heading with lines below, or nothing.
func writeList(b *strings.Builder, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", heading)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// kindsText counts objects by kind.
func kindsText(left []Left) string {
	counts := map[string]int{}
	for _, l := range left {
		counts[l.Object.Kind]++
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(texts, ", ")
}
