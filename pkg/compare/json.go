package compare

import (
	"encoding/json"
	"io"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// jsonReport is the report as JSON; its schema is docs/diff.schema.json. The names are of its own, so
// that a change of the Go types does not change it.
type jsonReport struct {
	// What changed, provider by provider.
	Differences []jsonDifference `json:"differences"`

	// Releases of providers that only the newer set has.
	Added []jsonRelease `json:"added"`

	// Releases of providers that only the older set has.
	Removed []jsonRelease `json:"removed"`
}

type jsonRelease struct {
	// The provider's label, e.g. infrastructure-libvirt.
	Label string `json:"label"`

	// The release's version.
	Version string `json:"version"`
}

type jsonDifference struct {
	// The provider's label, e.g. infrastructure-libvirt.
	Label string `json:"label"`

	// The older version.
	Before string `json:"before"`

	// The newer version.
	After string `json:"after"`

	// Whether nothing changed.
	Empty bool `json:"empty"`

	// The contract of the releases' own series.
	Contract jsonValues `json:"contract"`

	// Release series that came, went, or have another contract.
	Series []jsonSeries `json:"series"`

	// Custom resource definitions.
	Kinds []jsonKind `json:"kinds"`

	// Images of containers.
	Images []jsonImage `json:"images"`

	// Variables of the components.
	Variables []jsonVariable `json:"variables"`

	// What roles allow.
	Permissions []jsonPermissions `json:"permissions"`

	// Objects of the components, without what the other lists say.
	Objects []jsonObject `json:"objects"`

	// Cluster templates, ClusterClasses and other files.
	Files []jsonFile `json:"files"`

	// Files that are other bytes and say the same.
	Reworded []string `json:"reworded"`
}

type jsonValues struct {
	// The value in the older release; empty is none.
	Before string `json:"before"`

	// The value in the newer release; empty is none.
	After string `json:"after"`
}

type jsonSeries struct {
	// Major and minor version, e.g. v0.1.
	Series string `json:"series"`
	jsonValues
}

type jsonKind struct {
	// The definition's name.
	Name string `json:"name"`

	// The kind.
	Kind string `json:"kind"`

	// What became of it.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// Its scope, conversion and labels.
	Properties []jsonField `json:"properties"`

	// Its versions.
	Versions []jsonVersion `json:"versions"`

	// The fields of the versions that both releases have.
	Fields []jsonSchemaField `json:"fields"`
}

type jsonField struct {
	// The field's path.
	Path string `json:"path"`
	jsonValues
}

type jsonVersion struct {
	// The version's name.
	Version string `json:"version"`
	jsonValues
}

type jsonSchemaField struct {
	// The version of the kind.
	Version string `json:"version"`

	// The field's path in an object, with [] for the items of lists and [*] for the values of maps.
	Path string `json:"path"`

	// What changed.
	Change SchemaKind `json:"change" jsonschema:"enum=added,enum=removed,enum=required,enum=optional,enum=type,enum=enum,enum=default,enum=limit,enum=pattern,enum=format,enum=nullable,enum=rule,enum=list type,enum=combination,enum=unknown fields"`

	// Whether values that were right before may be refused now.
	Narrows string `json:"narrows" jsonschema:"enum=no,enum=perhaps,enum=yes"`
	jsonValues
}

type jsonImage struct {
	// The object with the container.
	Object manifest.Object `json:"object"`

	// The container's name.
	Container string `json:"container"`
	jsonValues
}

type jsonVariable struct {
	// The variable's name.
	Name string `json:"name"`

	// What became of it.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// The default in the older release; null where it has to be set, or is not there.
	Before *string `json:"before" jsonschema:"oneof_type=string;null"`

	// The default in the newer release; null where it has to be set, or is not there.
	After *string `json:"after" jsonschema:"oneof_type=string;null"`
}

type jsonPermissions struct {
	// The Role or ClusterRole.
	Role manifest.Object `json:"role"`

	// What it allows and did not allow before.
	Added []jsonPermission `json:"added"`

	// What it allowed and allows no longer.
	Removed []jsonPermission `json:"removed"`
}

type jsonPermission struct {
	// The resource with its group, or a path.
	Resource string `json:"resource"`

	// What may be done with it.
	Verbs []string `json:"verbs"`
}

type jsonObject struct {
	// The object.
	Object manifest.Object `json:"object"`

	// What became of it.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// Its fields, with their values as JSON.
	Fields []jsonField `json:"fields"`
}

type jsonFile struct {
	// The file's name.
	Name string `json:"name"`

	// What it is for.
	Role release.Role `json:"role" jsonschema:"enum=cluster-template,enum=clusterclass,enum=other"`

	// What became of it.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// Its variables.
	Variables []jsonVariable `json:"variables"`

	// Its objects.
	Objects []jsonObject `json:"objects"`

	// Whether its objects could not be compared, as it is YAML only once its variables have values.
	Unread bool `json:"unread"`
}

// writeJSON shows a report for programs.
func writeJSON(r *Report, w io.Writer) error {
	out := jsonReport{Differences: each(r.Differences, (*Difference).json), Added: each(r.Added, releaseJSON), Removed: each(r.Removed, releaseJSON)}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// each applies a function to each item; the result is never nil.
func each[T, J any](items []T, convert func(T) J) []J {
	all := make([]J, 0, len(items))
	for _, item := range items {
		all = append(all, convert(item))
	}
	return all
}

func releaseJSON(r *release.Release) jsonRelease { return jsonRelease{r.Provider.Label(), r.Version} }

func (d *Difference) json() jsonDifference {
	return jsonDifference{
		Label: d.Provider.Label(), Before: d.Before, After: d.After, Empty: d.Empty(),
		Contract: jsonValues{d.Contract.Before, d.Contract.After},
		Series:   each(d.Series, func(c SeriesChange) jsonSeries { return jsonSeries{c.Series, jsonValues{c.Before, c.After}} }),
		Kinds:    each(d.CRDs, CRDChange.json),
		Images: each(d.Images, func(c ImageChange) jsonImage {
			return jsonImage{c.Object, c.Container, jsonValues{c.Before, c.After}}
		}),
		Variables: each(d.Variables, VariableChange.json),
		Permissions: each(d.Permissions, func(c PermissionChange) jsonPermissions {
			return jsonPermissions{c.Role, each(c.Added, Permission.json), each(c.Removed, Permission.json)}
		}),
		Objects: each(d.Objects, ObjectChange.json),
		Files: each(d.Files, func(f FileDifference) jsonFile {
			return jsonFile{f.Name, f.Role, f.Kind, each(f.Variables, VariableChange.json), each(f.Objects, ObjectChange.json), f.Unread}
		}),
		Reworded: append([]string{}, d.Reworded...),
	}
}

func (p Permission) json() jsonPermission { return jsonPermission(p) }

func (c FieldChange) json() jsonField { return jsonField{c.Path, jsonValues{c.Before, c.After}} }

func (c VariableChange) json() jsonVariable { return jsonVariable{c.Name, c.Kind, c.Before, c.After} }

func (c ObjectChange) json() jsonObject {
	return jsonObject{c.Object, c.Kind, each(c.Fields, FieldChange.json)}
}

func (c CRDChange) json() jsonKind {
	j := jsonKind{
		Name: c.Name, Change: Changed, Properties: each(c.Properties, FieldChange.json),
		Versions: each(c.Versions, func(v VersionChange) jsonVersion { return jsonVersion{v.Version, jsonValues{v.Before, v.After}} }),
		Fields:   []jsonSchemaField{},
	}
	switch {
	case c.Before == nil:
		j.Kind, j.Change = c.After.Spec.Names.Kind, Added
	case c.After == nil:
		j.Kind, j.Change = c.Before.Spec.Names.Kind, Removed
	default:
		j.Kind = c.After.Spec.Names.Kind
	}
	for _, f := range c.Fields {
		for _, change := range f.Changes {
			j.Fields = append(j.Fields, jsonSchemaField{f.Version, change.Field, change.Kind, change.Narrows.String(), jsonValues{change.Before, change.After}})
		}
	}
	return j
}
