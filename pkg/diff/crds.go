package diff

import (
	"cmp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// CRDChange is what changed in one custom resource definition.
type CRDChange struct {
	// Name is the definition's, e.g. libvirthosts.infrastructure.cluster.x-k8s.io.
	Name string
	// Before is nil for a new CRD, and After for a removed one; the other fields are empty then.
	Before, After *contract.CRD
	// Properties are all fields but those in Versions and Fields.
	Properties []FieldChange
	Versions   []VersionChange
	Fields     []VersionFields
	// Migrations are the changes from the stored version to each new one.
	Migrations []VersionFields
}

// VersionChange is the change of a version of a kind: "served, stored", "not served", or "" for none.
type VersionChange struct{ Version, Before, After string }

// VersionFields are the changes of the schema of a version.
type VersionFields struct {
	Version string
	// From is the version of the older definition that it is compared with.
	From string
	// Index is that of the version in the newer definition.
	Index   int
	Changes []SchemaChange
}

// FieldChange is a field with its values as text; "" means none.
type FieldChange struct {
	Path, Before, After string
	Breaks              Narrowing
}

// CRDs returns the custom resource definitions that changed, by their names.
func CRDs(before, after []contract.CRD) []CRDChange {
	var changes []CRDChange
	for i := range before {
		old := &before[i]
		now := crdNamed(after, old.Name)
		c := CRDChange{Name: old.Name, Before: old, After: now}
		if now != nil {
			c.Properties, c.Versions = crdProperties(old, now), versionChanges(old, now)
			c.Fields, c.Migrations = versionFields(old, now)
			if len(c.Properties)+len(c.Versions)+len(c.Fields)+len(c.Migrations) == 0 {
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

// crdProperties compares two CRDs with the API server's defaults, without the schemas of their versions and the content
// of VersionChange.
func crdProperties(before, after *contract.CRD) []FieldChange {
	w := fieldWalk{plain: true}
	w.values(crdFields(before, after), crdFields(after, before), "")
	for i := range w.changes {
		w.changes[i].Breaks = propertyBreaks(w.changes[i])
	}
	return w.changes
}

// generatorAnnotation is the annotation with the version of controller-gen, which does not describe the kind.
const generatorAnnotation = "controller-gen.kubebuilder.io/version"

// crdFields returns the fields of a definition that crdProperties compares, with the versions that both definitions
// have.
func crdFields(crd, other *contract.CRD) map[string]any {
	plain := apiextensionsv1.CustomResourceDefinition{Spec: crd.Spec}
	plain.Spec.Versions = nil
	for _, v := range crd.Spec.Versions {
		if VersionIndex(other, v.Name) >= 0 {
			v.Schema, v.Served, v.Storage, v.Deprecated = nil, false, false, false
			plain.Spec.Versions = append(plain.Spec.Versions, v)
		}
	}
	plain = *plain.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&plain)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&plain)
	if err != nil {
		return nil // a definition that was read can be written
	}
	delete(fields, "status")
	annotations := anyValues(crd.Annotations)
	delete(annotations, generatorAnnotation)
	fields["metadata"] = map[string]any{"labels": anyValues(crd.Labels), "annotations": annotations}
	return fields
}

// anyValues returns a map with the same values.
func anyValues(texts map[string]string) map[string]any {
	all := map[string]any{}
	for key, text := range texts {
		all[key] = text
	}
	return all
}

// propertyBreaks reports whether a change of a definition's property breaks its users.
func propertyBreaks(c FieldChange) Narrowing {
	gone := c.Before != "" && c.After != c.Before
	switch {
	case c.Path == "spec.scope", c.Path == "spec.group", c.Path == "spec.names.kind", c.Path == "spec.names.plural":
		return Narrows
	case c.Path == "spec.conversion.strategy":
		return narrowsIf(c.After == string(apiextensionsv1.NoneConverter), Perhaps)
	case strings.HasPrefix(c.Path, contractLabels):
		versions := func(label string) []string { return strings.Split(label, "_") }
		return narrowsIf(gone && len(without(versions(c.Before), versions(c.After))) > 0, Perhaps)
	case strings.HasPrefix(c.Path, "spec.names."),
		strings.Contains(c.Path, "].subresources"), strings.Contains(c.Path, "].selectableFields"):
		return narrowsIf(gone, Perhaps)
	}
	return Widens
}

// contractLabels is the prefix of the paths of labels that declare contracts.
var contractLabels = "metadata.labels[" + clusterv1.GroupVersion.Group + "/v"

// versionChanges compares which versions exist, are served and are stored.
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

// isServed reports whether a version with this state is served.
func isServed(state string) bool { return strings.HasPrefix(state, "served") }

// isDeprecated reports whether a version with this state is deprecated.
func isDeprecated(state string) bool { return strings.HasSuffix(state, deprecated) }

// deprecated ends the state of a version that is deprecated.
const deprecated = ", deprecated"

// versionState describes in words what an API server does with a version.
func versionState(v apiextensionsv1.CustomResourceDefinitionVersion) string {
	state := "served"
	if !v.Served {
		state = "not served"
	}
	if v.Storage {
		state += ", stored"
	}
	if v.Deprecated {
		state += deprecated
	}
	return state
}

// versionFields compares the schemas of the versions that both definitions have, and the schemas of new versions with the
// schema of the version that was stored.
func versionFields(before, after *contract.CRD) (fields, migrations []VersionFields) {
	stored := slices.IndexFunc(before.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	for i, v := range after.Spec.Versions {
		at, to := VersionIndex(before, v.Name), &fields
		if at < 0 {
			at, to = stored, &migrations
		}
		if at < 0 {
			continue
		}
		old := before.Spec.Versions[at]
		if changes := Schemas(schemaOf(old), schemaOf(v)); len(changes) > 0 {
			*to = append(*to, VersionFields{Version: v.Name, From: old.Name, Index: i, Changes: changes})
		}
	}
	return fields, migrations
}

func schemaOf(v apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}

// definitions returns the custom resource definitions of two releases, and the other objects of each.
// A definition that one of them does not have as a definition is among the others in both.
func definitions(before, after []*manifest.Document) (old, now []contract.CRD, others, newOthers []*manifest.Document) {
	old, now = contract.ReadCRDs(before), contract.ReadCRDs(after)
	isOther := map[string]bool{}
	findOthers := func(documents []*manifest.Document, crds []contract.CRD) {
		for _, d := range documents {
			if name := d.Object.GetName(); d.Object.GetKind() == crdKind && crdNamed(crds, name) == nil {
				isOther[name] = true
			}
		}
	}
	findOthers(before, old)
	findOthers(after, now)
	isOtherCRD := func(c contract.CRD) bool { return isOther[c.Name] }
	isDefinition := func(d *manifest.Document) bool { return d.Object.GetKind() == crdKind && !isOther[d.Object.GetName()] }
	return slices.DeleteFunc(old, isOtherCRD), slices.DeleteFunc(now, isOtherCRD),
		slices.DeleteFunc(slices.Clone(before), isDefinition), slices.DeleteFunc(slices.Clone(after), isDefinition)
}

const crdKind = "CustomResourceDefinition"
