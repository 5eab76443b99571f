package installed

import (
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Rule is a rule of a role.
type Rule struct {
	Role   *manifest.Document
	Fields map[string]any
}

// Rules returns the rules of all roles of the given kinds.
func Rules(s *checks.Subject, kinds ...string) []Rule {
	var all []Rule
	for _, d := range s.Objects(kinds...) {
		for _, fields := range manifest.Maps(d.Object.Object, "rules") {
			all = append(all, Rule{d, fields})
		}
	}
	return all
}

// Grants reports whether a rule allows a verb on a resource.
func (r Rule) Grants(group, resource, verb string) bool {
	return Has(manifest.Texts(r.Fields, "apiGroups"), group) && Has(manifest.Texts(r.Fields, "resources"), resource) && Has(manifest.Texts(r.Fields, "verbs"), verb)
}

// Has reports whether a list contains an item or "*".
func Has(list []string, item string) bool {
	return slices.Contains(list, item) || slices.Contains(list, "*")
}
