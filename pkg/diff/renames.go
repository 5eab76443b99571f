package diff

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Renamed returns the changes, in which a removed field and a new one are one change, of kind FieldRenamed, if their
// schemas show that it is the same field and no other pair is as similar: see identities and, for fields of removed or
// new objects, moved. Before is the old path, and After the new one. Further changes in the field follow.
func Renamed(changes []SchemaChange) []SchemaChange {
	pairs := pairUp(changes, SchemaChange.identities)
	isGone := map[int]bool{}
	for to, from := range pairs {
		if related(changes[from], changes[to]) {
			isGone[from] = true
		} else {
			delete(pairs, to)
		}
	}
	var all []SchemaChange
	for i, c := range changes {
		from, isNew := pairs[i]
		switch {
		case isGone[i]:
		case !isNew:
			all = append(all, c)
		default:
			all = append(all, renamed(changes[from], c)...)
		}
	}
	return moved(all)
}

// renamed returns the change from a removed field to a new one, and the further changes in it.
func renamed(from, to SchemaChange) []SchemaChange {
	w := &schemaWalk{}
	if to.Narrows == Narrows && !strings.HasSuffix(from.Before, isRequired) {
		w.add(SchemaChange{Field: to.Field, At: to.At, Kind: FieldRequired, Before: "optional", After: "required", Narrows: Narrows, Schema: to.Schema, Old: from.Old})
	}
	w.schema(from.Old, to.Schema, to.Field, to.At)
	return append([]SchemaChange{{Field: to.Field, At: to.At, Kind: FieldRenamed, Before: from.Field, After: to.Field,
		Narrows: to.Narrows, Kept: from.Kept, Schema: to.Schema, Old: from.Old}}, Renamed(w.changes)...)
}

// pairUp returns the index of the former field for the index of each new field that has one: the two have a key in
// common, and neither has a key in common with another field.
func pairUp[T interface{ isRemoved() bool }](fields []T, keys func(field T) []string) map[int]int {
	type ends struct{ gone, come []int }
	alike := map[string]*ends{}
	for i, field := range fields {
		for _, key := range keys(field) {
			if alike[key] == nil {
				alike[key] = &ends{}
			}
			if field.isRemoved() {
				alike[key].gone = append(alike[key].gone, i)
			} else {
				alike[key].come = append(alike[key].come, i)
			}
		}
	}
	partner, rivals := map[int]int{}, map[int]bool{}
	pair := func(a, b int) {
		if other, taken := partner[a]; taken && other != b {
			rivals[a] = true
		}
		partner[a] = b
	}
	for _, e := range alike {
		switch {
		case len(e.gone) == 0 || len(e.come) == 0:
		case len(e.gone) == 1 && len(e.come) == 1:
			pair(e.gone[0], e.come[0])
			pair(e.come[0], e.gone[0])
		default:
			for _, i := range slices.Concat(e.gone, e.come) {
				rivals[i] = true
			}
		}
	}
	pairs := map[int]int{}
	for i, other := range partner {
		if !fields[i].isRemoved() && !rivals[i] && !rivals[other] {
			pairs[i] = other
		}
	}
	return pairs
}

// identities returns the keys that identify a new or removed field wherever it is: its type and its description; its
// name and the fields below it; without descriptions, at least three fields below it; or its type and its path in a
// normal spelling.
func (c SchemaChange) identities() []string {
	if c.Kind != FieldAdded && c.Kind != FieldRemoved {
		return nil
	}
	schema := c.is()
	name := leaf(c.Field)
	keys := []string{"spelled " + parentOf(c.Field) + " " + spelled(name) + " " + summaryType(schema)}
	shape, fields := shapeOf(schema)
	if fields > 1 {
		keys = append(keys, "moved "+name+" "+shape)
	}
	switch text := describedAs(schema.Description, name); {
	case text != "":
		keys = append(keys, "described "+summaryType(schema)+" "+text, "in units "+inUnits(schema.Description, name))
	case fields > 2:
		keys = append(keys, "bare "+shape)
	}
	return keys
}

// isRemoved reports whether the field was removed.
func (c SchemaChange) isRemoved() bool { return c.Kind == FieldRemoved }

// is returns the schema of a new or removed field.
func (c SchemaChange) is() *apiextensionsv1.JSONSchemaProps {
	if c.isRemoved() {
		return c.Old
	}
	return c.Schema
}

// related reports whether a field may have become another: both are in one object, or in an object and one around it, or
// the field has several fields below it, which moved with it.
func related(removed, added SchemaChange) bool {
	from, to := parentOf(removed.Field), parentOf(added.Field)
	around := within(from, to) || within(to, from)
	return from == to || around && leaf(removed.Field) == leaf(added.Field) || sameShape(removed.Old, added.Schema)
}

func sameShape(a, b *apiextensionsv1.JSONSchemaProps) bool {
	shape, fields := shapeOf(a)
	otherShape, _ := shapeOf(b)
	return fields > 1 && shape == otherShape
}

// shapeOf describes the types and names of all fields of a schema, and counts those that have a name.
func shapeOf(s *apiextensionsv1.JSONSchemaProps) (string, int) {
	var b strings.Builder
	fields := 0
	var write func(s *apiextensionsv1.JSONSchemaProps)
	write = func(s *apiextensionsv1.JSONSchemaProps) {
		b.WriteString(typeOf(s))
		if s.Items != nil && s.Items.Schema != nil {
			b.WriteString("[")
			write(s.Items.Schema)
			b.WriteString("]")
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			b.WriteString("<")
			write(s.AdditionalProperties.Schema)
			b.WriteString(">")
		}
		if len(s.Properties) == 0 {
			return
		}
		b.WriteString("{")
		for _, name := range unionKeys(s.Properties, nil) {
			fields++
			b.WriteString(compact(name) + ":")
			below := s.Properties[name]
			write(&below)
			b.WriteString(",")
		}
		b.WriteString("}")
	}
	write(s)
	return b.String(), fields
}

// describedAs returns a description without the field's own name, with which Go's comments begin.
func describedAs(description, name string) string {
	words := strings.Fields(description)
	if len(words) > 0 && strings.EqualFold(words[0], name) {
		words[0] = "…"
	}
	return strings.Join(words, " ")
}

// inUnits returns a key that does not depend on a unit at the end of the field's name: the rest of the name, and its
// description with that in all places.
func inUnits(description, name string) string {
	rest := name
	for _, unit := range units {
		rest = strings.TrimSuffix(rest, unit)
	}
	words := strings.Fields(description)
	for i := range words {
		if strings.EqualFold(words[i], name) {
			words[i] = rest
		}
	}
	return rest + " " + strings.Join(words, " ")
}

// units are the suffixes of numbers that were durations: timeoutSeconds was timeout.
var units = []string{"Milliseconds", "Seconds", "Minutes", "Hours", "Days"}

// leaf returns the last name of a path.
func leaf(field string) string {
	field = strings.TrimRight(field, "[]*")
	return field[strings.LastIndexByte(field, '.')+1:]
}

// parentOf returns the path of the object that a field is in.
func parentOf(field string) string {
	i := strings.LastIndexByte(field, '.')
	return field[:max(i, 0)]
}

// within reports whether a path equals another or is below it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || other == "" || rest[0] == '.' || rest[0] == '[')
}
