package checks

import (
	"regexp"
	"slices"
	"strings"
)

// listIndex matches the index of a list item in the path of a field.
var listIndex = regexp.MustCompile(`\[[0-9]+\]`)

// cause returns what a finding has in common with the findings that it is reported with. Without a
// Cause of its own, that is its text, the kind of the object and the field. An error then stays within
// its file: the reader of a file that clusterctl refuses has to find the error there.
func (f Finding) cause() string {
	parts := []string{f.ID, string(f.Severity), f.Cause}
	if f.Cause == "" {
		parts = append(parts, f.Message, f.Fix, f.Object.APIVersion, f.Object.Kind, listIndex.ReplaceAllString(f.Path, "[]"))
		if f.Severity == Error {
			parts = append(parts, f.File)
		}
	}
	return strings.Join(parts, "\x00")
}

// fold joins findings of one check that have one cause. The first of them stays, with the places of
// the others in MorePlaces.
func fold(findings []Finding) []Finding {
	folded := make([]Finding, 0, len(findings))
	first := map[string]int{}
	for _, f := range findings {
		cause := f.cause()
		i, ok := first[cause]
		if !ok {
			first[cause] = len(folded)
			folded = append(folded, f)
			continue
		}
		if f.Place != folded[i].Place && !slices.Contains(folded[i].MorePlaces, f.Place) {
			folded[i].MorePlaces = append(folded[i].MorePlaces, f.Place)
		}
	}
	return folded
}
