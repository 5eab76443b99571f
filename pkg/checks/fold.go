package checks

import (
	"regexp"
	"slices"
	"strings"
)

// listIndex matches the index of a list item in the path of a field.
var listIndex = regexp.MustCompile(`\[[0-9]+\]`)

// cause returns the key by which findings are grouped. Without a Cause, it is the message, the kind of the object and
// the field. An error without a Cause is then grouped only within its file, because users have to find each error in a
// file that clusterctl refuses.
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

// fold joins findings of one check with the same cause. The first of them stays, with the places of the others in
// MorePlaces.
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
