package schemas

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Field is the schema of a field.
type Field struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
}

// textField is the schema of a text.
var textField = &structuralschema.Structural{Generic: structuralschema.Generic{Type: "string"}}

// Field returns the schema of a field of a kind, or nil if it is not known.
func (k *Kinds) Field(gvk schema.GroupVersionKind, path []any) *Field {
	if len(path) == 1 && (path[0] == "apiVersion" || path[0] == "kind") || len(path) > 1 && path[0] == "metadata" {
		return &Field{structural: textField} // a field of Kubernetes, which a CRD does not define
	}
	compiled, err := k.schemaOf(gvk)
	if compiled == nil || err != nil {
		return nil
	}
	return (&Field{structural: compiled.structural}).At(path)
}

// FieldOf returns the field of a schema in the types of Cluster API or of apiextensions, or nil if the schema can't be
// used.
func FieldOf(props any) *Field {
	data, err := json.Marshal(props)
	if err != nil {
		return nil
	}
	versioned := &apiextensionsv1.JSONSchemaProps{}
	if json.Unmarshal(data, versioned) != nil {
		return nil
	}
	_, structural, err := structuralOf(versioned)
	if err != nil {
		return nil
	}
	return &Field{structural: structural}
}

// At returns the field at a path below this one, or nil if the schema does not define it.
func (f *Field) At(path []any) *Field {
	s := f.structural
	for _, step := range path {
		if s = below(s, step); s == nil {
			return nil
		}
	}
	return &Field{structural: s}
}

// below returns the schema that a step of a path leads to, or nil.
func below(s *structuralschema.Structural, step any) *structuralschema.Structural {
	name, isName := step.(string)
	if !isName {
		return s.Items
	}
	if property, ok := s.Properties[name]; ok {
		return &property
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Structural
	}
	return nil
}

// HasFields reports whether the field's values are objects, or lists of objects.
func (f *Field) HasFields() bool {
	s := f.structural
	for s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	return s.Type == "object"
}

// IsUntyped reports whether the field allows values of any type.
func (f *Field) IsUntyped() bool { return f.structural.Type == "" && !f.structural.XIntOrString }

// Accepts reports whether the schema allows a value, without CEL rules.
func (f *Field) Accepts(value any) bool {
	if f.validator == nil {
		f.validator = validation.NewSchemaValidatorFromOpenAPI(f.structural.ToKubeOpenAPI())
	}
	return value != nil && len(validation.ValidateCustomResource(nil, value, f.validator)) == 0
}

// Named returns the values in the schema: its default, its example and its enum.
func (f *Field) Named() []any {
	candidates := []any{f.structural.Default.Object, f.structural.Example.Object}
	if limits := f.structural.ValueValidation; limits != nil {
		for _, value := range limits.Enum {
			candidates = append(candidates, value.Object)
		}
	}
	return slices.DeleteFunc(candidates, func(value any) bool { return value == nil || value == "" })
}

// Examples returns values that the schema may allow, the most likely first: those that it names, then values by type,
// format, limits and pattern.
func (f *Field) Examples() []any { return f.examples(0) }

// maxExampleDepth is the maximum depth of the objects and lists of an example.
const maxExampleDepth = 4

func (f *Field) examples(depth int) []any {
	values := f.Named()
	add := func(more ...any) { values = append(values, more...) }
	s, limits := f.structural, f.structural.ValueValidation
	if limits == nil {
		limits = &structuralschema.ValueValidation{}
	}
	switch {
	case s.XIntOrString:
		add("1", int64(1), "1Gi", "1%")
	case s.Type == "object":
		add(objectExamples(s, limits, depth)...)
	case s.Type == "array":
		add(listExamples(s, limits, depth)...)
	case s.Type == "boolean":
		add(true, false)
	case s.Type == "integer" || s.Type == "number":
		for _, limit := range []*float64{limits.Minimum, limits.Maximum, limits.MultipleOf} {
			if limit != nil {
				add(int64(*limit), int64(*limit)+1, int64(*limit)-1)
			}
		}
		add(int64(1), int64(3), int64(0))
	default:
		add(textExamples(limits)...)
	}
	return values
}

// objectExamples returns an object with the required fields, and objects with one more field.
func objectExamples(s *structuralschema.Structural, limits *structuralschema.ValueValidation, depth int) []any {
	const most = 16
	object := map[string]any{}
	if depth >= maxExampleDepth {
		return []any{object}
	}
	for _, name := range limits.Required {
		if property, ok := s.Properties[name]; ok {
			object[name] = firstAccepted(&property, depth+1)
		}
	}
	objects := []any{object}
	if (&Field{structural: s}).Accepts(object) {
		return objects
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if property := s.Properties[name]; !slices.Contains(limits.Required, name) && len(objects) < most {
			larger := maps.Clone(object)
			larger[name] = firstAccepted(&property, depth+1)
			objects = append(objects, larger)
		}
	}
	return objects
}

// listExamples returns a list with the minimum number of items, and lists with one and none.
func listExamples(s *structuralschema.Structural, limits *structuralschema.ValueValidation, depth int) []any {
	const most = 16
	if s.Items == nil || depth >= maxExampleDepth {
		return []any{[]any{}}
	}
	item := firstAccepted(s.Items, depth+1)
	if item == nil {
		return []any{[]any{}}
	}
	count := int64(1)
	if limits.MinItems != nil {
		count = min(max(count, *limits.MinItems), most)
	}
	var items []any
	for range count {
		items = append(items, item)
	}
	return []any{items, []any{}}
}

// firstAccepted returns the first example that a schema allows, or nil.
func firstAccepted(s *structuralschema.Structural, depth int) any {
	f := &Field{structural: s}
	for _, value := range f.examples(depth) {
		if f.Accepts(value) {
			return value
		}
	}
	return nil
}

// textByFormat are texts of the formats of OpenAPI and JSON Schema.
var textByFormat = map[string]string{
	"uri": "https://example.com", "url": "https://example.com", "email": "user@example.com", "hostname": "host.example.com", "ipv4": "192.0.2.1", "ip": "192.0.2.1",
	"ipv6": "2001:db8::1", "cidr": "192.0.2.0/24", "mac": "02:00:00:00:00:01", "uuid": "8c5e0f6a-3c1b-4a52-9f0e-0d6f6f2f7a11",
	"uuid4": "8c5e0f6a-3c1b-4a52-9f0e-0d6f6f2f7a11", "byte": "ZXhhbXBsZQ==", "date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z",
	"datetime": "2026-01-01T00:00:00Z", "duration": "1h", "hexcolor": "#ffffff", "k8s-short-name": "example", "k8s-long-name": "example",
}

// commonTexts are texts that many patterns and rules allow.
var commonTexts = []any{
	"192.0.2.1", "192.0.2.0/24", "2001:db8::1", "https://example.com", "host.example.com", "1Gi", "1h", "v1.36.3", "ZXhhbXBsZQ==",
	"8c5e0f6a-3c1b-4a52-9f0e-0d6f6f2f7a11", "02:00:00:00:00:01", "1", "true", "/example", "x",
}

// textExamples returns texts by format, pattern and limits of length.
func textExamples(limits *structuralschema.ValueValidation) []any {
	var texts []any
	if text, ok := textByFormat[limits.Format]; ok {
		texts = append(texts, text)
	}
	if limits.Pattern != "" {
		texts = append(texts, commonTexts...)
		for _, longer := range []bool{false, true} {
			if text, ok := textOfPattern(limits.Pattern, longer); ok {
				texts = append(texts, text)
			}
		}
	}
	length := int64(1)
	if limits.MinLength != nil {
		length = min(max(length, *limits.MinLength), 1000)
	}
	return append(texts, strings.Repeat("x", int(length)))
}
