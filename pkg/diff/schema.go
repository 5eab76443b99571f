package diff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// SchemaKind is the part of a field's schema that changed.
type SchemaKind string

// The kinds of changes of a schema.
const (
	// FieldAdded and FieldRemoved are about the field as a whole; fields below it are not listed.
	FieldAdded   SchemaKind = "added"
	FieldRemoved SchemaKind = "removed"
	// FieldRenamed is both, if the schemas show that it is one field: see Renamed.
	FieldRenamed SchemaKind = "renamed"
	// FieldRequired means that an object without the field was valid and is no longer: the field became required, or a
	// required field lost its default. FieldOptional is the opposite.
	FieldRequired SchemaKind = "required"
	FieldOptional SchemaKind = "optional"
	// FieldType is another type; further changes of the field are not listed then.
	FieldType    SchemaKind = "type"
	FieldEnum    SchemaKind = "enum"
	FieldDefault SchemaKind = "default"
	// FieldLimit is a number's or a length's limit.
	FieldLimit   SchemaKind = "limit"
	FieldPattern SchemaKind = "pattern"
	FieldFormat  SchemaKind = "format"
	// FieldNullable is about whether the field may be null.
	FieldNullable SchemaKind = "nullable"
	// FieldRule is a rule in CEL.
	FieldRule SchemaKind = "rule"
	// FieldList is the merge type of a list, and the keys of its items.
	FieldList SchemaKind = "list type"
	// FieldCombination is allOf, anyOf, oneOf and not.
	FieldCombination SchemaKind = "combination"
	// FieldOpen is about whether unknown fields are kept.
	FieldOpen SchemaKind = "unknown fields"
)

// Narrowing is the answer to whether valid values are newly refused.
type Narrowing int

// The answers; Perhaps means that it depends on the values.
const (
	Widens Narrowing = iota
	Perhaps
	Narrows
)

// String is the answer in a word: no, perhaps, yes.
func (n Narrowing) String() string { return [...]string{"no", "perhaps", "yes"}[n] }

// SchemaChange is one change between the schemas of two releases of a version of a kind.
type SchemaChange struct {
	// Field is the path of the field in an object, with [] for the items of lists and [*] for the
	// values of maps, e.g. spec.disks[].size. It is "" for the object as a whole.
	Field string
	// At are the steps from the root of the newer schema to that of the field or, for a removed field, of its parent.
	At   []any
	Kind SchemaKind
	// Before and After are for people; "" means none.
	Before, After string
	// Narrows is about values of the field or, if the field became required, of its parent.
	Narrows Narrowing
	// Kept means, for a removed field, that its parent accepts unknown fields.
	Kept bool
	// Schema is that of the field in the newer release, or nil for a removed field; Old is that in the older one.
	Schema, Old *apiextensionsv1.JSONSchemaProps
}

// Schemas returns the changes from one schema to another, in the order of fields. Descriptions and examples are
// ignored, and so are the root's apiVersion, kind and metadata.
func Schemas(before, after *apiextensionsv1.JSONSchemaProps) []SchemaChange {
	w := &schemaWalk{}
	if before != nil && after != nil {
		w.schema(before, after, "", nil)
	}
	return w.changes
}

// schemaWalk compares two schemas field by field.
type schemaWalk struct{ changes []SchemaChange }

func (w *schemaWalk) add(c SchemaChange) { w.changes = append(w.changes, c) }

// schema compares two schemas of one field.
func (w *schemaWalk) schema(before, after *apiextensionsv1.JSONSchemaProps, field string, at []any) {
	change := func(kind SchemaKind, old, now string, narrows Narrowing) {
		w.add(SchemaChange{Field: field, At: at, Kind: kind, Before: old, After: now, Narrows: narrows, Schema: after, Old: before})
	}
	if old, now := typeOf(before), typeOf(after); old != now {
		change(FieldType, old, now, typeNarrows(old, now))
		return
	}
	compareEnums(before, after, change)
	if old, now := raw(before.Default), raw(after.Default); old != now {
		change(FieldDefault, old, now, Widens) // the parent reports a field that it makes required
	}
	compareLimits(before, after, change)
	compareTexts(before, after, change)
	compareRules(before, after, change)
	compareLists(before, after, change)
	if old, now := combination(before), combination(after); old != now {
		change(FieldCombination, old, now, narrowsIf(now != "", Perhaps))
	}
	w.fields(before, after, field, at)
	if before.Items != nil && after.Items != nil && before.Items.Schema != nil && after.Items.Schema != nil {
		w.schema(before.Items.Schema, after.Items.Schema, field+"[]", manifest.Join(at, "items"))
	}
	w.values(before, after, field, at)
}

// fields compares the named fields of two objects.
func (w *schemaWalk) fields(before, after *apiextensionsv1.JSONSchemaProps, field string, at []any) {
	for _, name := range unionKeys(before.Properties, after.Properties) {
		if field == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		old, was := before.Properties[name]
		now, is := after.Properties[name]
		below, inside := strings.TrimPrefix(field+"."+name, "."), manifest.Join(at, "properties", name)
		demands := demanded(after, name)
		switch {
		case !was:
			w.add(SchemaChange{Field: below, At: inside, Kind: FieldAdded, After: summary(&now, slices.Contains(after.Required, name)),
				Narrows: narrowsIf(demands, Narrows), Schema: &now})
			continue
		case !is:
			w.add(SchemaChange{Field: below, At: at, Kind: FieldRemoved, Before: summary(&old, slices.Contains(before.Required, name)),
				Narrows: Widens, Kept: openness(after) != notKept, Old: &old})
			continue
		}
		if demanded(before, name) != demands {
			kind, oldText, nowText := FieldOptional, "required", "optional"
			if demands {
				kind, oldText, nowText = FieldRequired, "optional", "required"
			}
			w.add(SchemaChange{Field: below, At: inside, Kind: kind, Before: oldText, After: nowText, Narrows: narrowsIf(demands, Narrows), Schema: &now, Old: &old})
		}
		w.schema(&old, &now, below, inside)
	}
}

// values compares how two schemas treat unknown fields.
func (w *schemaWalk) values(before, after *apiextensionsv1.JSONSchemaProps, field string, at []any) {
	old, now := openness(before), openness(after)
	if old != now {
		w.add(SchemaChange{Field: field, At: at, Kind: FieldOpen, Before: old, After: now, Schema: after, Old: before})
		return
	}
	if before.AdditionalProperties != nil && after.AdditionalProperties != nil && before.AdditionalProperties.Schema != nil && after.AdditionalProperties.Schema != nil {
		w.schema(before.AdditionalProperties.Schema, after.AdditionalProperties.Schema, field+"[*]", manifest.Join(at, "additionalProperties"))
	}
}

// Closes reports whether a change makes an API server drop values that it kept before: of a field, or of unknown
// fields.
func (c SchemaChange) Closes() bool {
	switch c.Kind {
	case FieldRemoved:
		return true
	case FieldOpen:
		return c.After == notKept
	}
	return false
}

// The ways to treat unknown fields.
const (
	kept    = "kept"
	ofAMap  = "keys of a map"
	notKept = "dropped"
)

// openness describes how unknown fields are treated.
func openness(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case schemas.KeepsUnnamed(s):
		return kept
	case s.AdditionalProperties != nil && (s.AdditionalProperties.Schema != nil || s.AdditionalProperties.Allows):
		return ofAMap
	}
	return notKept
}

// demanded reports whether an object without the field is refused: it is required, and has no default.
func demanded(s *apiextensionsv1.JSONSchemaProps, name string) bool {
	return slices.Contains(s.Required, name) && s.Properties[name].Default == nil
}

// typeOf names the type of a field.
func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "":
		return "any"
	}
	return s.Type
}

// typeNarrows reports whether values of one type may be refused as another.
func typeNarrows(before, after string) Narrowing {
	wider := map[string][]string{"integer": {"number", "integer or string"}, "string": {"integer or string"}}
	return narrowsIf(after != "any" && !slices.Contains(wider[before], after), Narrows)
}

func narrowsIf(condition bool, answer Narrowing) Narrowing {
	if condition {
		return answer
	}
	return Widens
}

// summaryType describes the type of a field in a few words.
func summaryType(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case openness(s) == ofAMap:
		return "map"
	case s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(s.Items.Schema)
	}
	return typeOf(s)
}

// isRequired ends the summary of a field that is required.
const isRequired = ", required"

// summary describes a field in a few words: its type, its default, and whether it is required.
func summary(s *apiextensionsv1.JSONSchemaProps, required bool) string {
	text := summaryType(s)
	if len(s.Enum) > 0 {
		text += ", one of " + strings.Join(enumTexts(s), ", ")
	}
	if value := raw(s.Default); value != "" {
		return text + ", default " + value
	}
	if required {
		text += isRequired
	}
	return text
}

// raw returns a JSON value as compact text, "" if there is none.
func raw(value *apiextensionsv1.JSON) string {
	if value == nil || len(value.Raw) == 0 {
		return ""
	}
	var decoded any
	if err := json.Unmarshal(value.Raw, &decoded); err != nil {
		return string(value.Raw)
	}
	return compact(decoded)
}

// compact returns a value as JSON in one line, with its keys in order.
func compact(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSpace(b.String())
}

// combination returns the parts of a schema other than the fields' own types, as text; "" means none.
func combination(s *apiextensionsv1.JSONSchemaProps) string {
	part := apiextensionsv1.JSONSchemaProps{AllOf: s.AllOf, AnyOf: s.AnyOf, OneOf: s.OneOf, Not: s.Not}
	if equality.Semantic.DeepEqual(part, apiextensionsv1.JSONSchemaProps{}) {
		return ""
	}
	return compact(part)
}
