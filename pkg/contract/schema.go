package contract

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// node is a field of a kind in the schema of one version.
type node struct {
	crd *CRD
	// schema is nil if the schema does not define the field.
	schema *apiextensionsv1.JSONSchemaProps
	// open means that the schema keeps unknown fields, so the field may exist.
	open bool
	// required means that every object must have the field.
	required bool
	// name is the field's path in an object, e.g. status.conditions[].type.
	name string
	// path leads to the field's schema in the CRD's document.
	path []any
}

// root returns the schema of a version as a whole.
func (c *CRD) root(version int) node {
	n := node{crd: c, open: true, path: []any{"spec", "versions", version, "schema"}}
	if version >= len(c.Spec.Versions) || c.Spec.Versions[version].Schema == nil {
		return n.below("", nil, "openAPIV3Schema")
	}
	return n.below("", c.Spec.Versions[version].Schema.OpenAPIV3Schema, "openAPIV3Schema")
}

// below returns the node of a schema in this one. If schema is nil, the field may exist only if this schema keeps
// unknown fields.
func (n node) below(name string, schema *apiextensionsv1.JSONSchemaProps, steps ...any) node {
	child := node{crd: n.crd, schema: schema, open: n.open, name: name, path: append(slices.Clone(n.path), steps...)}
	if schema != nil {
		child.open = schemas.KeepsUnnamed(schema)
	}
	return child
}

// there reports whether an object can have the field.
func (n node) there() bool { return n.schema != nil || n.open }

// field returns the field of that name below.
func (n node) field(name string) node {
	path := strings.TrimPrefix(n.name+"."+name, ".")
	if n.schema == nil {
		return n.below(path, nil, "properties", name)
	}
	s, ok := n.schema.Properties[name]
	if !ok {
		return n.below(path, nil, "properties", name)
	}
	child := n.below(path, &s, "properties", name)
	child.required = slices.Contains(n.schema.Required, name) && s.Default == nil
	return child
}

// at returns the field at a path below, such as spec.version.
func (n node) at(path string) node {
	for name := range strings.SplitSeq(path, ".") {
		n = n.field(name)
	}
	return n
}

// items returns the items of a list.
func (n node) items() node {
	if n.schema == nil || n.schema.Items == nil {
		return n.below(n.name+"[]", nil, "items")
	}
	return n.below(n.name+"[]", n.schema.Items.Schema, "items")
}

// values returns the values of a map; a schema that allows any value is open.
func (n node) values() node {
	if n.schema == nil || n.schema.AdditionalProperties == nil {
		return n.below(n.name+"[]", nil, "additionalProperties")
	}
	child := n.below(n.name+"[]", n.schema.AdditionalProperties.Schema, "additionalProperties")
	if child.schema == nil {
		child.open = n.schema.AdditionalProperties.Allows
	}
	return child
}

// problem returns a problem at the field.
func (n node) problem(weight Weight, reason string) Problem {
	return Problem{CRD: n.crd, Path: n.path, Reason: reason, Weight: weight}
}
