package contract

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// node is a field of a kind, as the schema of one version has it.
type node struct {
	crd *CRD
	// schema is nil where the schema has no such field.
	schema *apiextensionsv1.JSONSchemaProps
	// open says that the schema takes fields that it does not name, so that the field may be there.
	open bool
	// required says that no object is taken without the field.
	required bool
	// name is the field's path in an object, e.g. status.conditions[].type.
	name string
	// path leads to the field's schema in the definition's document.
	path []any
}

// root returns the schema of a version as a whole.
func (c *CRD) root(version int) node {
	n := node{crd: c, path: []any{"spec", "versions", version, "schema", "openAPIV3Schema"}}
	if version >= len(c.Spec.Versions) || c.Spec.Versions[version].Schema == nil || c.Spec.Versions[version].Schema.OpenAPIV3Schema == nil {
		n.open = true
		return n
	}
	n.schema = c.Spec.Versions[version].Schema.OpenAPIV3Schema
	n.open = preserves(n.schema)
	return n
}

// preserves says whether a schema takes fields that it does not name.
func preserves(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

// there says whether an object can have the field.
func (n node) there() bool { return n.schema != nil || n.open }

// field returns the field of that name below.
func (n node) field(name string) node {
	child := node{crd: n.crd, name: name, path: append(slices.Clone(n.path), "properties", name)}
	if n.name != "" {
		child.name = n.name + "." + name
	}
	if n.schema == nil {
		child.open = n.open
		return child
	}
	if s, ok := n.schema.Properties[name]; ok {
		child.schema = &s
		child.open = preserves(&s)
		child.required = slices.Contains(n.schema.Required, name) && s.Default == nil
		return child
	}
	child.open = preserves(n.schema)
	return child
}

// at returns the field at a path below.
func (n node) at(path ...string) node {
	for _, name := range path {
		n = n.field(name)
	}
	return n
}

// items returns what a list holds.
func (n node) items() node {
	child := node{crd: n.crd, name: n.name + "[]", path: append(slices.Clone(n.path), "items")}
	if n.schema == nil || n.schema.Items == nil || n.schema.Items.Schema == nil {
		child.open = n.open
		return child
	}
	child.schema = n.schema.Items.Schema
	child.open = preserves(child.schema)
	return child
}

// values returns what a map holds; a schema that takes any value is open.
func (n node) values() node {
	child := node{crd: n.crd, name: n.name + "[]", path: append(slices.Clone(n.path), "additionalProperties")}
	if n.schema == nil || n.schema.AdditionalProperties == nil {
		child.open = n.open
		return child
	}
	child.schema = n.schema.AdditionalProperties.Schema
	child.open = child.schema == nil && n.schema.AdditionalProperties.Allows || child.schema != nil && preserves(child.schema)
	return child
}

// problem returns a problem at the field.
func (n node) problem(weight Weight, reason string) Problem {
	return Problem{CRD: n.crd, Path: n.path, Reason: reason, Weight: weight}
}
