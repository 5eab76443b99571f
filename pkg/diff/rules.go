package diff

import (
	"context"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// selfField matches the field that a CEL rule reads from its value.
var selfField = regexp.MustCompile(`\b(self|oldSelf)\b(\.([A-Za-z_][A-Za-z0-9_]*))?`)

// HoldsForOld reports whether a new rule accepts every object that was valid before: it reads only fields that are new
// as well, and accepts objects without them. It returns false if that is not known.
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

// Reworded reports whether a rule was added where another was removed: it may be the old one in other words.
func (c SchemaChange) Reworded() bool {
	return c.Kind == FieldRule && c.Schema != nil && c.Old != nil && len(without(ruleTexts(c.Old), ruleTexts(c.Schema))) > 0
}

// Under reports whether a change is about a top-level field such as status, or a field below it.
func (c SchemaChange) Under(field string) bool { return within(c.Field, field) }
