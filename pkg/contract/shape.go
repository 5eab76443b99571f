package contract

import (
	"fmt"
	"slices"
	"strings"
)

// The types of a schema.
const (
	typeString   = "string"
	typeBoolean  = "boolean"
	typeInteger  = "integer"
	typeObject   = "object"
	typeList     = "array"
	typeMap      = "map"
	typeQuantity = "quantity"
)

// shape is the form of a field that Cluster API can read.
type shape struct {
	// kind is one of the types above.
	kind string
	// The limits are those of Cluster API's own field; 0 means no limit.
	maxLength, maximum, maxItems int64
	// fields are those of an object.
	fields fields
	// items are a list's items or a map's values.
	items *shape
	// listType is the merge type of a list, if the contract defines it, and listKeys are its keys.
	listType string
	listKeys []string
}

// field is a field of an object's shape.
type field struct {
	name  string
	shape shape
	// must means that the object is useless without the field.
	must bool
}

// The shapes that several rules share.
var (
	boolean  = shape{kind: typeBoolean}
	integer  = shape{kind: typeInteger}
	anyText  = shape{kind: typeString}
	anything = shape{kind: typeObject}
)

// text is a text of at most so many characters.
func text(maxLength int64) shape { return shape{kind: typeString, maxLength: maxLength} }

// object is an object with fields.
func object(fields ...field) shape { return shape{kind: typeObject, fields: fields} }

// listOf is a list of items.
func listOf(item shape) shape { return shape{kind: typeList, items: &item} }

// mapOf is a map of values.
func mapOf(value shape) shape { return shape{kind: typeMap, items: &value} }

// mergedBy is a list of at most maxItems items that is merged by its keys.
func mergedBy(maxItems int64, item shape, keys ...string) shape {
	return shape{kind: typeList, items: &item, maxItems: maxItems, listType: typeMap, listKeys: keys}
}

// atomicList is a list of at most maxItems items that is replaced as a whole.
func atomicList(maxItems int64, item shape) shape {
	return shape{kind: typeList, items: &item, maxItems: maxItems, listType: "atomic"}
}

// must is a mandatory field of an object.
func must(name string, s shape) field { return field{name: name, shape: s, must: true} }

// may is an optional field of an object.
func may(name string, s shape) field { return field{name: name, shape: s} }

// compare returns how an existing field differs from the shape.
func (s shape) compare(n node) []Problem {
	if n.schema == nil {
		return nil // open: the schema allows any value
	}
	if problem, ok := s.compareType(n); !ok {
		return []Problem{problem}
	}
	problems := s.compareLimits(n)
	switch s.kind {
	case typeObject:
		problems = append(problems, s.fields.compare(n)...)
	case typeList:
		problems = append(problems, s.compareList(n)...)
	case typeMap:
		if s.items != nil {
			problems = append(problems, s.items.compare(n.values())...)
		}
	}
	return problems
}

// fields are the fields of an object.
type fields []field

// compare returns how the fields of an object differ from their shapes.
func (fs fields) compare(parent node) []Problem {
	var problems []Problem
	for _, f := range fs {
		child := parent.field(f.name)
		switch {
		case child.there():
			problems = append(problems, f.shape.compare(child)...)
		case f.must:
			problems = append(problems, child.problem(Broken, fmt.Sprintf("%s, %s, is missing: the API server drops the values that a controller writes", child.name, f.shape.name())))
		}
	}
	return problems
}

// compareType reports whether the field has the shape's type.
func (s shape) compareType(n node) (Problem, bool) {
	got := typeOf(n)
	want := s.kind
	if got == want || got == "" {
		return Problem{}, true
	}
	// A quantity is written as a text or a number; a field of text alone is allowed too.
	if want == typeQuantity && (got == typeString || got == typeInteger) {
		return Problem{}, true
	}
	// An object without fields that keeps unknown fields can contain the entries of a map as well.
	if want == typeMap && got == typeObject && n.open {
		return Problem{}, true
	}
	if want == typeObject && len(s.fields) == 0 && got == typeMap {
		return Problem{}, true
	}
	return n.problem(Broken, fmt.Sprintf("%s is %s, but Cluster API reads %s", n.name, article(got), s.name())), false
}

// typeOf returns the type of a field, or "" if the schema allows any.
func typeOf(n node) string {
	switch s := n.schema; {
	case s.XIntOrString:
		return typeQuantity
	case s.Type == "":
		return ""
	case s.Type == typeObject && len(s.Properties) == 0 && s.AdditionalProperties != nil:
		return typeMap
	default:
		return s.Type
	}
}

// compareLimits returns the limits of the schema that exceed those of Cluster API's own field. A missing limit is not
// reported, because most schemas leave it to the controller.
func (s shape) compareLimits(n node) []Problem {
	var problems []Problem
	above := func(what string, got *int64, limit int64) {
		if got != nil && limit > 0 && *got > limit {
			p := n.problem(Lax, fmt.Sprintf("%s has %s %d, but Cluster API's own field allows %d: it can't copy a larger value", n.name, what, *got, limit))
			p.Path = append(slices.Clone(p.Path), what)
			p.Fix = fmt.Sprintf("lower %s to %d", what, limit)
			problems = append(problems, p)
		}
	}
	above("maxLength", n.schema.MaxLength, s.maxLength)
	above("maxItems", n.schema.MaxItems, s.maxItems)
	if n.schema.Maximum != nil {
		maximum := int64(*n.schema.Maximum)
		above("maximum", &maximum, s.maximum)
	}
	return problems
}

// compareList returns the problems of a list's items, and of its merge type if the schema sets it.
func (s shape) compareList(n node) []Problem {
	var problems []Problem
	if got := n.schema.XListType; s.listType != "" && got != nil {
		keys := strings.Join(n.schema.XListMapKeys, ", ")
		if *got != s.listType || s.listType == typeMap && keys != strings.Join(s.listKeys, ", ") {
			p := n.problem(Lax, fmt.Sprintf("%s is merged as a list of type %s, but the contract requires %s", n.name, described(*got, keys), described(s.listType, strings.Join(s.listKeys, ", "))))
			p.Path = append(slices.Clone(p.Path), "x-kubernetes-list-type")
			p.Fix = "set the markers listType=" + s.listType
			if len(s.listKeys) > 0 {
				p.Fix += " and listMapKey=" + strings.Join(s.listKeys, " and listMapKey=")
			}
			problems = append(problems, p)
		}
	}
	if s.items == nil {
		return problems
	}
	return append(problems, s.items.compare(n.items())...)
}

// described names a list type with its keys.
func described(listType, keys string) string {
	if keys == "" {
		return listType
	}
	return listType + " by " + keys
}

// name describes the shape.
func (s shape) name() string {
	if s.kind == typeList && s.items != nil {
		return "a list of " + plural(s.items.kind)
	}
	return article(s.kind)
}

// article returns a type's name with its article.
func article(kind string) string {
	switch kind {
	case typeList:
		return "a list"
	case typeInteger:
		return "an integer"
	case typeObject:
		return "an object"
	case typeQuantity:
		return "an integer or string"
	}
	return "a " + kind
}

// plural returns the name of many values of a type.
func plural(kind string) string {
	switch kind {
	case typeList:
		return "lists"
	case typeQuantity:
		return "quantities"
	}
	return kind + "s"
}
