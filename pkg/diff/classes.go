package diff

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// ClassChange is what changed in the variables of a ClusterClass.
type ClassChange struct {
	Class string
	// Variables are changes of their schemas; Field begins with the variable's name.
	Variables []SchemaChange
}

// classes compares the variables of the ClusterClasses that two files have.
func classes(before, after []*manifest.Document) []ClassChange {
	old := byKey(before)
	var changes []ClassChange
	for key, d := range byKey(after) {
		if !isClass(d.Object) || old[key] == nil {
			continue
		}
		variables := Schemas(variablesOf(old[key].Object), variablesOf(d.Object))
		for i := range variables {
			variables[i].Field = strings.TrimPrefix(variables[i].Field, allVariables+".")
		}
		if len(variables) > 0 {
			changes = append(changes, ClassChange{key.name, variables})
		}
	}
	slices.SortFunc(changes, func(a, b ClassChange) int { return cmp.Compare(a.Class, b.Class) })
	return changes
}

func isClass(o unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == clusterv1.GroupVersion.Group && gvk.Kind == "ClusterClass"
}

// allVariables is the field that has the variables of a class in the schema that variablesOf returns.
const allVariables = "variables"

// variablesOf returns a schema for the values of a class' variables.
func variablesOf(class unstructured.Unstructured) *apiextensionsv1.JSONSchemaProps {
	all := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for _, variable := range manifest.Maps(class.Object, "spec", "variables") {
		name, schema := manifest.Text(variable, "name"), manifest.Map(variable, "schema")
		props := apiextensionsv1.JSONSchemaProps{}
		if data, err := json.Marshal(schema["openAPIV3Schema"]); err != nil || json.Unmarshal(data, &props) != nil {
			props = apiextensionsv1.JSONSchemaProps{} // it isn't a schema: its name is compared
		}
		all.Properties[name] = props
		if required, _ := variable["required"].(bool); required {
			all.Required = append(all.Required, name)
		}
	}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{allVariables: all}}
}

// withoutClassVariables returns all of an object but the variables of a ClusterClass.
func withoutClassVariables(o unstructured.Unstructured) map[string]any {
	spec, ok := o.Object["spec"].(map[string]any)
	if !ok || !isClass(o) {
		return o.Object
	}
	fields := maps.Clone(o.Object)
	rest := maps.Clone(spec)
	delete(rest, "variables")
	fields["spec"] = rest
	return fields
}
