package diff

import (
	"io"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// jsonReport is the report as JSON; its schema is docs/diff.schema.json. It has types of its own, so that it does not
// change with the exported Go types.
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
	Contract jsonChange `json:"contract"`

	// Release series that were added, removed, or have another contract.
	Series []jsonSeries `json:"series"`

	// Custom resource definitions.
	Kinds []jsonKind `json:"kinds"`

	// Images of containers.
	Images []jsonImage `json:"images"`

	// Variables of the components.
	Variables []jsonVariable `json:"variables"`

	// Permissions of roles.
	Permissions []jsonPermissions `json:"permissions"`

	// Objects of the components, without the changes in the other lists.
	Objects []jsonObject `json:"objects"`

	// Cluster templates, ClusterClasses and other files.
	Files []jsonFile `json:"files"`

	// Files whose bytes differ, without a difference in content.
	Reworded []string `json:"reworded"`

	// Files of the older release that could not be read.
	Unread []jsonUnread `json:"unread"`
}

type jsonUnread struct {
	// The release's version.
	Version string `json:"version"`

	// The file's name.
	File string `json:"file"`

	// The parts that are not compared.
	What string `json:"what"`

	// Why it could not be read.
	Message string `json:"message"`
}

// jsonBreaks is a part of every change that may break users.
type jsonBreaks struct {
	// Whether it breaks users: their objects, manifests or settings, or programs that read them.
	Breaks string `json:"breaks" jsonschema:"enum=no,enum=perhaps,enum=yes"`
}

type jsonChange struct {
	jsonValues
	jsonBreaks
}

type jsonValues struct {
	// The value in the older release; empty if there is none.
	Before string `json:"before"`

	// The value in the newer release; empty if there is none.
	After string `json:"after"`
}

type jsonSeries struct {
	// Major and minor version, e.g. v0.1.
	Series string `json:"series"`
	jsonChange
}

type jsonKind struct {
	// The definition's name.
	Name string `json:"name"`

	// The kind.
	Kind string `json:"kind"`

	// The kind of the change.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// Its fields, except versions and their schemas.
	Properties []jsonField `json:"properties"`

	// Its versions.
	Versions []jsonVersion `json:"versions"`

	// The fields of the versions that both releases have.
	Fields []jsonSchemaField `json:"fields"`

	// How new versions differ from the version that was stored.
	Migrations []jsonMigration `json:"migrations"`
	jsonBreaks
}

type jsonMigration struct {
	// The version that was stored.
	From string `json:"from"`

	// The version that is new.
	To string `json:"to"`

	// The fields.
	Fields []jsonSchemaField `json:"fields"`
}

type jsonField struct {
	// The field's path.
	Path string `json:"path"`
	jsonChange
}

type jsonVersion struct {
	// The version's name.
	Version string `json:"version"`
	jsonChange
}

type jsonSchemaField struct {
	// The version of the kind; empty for a variable of a ClusterClass.
	Version string `json:"version"`

	// The field's path in an object, with [] for the items of lists and [*] for the values of maps.
	Path string `json:"path"`

	// What changed. The values of a renamed field are its paths.
	Change SchemaKind `json:"change" jsonschema:"enum=added,enum=removed,enum=renamed,enum=required,enum=optional,enum=type,enum=enum,enum=default,enum=limit,enum=pattern,enum=format,enum=nullable,enum=rule,enum=list type,enum=combination,enum=unknown fields"`

	// Whether values that were valid before may be refused now.
	Narrows string `json:"narrows" jsonschema:"enum=no,enum=perhaps,enum=yes"`
	jsonChange
}

type jsonImage struct {
	// The object with the container.
	Object manifest.Object `json:"object"`

	// The container's name.
	Container string `json:"container"`
	jsonChange
}

type jsonVariable struct {
	// The variable's name.
	Name string `json:"name"`

	// The kind of the change.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// The default in the older release; null if the variable has to be set or does not exist.
	Before *string `json:"before" jsonschema:"oneof_type=string;null"`

	// The default in the newer release; null if the variable has to be set or does not exist.
	After *string `json:"after" jsonschema:"oneof_type=string;null"`
	jsonBreaks
}

type jsonPermissions struct {
	// The Role or ClusterRole.
	Role manifest.Object `json:"role"`

	// Permissions that only the newer release has.
	Added []jsonPermission `json:"added"`

	// Permissions that only the older release has.
	Removed []jsonPermission `json:"removed"`
}

type jsonPermission struct {
	// The resource with its group, or a path.
	Resource string `json:"resource"`

	// The permitted verbs.
	Verbs []string `json:"verbs"`
}

type jsonObject struct {
	// The object.
	Object manifest.Object `json:"object"`

	// The kind of the change.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// Its fields, with their values as JSON.
	Fields []jsonField `json:"fields"`
}

type jsonFile struct {
	// The file's name.
	Name string `json:"name"`

	// The purpose of the file.
	Role release.Role `json:"role" jsonschema:"enum=cluster-template,enum=clusterclass,enum=other"`

	// The kind of the change.
	Change Kind `json:"change" jsonschema:"enum=added,enum=removed,enum=changed"`

	// Its variables.
	Variables []jsonVariable `json:"variables"`

	// Its objects.
	Objects []jsonObject `json:"objects"`

	// The variables of its ClusterClasses.
	Classes []jsonClass `json:"classes"`

	// Whether its objects could not be compared, because it is YAML only once its variables have values.
	Unread bool `json:"unread"`
	jsonBreaks
}

type jsonClass struct {
	// The ClusterClass.
	Class string `json:"class"`

	// Its variables; a path begins with the variable's name.
	Variables []jsonSchemaField `json:"variables"`
}

// writeJSON writes a report for programs.
func writeJSON(r *Report, w io.Writer) error {
	out := jsonReport{Differences: each(r.Differences, (*Difference).json), Added: each(r.Added, releaseJSON), Removed: each(r.Removed, releaseJSON)}
	return format.JSON(out, w)
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

func changeJSON(before, after string, breaks Narrowing) jsonChange {
	return jsonChange{jsonValues{before, after}, jsonBreaks{breaks.String()}}
}

func (d *Difference) json() jsonDifference {
	return jsonDifference{
		Label: d.Provider.Label(), Before: d.Before, After: d.After, Empty: d.Empty(),
		Contract: d.Contract.json().jsonChange,
		Series: each(d.Series, func(c SeriesChange) jsonSeries {
			return jsonSeries{c.Series, changeJSON(c.Before, c.After, c.Breaks())}
		}),
		Kinds: each(d.CRDs, CRDChange.json),
		Images: each(d.Images, func(c ImageChange) jsonImage {
			return jsonImage{c.Object, c.Container, changeJSON(c.Before, c.After, c.Breaks())}
		}),
		Variables: each(d.Variables, VariableChange.json),
		Permissions: each(d.Permissions, func(c PermissionChange) jsonPermissions {
			return jsonPermissions{c.Role, each(c.Added, Permission.json), each(c.Removed, Permission.json)}
		}),
		Objects:  each(d.Objects, ObjectChange.json),
		Files:    each(d.Files, FileDifference.json),
		Reworded: append([]string{}, d.Reworded...),
		Unread:   each(d.Unread, func(u Unread) jsonUnread { return jsonUnread(u) }),
	}
}

func (d FileDifference) json() jsonFile {
	f := jsonFile{
		Name: d.Name, Role: d.Role, Change: d.Kind, Variables: each(d.Variables, VariableChange.json), Objects: each(d.Objects, ObjectChange.json),
		Classes: each(d.Classes, func(c ClassChange) jsonClass {
			return jsonClass{c.Class, each(Renamed(c.Variables), func(v SchemaChange) jsonSchemaField { return v.json("", v.breaksValues()) })}
		}),
		Unread: d.Unread, jsonBreaks: jsonBreaks{d.Breaks().String()},
	}
	if d.Kind == Added {
		for i := range f.Variables {
			f.Variables[i].Breaks = Widens.String() // a new file has no users
		}
	}
	return f
}

func (p Permission) json() jsonPermission { return jsonPermission(p) }

func (c FieldChange) json() jsonField {
	return jsonField{c.Path, changeJSON(c.Before, c.After, c.Breaks)}
}

func (c VariableChange) json() jsonVariable {
	return jsonVariable{c.Name, c.Kind, c.Before, c.After, jsonBreaks{c.Breaks().String()}}
}

func (c ObjectChange) json() jsonObject {
	return jsonObject{c.Object, c.Kind, each(c.Fields, FieldChange.json)}
}

func (c SchemaChange) json(version string, breaks Narrowing) jsonSchemaField {
	return jsonSchemaField{version, c.Field, c.Kind, c.Narrows.String(), changeJSON(c.Before, c.After, breaks)}
}

func (c CRDChange) json() jsonKind {
	j := jsonKind{
		Name: c.Name, Kind: c.kind(), Change: Changed, Properties: each(c.Properties, FieldChange.json),
		Versions: each(c.Versions, func(v VersionChange) jsonVersion {
			return jsonVersion{v.Version, changeJSON(v.Before, v.After, v.Breaks())}
		}),
		Fields: []jsonSchemaField{}, jsonBreaks: jsonBreaks{c.Breaks().String()},
	}
	switch {
	case c.Before == nil:
		j.Change = Added
	case c.After == nil:
		j.Change = Removed
	}
	fields := func(f VersionFields) []jsonSchemaField {
		return each(Renamed(f.Changes), func(s SchemaChange) jsonSchemaField { return s.json(f.Version, c.FieldBreaks(f, s)) })
	}
	for _, f := range c.Fields {
		j.Fields = append(j.Fields, fields(f)...)
	}
	j.Migrations = each(c.Migrations, func(f VersionFields) jsonMigration { return jsonMigration{f.From, f.Version, fields(f)} })
	return j
}
