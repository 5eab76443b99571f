package templates

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// topologyField returns the schema of a field in the value of a Cluster's variable, from the variable's schema in the
// class, or nil.
func (s *Samples) topologyField(known *Known, u *use) *schemas.Field {
	i := slices.Index(u.Path, any("value"))
	if len(u.Path) < 2 || u.Path[0] != "spec" || u.Path[1] != "topology" || i < 2 {
		return nil
	}
	if list := u.Path[i-2]; !isKind(u.document, "Cluster") || list != "variables" && list != "overrides" {
		return nil
	}
	class := known.class(s.className(u.document))
	name, _ := manifest.At(u.document.Object.Object, append(slices.Clone(u.Path[:i]), "name")...).(string)
	if class == nil {
		return nil
	}
	variables, _, _ := unstructured.NestedSlice(class.Object.Object, "spec", "variables")
	for _, v := range variables {
		if fields, _ := v.(map[string]any); fields != nil && fields["name"] == name {
			if field := schemas.FieldOf(manifest.At(fields, "schema", "openAPIV3Schema")); field != nil {
				return field.At(u.Path[i+1:])
			}
			return nil
		}
	}
	return nil
}

// className returns the name of the class that a Cluster names with these values, or "".
func (s *Samples) className(d *manifest.Document) string {
	for _, path := range [][]any{{"spec", "topology", "classRef", "name"}, {"spec", "topology", "class"}} {
		if text, _ := manifest.At(d.Object.Object, path...).(string); text != "" && isClassName(d, path) {
			return s.replace(text, "", "")
		}
	}
	return ""
}

// ClassFiles returns the ClusterClass definitions that the template's Clusters name with these values.
func (s *Samples) ClassFiles(known *Known) []release.File {
	if s.Published == nil {
		return nil
	}
	var files []release.File
	for _, d := range s.Published.Documents {
		wanted := s.className(d)
		i := slices.IndexFunc(known.Classes, func(f release.File) bool {
			name, err := release.ClusterClassName(f.Name)
			return err == nil && name == wanted
		})
		if i >= 0 && !slices.ContainsFunc(files, func(f release.File) bool { return f.Name == known.Classes[i].Name }) {
			files = append(files, known.Classes[i])
		}
	}
	return files
}

// class returns the ClusterClass with a name, or nil if no readable file has it.
func (k *Known) class(name string) *manifest.Document {
	if class, ok := k.classes[name]; ok {
		return class
	}
	if k.classes == nil {
		k.classes = map[string]*manifest.Document{}
	}
	k.classes[name] = nil
	for _, f := range k.Classes {
		if own, err := release.ClusterClassName(f.Name); err != nil || own != name {
			continue
		}
		published, err := Publish(f)
		if err != nil {
			continue
		}
		if i := slices.IndexFunc(published.Documents, func(d *manifest.Document) bool { return isKind(d, "ClusterClass") }); i >= 0 {
			k.classes[name] = published.Documents[i]
			break
		}
	}
	return k.classes[name]
}
