package diff

import (
	"context"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// selfField finds what a rule in CEL takes of the value that it is about.
var selfField = regexp.MustCompile(`\b(self|oldSelf)\b(\.([A-Za-z_][A-Za-z0-9_]*))?`)

// HoldsForOld says whether a new rule holds for every object that was right before: it speaks of
// fields only that came with it, and holds where they are not set. It is false where that is not known.
func (c SchemaChange) HoldsForOld(ctx context.Context) bool {
	if c.Kind != FieldRule || c.Schema == nil || c.Old == nil {
		return false
	}
	i := slices.Index(ruleTexts(c.Schema), c.After)
	if i < 0 {
		return false
	}
	rule := c.Schema.XValidations[i]
	only := &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}, XValidations: []apiextensionsv1.ValidationRule{rule},
	}
	for _, match := range selfField.FindAllStringSubmatch(rule.Rule, -1) {
		name := match[3]
		property, is := c.Schema.Properties[name]
		if _, was := c.Old.Properties[name]; was || !is || name == "" {
			return false
		}
		only.Properties[name] = property
	}
	return len(only.Properties) > 0 && schemas.AcceptsEmpty(ctx, only)
}

// Reworded says whether a rule came where another went: it may well be the old one in other words.
func (c SchemaChange) Reworded() bool {
	return c.Kind == FieldRule && c.Schema != nil && c.Old != nil && len(without(ruleTexts(c.Old), ruleTexts(c.Schema))) > 0
}

// Under says whether a change is about a field of the object's, such as status, or below it.
func (c SchemaChange) Under(field string) bool { return within(c.Field, field) }
