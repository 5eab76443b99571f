package rendered

import (
	"cmp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// Reference is a reference of an object to another one.
type Reference struct {
	manifest.Reference
	Path []any
}

// References returns the references to objects below a value, in the order of fields: maps with a kind and a name that
// also have an apiVersion, or whose field is called ref, templateRef and the like.
func References(value any, path []any) []Reference {
	var found []Reference
	manifest.Walk(value, path, func(path []any, value any) bool {
		fields, _ := value.(map[string]any)
		isRef := isReferenceAt(fields, path)
		if isRef {
			found = append(found, Reference{manifest.ReferenceOf(fields), slices.Clone(path)})
		}
		return !isRef
	})
	return found
}

// isReferenceAt reports whether a map is a reference. A map with metadata is an object.
func isReferenceAt(fields map[string]any, path []any) bool {
	_, hasKind := fields["kind"].(string)
	_, hasName := fields["name"].(string)
	_, hasVersion := fields["apiVersion"].(string)
	_, isObject := fields["metadata"]
	field, _ := path[len(path)-1].(string)
	return hasKind && hasName && (field == "ref" || strings.HasSuffix(field, "Ref") || hasVersion && !isObject)
}

// SortedReferences returns the references in an object's spec, in the order of their paths.
func SortedReferences(o Object) []Reference {
	found := References(o.Object["spec"], []any{"spec"})
	slices.SortFunc(found, func(a, b Reference) int {
		return cmp.Compare(manifest.FieldPath(a.Path...), manifest.FieldPath(b.Path...))
	})
	return found
}

// Has reports whether a template contains the object that another one refers to.
func (t *Template) Has(from Object, r Reference) bool {
	if t.objectNames == nil {
		t.objectNames = newNameIndex(t)
	}
	return t.objectNames.has(r.Kind, t.NameAt(from, manifest.Join(r.Path, "name")...))
}

// ClusterNames returns the names of the Clusters of a template.
func (t *Template) ClusterNames() []string {
	var names []string
	for _, o := range t.Objects {
		if o.IsCore("Cluster") {
			names = append(names, o.GetName())
		}
	}
	return names
}
