package compare

import (
	"cmp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

// CRDChange is what changed in one custom resource definition.
type CRDChange struct {
	// Name is the definition's, e.g. libvirthosts.infrastructure.cluster.x-k8s.io.
	Name string
	// Before is nil for one that came, and After for one that went; nothing else is said of these.
	Before, After *contract.CRD
	// Properties are those of the definition as a whole: its scope, kind, conversion and contract labels.
	Properties []FieldChange
	Versions   []VersionChange
	Fields     []VersionFields
}

// VersionChange is what became of a version of a kind: "served, stored", "not served", or "" for none.
type VersionChange struct{ Version, Before, After string }

// VersionFields are the changes of the schema of a version that both releases have.
type VersionFields struct {
	Version string
	// Index is that of the version in the newer definition.
	Index   int
	Changes []SchemaChange
}

// FieldChange is a field with its values as text; "" is none.
type FieldChange struct{ Path, Before, After string }

// CRDs returns the custom resource definitions that changed, by their names.
func CRDs(before, after []contract.CRD) []CRDChange {
	var changes []CRDChange
	for i := range before {
		old := &before[i]
		now := crdNamed(after, old.Name)
		c := CRDChange{Name: old.Name, Before: old, After: now}
		if now != nil {
			c.Properties, c.Versions, c.Fields = crdProperties(old, now), versionChanges(old, now), versionFields(old, now)
			if len(c.Properties)+len(c.Versions)+len(c.Fields) == 0 {
				continue
			}
		}
		changes = append(changes, c)
	}
	for i := range after {
		if crdNamed(before, after[i].Name) == nil {
			changes = append(changes, CRDChange{Name: after[i].Name, After: &after[i]})
		}
	}
	slices.SortStableFunc(changes, func(a, b CRDChange) int { return cmp.Compare(a.Name, b.Name) })
	return changes
}

func crdNamed(crds []contract.CRD, name string) *contract.CRD {
	i := slices.IndexFunc(crds, func(c contract.CRD) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &crds[i]
}

// crdProperties compares what is said of a kind as a whole.
func crdProperties(before, after *contract.CRD) []FieldChange {
	var changes []FieldChange
	compared := func(path, old, now string) {
		if old != now {
			changes = append(changes, FieldChange{path, old, now})
		}
	}
	compared("spec.names.kind", before.Spec.Names.Kind, after.Spec.Names.Kind)
	compared("spec.names.shortNames", strings.Join(before.Spec.Names.ShortNames, ", "), strings.Join(after.Spec.Names.ShortNames, ", "))
	compared("spec.names.categories", strings.Join(before.Spec.Names.Categories, ", "), strings.Join(after.Spec.Names.Categories, ", "))
	compared("spec.scope", string(before.Spec.Scope), string(after.Spec.Scope))
	compared("spec.conversion.strategy", conversionOf(before), conversionOf(after))
	for _, label := range unionKeys(before.Labels, after.Labels) {
		if strings.HasPrefix(label, clusterv1.GroupVersion.Group+"/v") || strings.Contains(label, "clusterctl.cluster.x-k8s.io") {
			compared("metadata.labels["+label+"]", present(before.Labels, label), present(after.Labels, label))
		}
	}
	return changes
}

// conversionOf returns how versions of a kind are converted.
func conversionOf(crd *contract.CRD) string {
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy == "" {
		return string(apiextensionsv1.NoneConverter)
	}
	return string(crd.Spec.Conversion.Strategy)
}

// present returns a label's value, quoted where it is empty, and "" where there is no such label.
func present(labels map[string]string, key string) string {
	value, ok := labels[key]
	if ok && value == "" {
		return `""`
	}
	return value
}

// versionChanges compares which versions are there, served and stored.
func versionChanges(before, after *contract.CRD) []VersionChange {
	var changes []VersionChange
	for _, v := range before.Spec.Versions {
		now := ""
		if i := VersionIndex(after, v.Name); i >= 0 {
			now = versionState(after.Spec.Versions[i])
		}
		if old := versionState(v); old != now {
			changes = append(changes, VersionChange{v.Name, old, now})
		}
	}
	for _, v := range after.Spec.Versions {
		if VersionIndex(before, v.Name) < 0 {
			changes = append(changes, VersionChange{v.Name, "", versionState(v)})
		}
	}
	return changes
}

// VersionIndex returns the index of a version in a definition, or -1.
func VersionIndex(crd *contract.CRD, name string) int {
	return slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
}

// versionState says in words what an API server does with a version.
func versionState(v apiextensionsv1.CustomResourceDefinitionVersion) string {
	state := "served"
	if !v.Served {
		state = "not served"
	}
	if v.Storage {
		state += ", stored"
	}
	if v.Deprecated {
		state += ", deprecated"
	}
	return state
}

// versionFields compares the schemas of the versions that both have.
func versionFields(before, after *contract.CRD) []VersionFields {
	var all []VersionFields
	for i, v := range after.Spec.Versions {
		at := VersionIndex(before, v.Name)
		if at < 0 {
			continue
		}
		if changes := Schemas(schemaOf(before.Spec.Versions[at]), schemaOf(v)); len(changes) > 0 {
			all = append(all, VersionFields{Version: v.Name, Index: i, Changes: changes})
		}
	}
	return all
}

func schemaOf(v apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}
