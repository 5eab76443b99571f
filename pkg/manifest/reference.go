package manifest

import "k8s.io/apimachinery/pkg/runtime/schema"

// Reference is a reference to an object. Missing fields are "".
type Reference struct {
	APIVersion, Kind, Namespace, Name string
	// Group is that of apiGroup, as in Cluster API's v1beta2, else that of the apiVersion.
	Group string
}

// ReferenceOf reads a map as a reference.
func ReferenceOf(fields map[string]any) Reference {
	r := Reference{
		APIVersion: Text(fields, "apiVersion"), Kind: Text(fields, "kind"),
		Namespace: Text(fields, "namespace"), Name: Text(fields, "name"),
	}
	if group, ok := fields["apiGroup"].(string); ok {
		r.Group = group
	} else {
		r.Group = schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group
	}
	return r
}

// GroupKind returns the group and kind of the object.
func (r Reference) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}
