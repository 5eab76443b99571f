package diff

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// selfField finds what a rule in CEL takes of the value that it is about.
var selfField = regexp.MustCompile(`\b(self|oldSelf)\b(\.([A-Za-z_][A-Za-z0-9_]*))?`)

// HoldsForOld says whether a new rule holds for every object that was right before: it speaks of
// fields only that came with it, and holds where none of them is set. False is also not known.
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
	return len(only.Properties) > 0 && validEmpty(ctx, only)
}

// validEmpty says whether an object with nothing but defaults is right by a schema's rules.
func validEmpty(ctx context.Context, schema *apiextensionsv1.JSONSchemaProps) bool {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return false
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return false
	}
	validator := cel.NewValidator(structural, false, celconfig.PerCallLimit)
	if validator == nil {
		return false
	}
	object := map[string]any{}
	defaulting.Default(object, structural)
	problems, _ := validator.Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	return len(problems) == 0
}

// Reworded says whether a rule came where another went: it may well be the old one in other words.
func (c SchemaChange) Reworded() bool {
	return c.Kind == FieldRule && c.Schema != nil && c.Old != nil && len(without(ruleTexts(c.Old), ruleTexts(c.Schema))) > 0
}

// Under says whether a change is about a field of the object's, such as status, or below it.
func (c SchemaChange) Under(field string) bool {
	rest, ok := strings.CutPrefix(c.Field, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
