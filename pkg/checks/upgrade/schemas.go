package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// schemaChange is a change in the schema of a version that is in use.
type schemaChange struct {
	diff.SchemaChange
	crd *checks.CRD
	// version is the version's name, and index its position in the newer CRD.
	version string
	index   int
	stored  bool
}

// schemaChanges returns the changes in versions that are served or stored.
func (u *upgrade) schemaChanges() []schemaChange {
	var all []schemaChange
	for _, c := range u.crds {
		for _, fields := range c.Fields {
			v := c.After.Spec.Versions[fields.Index]
			if !v.Served && !v.Storage {
				continue
			}
			for _, change := range fields.Changes {
				all = append(all, schemaChange{change, c.After, fields.Version, fields.Index, v.Storage})
			}
		}
	}
	return all
}

// place returns the place of the field in the CRD, or that of its parent if the field was removed.
func (c schemaChange) place(more ...any) manifest.Place {
	path := []any{"spec", "versions", c.index, "schema", "openAPIV3Schema"}
	return c.crd.Place(manifest.Join(manifest.Join(path, c.At...), more...)...)
}

// name describes the field.
func (c schemaChange) name() string {
	field := c.Field
	if field == "" {
		field = "the object"
	}
	return fmt.Sprintf("%s of %s %s", field, c.crd.Spec.Names.Kind, c.version)
}

// inStatus reports whether the field is in a status, which only the manager writes.
func (c schemaChange) inStatus() bool { return c.Under("status") || c.Under("spec.template.status") }

// cause is the same for the same change in several kinds and versions, such as a kind and its template, because one Go
// type is in many schemas. Fields are identified by their names.
func (c schemaChange) cause() string {
	return strings.Join([]string{string(c.Kind), c.Field[strings.LastIndex(c.Field, ".")+1:], c.Before, c.After}, "\x00")
}

var crdFieldRemoved = upgradeCheck("crd-field-removed", checks.Error, "No field is missing that users may have set", sourceAPIChanges,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			if !c.Closes() {
				continue
			}
			what := fmt.Sprintf("%s was removed", c.name())
			switch {
			case c.Kind == diff.FieldRemoved && c.Kept:
				continue // a map, or an object that keeps unknown fields
			case c.Kind == diff.FieldOpen:
				what = fmt.Sprintf("%s no longer accepts fields that the schema does not define", c.name())
			}
			f := checks.Finding{Place: c.place(), Cause: c.cause(), Message: what + ": at the next write, the API server drops the values that users have set",
				Fix: "keep the field, deprecated, as long as this version exists; it may stay without an effect"}
			switch {
			case c.inStatus():
				f.Severity, f.Message = checks.Note, what+": clients that read it get no value"
				f.Fix = "announce it in the release notes"
			case !c.stored:
				f.Severity, f.Message = checks.Warning, what+": the API server drops it from objects that users write in this version"
			}
			report(f)
		}
		return nil
	})

var crdFieldRequired = upgradeCheck("crd-field-required", checks.Error, "No field is required that existing objects may lack", sourceAPIChanges,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			if c.Kind != diff.FieldRequired && c.Kind != diff.FieldAdded || c.Narrows == diff.Widens {
				continue
			}
			f := checks.Finding{Place: c.place(), Cause: c.cause(),
				Message: fmt.Sprintf("%s is now required and has no default: users' manifests without it are refused, and so is every change of existing objects without it", c.name()),
				Fix:     "give the field a default, or leave it optional and let the controller report what is missing"}
			if c.inStatus() {
				f.Severity = checks.Note
				f.Message = fmt.Sprintf("%s is now required and has no default: stored objects without it are refused until the manager has written it", c.name())
			}
			report(f)
		}
		return nil
	})

var crdEnumNarrowed = upgradeCheck("crd-enum-narrowed", checks.Error, "No allowed value of a field is missing", sourceAPIChanges,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			if c.Kind != diff.FieldEnum || c.Narrows == diff.Widens {
				continue
			}
			gone, all := c.RemovedValues()
			f := checks.Finding{Place: c.place("enum"), Cause: c.cause(),
				Message: fmt.Sprintf("%s can't be %s any more: users' manifests with it are refused, and so are existing objects when they are created again, as clusterctl move does", c.name(), strings.Join(gone, " or ")),
				Fix:     "keep the value, deprecated, as long as this version exists"}
			if all {
				f.Severity = checks.Warning
				f.Message = fmt.Sprintf("%s could be anything and must now be one of %s: users' manifests with other values are refused", c.name(), c.After)
			}
			if c.inStatus() {
				f.Severity = checks.Note
				f.Message = fmt.Sprintf("%s can't be %s any more: a status that the previous manager wrote with it is refused until the new manager replaces it", c.name(), strings.Join(gone, " or "))
				if all {
					f.Message = fmt.Sprintf("%s could be anything and must now be one of %s: a status that the previous manager wrote with another value is refused until the new manager replaces it", c.name(), c.After)
				}
				f.Fix = "let the new manager write a status that the schema accepts"
			}
			report(f)
		}
		return nil
	})

var crdValidationNarrowed = upgradeCheck("crd-validation-narrowed", checks.Warning, "Valid values stay valid", sourceAPIChanges,
	func(ctx context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			severity, what := c.narrowing(ctx)
			if what == "" {
				continue
			}
			f := checks.Finding{Place: c.place(), Severity: severity, Cause: c.cause(),
				Message: fmt.Sprintf("%s: %s: values that users have set may now be refused", c.name(), what),
				Fix:     "keep the values of existing objects valid; document in the release notes what has to be changed before the upgrade"}
			if c.inStatus() {
				f.Message = fmt.Sprintf("%s: %s: a status that the previous manager wrote may be refused until the new manager replaces it", c.name(), what)
				f.Fix = "let the new manager write a status that the schema accepts"
			}
			report(f)
		}
		return nil
	})

var crdDefaultChanged = upgradeCheck("crd-default-changed", checks.Note, "Defaults of fields do not change", "Kubernetes, CustomResourceDefinition, Defaulting",
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		changes := slices.DeleteFunc(u.schemaChanges(), func(c schemaChange) bool { return c.Kind != diff.FieldDefault || c.inStatus() })
		for _, c := range changes {
			if c.emptyDefault() || slices.ContainsFunc(changes, c.defaultFollowsFrom) {
				continue
			}
			place, message := c.place("default"), ""
			switch {
			case c.Before == "":
				message = fmt.Sprintf("%s has the default %s, and had none: stored objects without the field get it, and controllers act on it", c.name(), c.After)
			case c.After == "":
				place = c.place()
				message = fmt.Sprintf("%s has no default, and had %s: new objects lack the field", c.name(), c.Before)
			default:
				message = fmt.Sprintf("%s has the default %s, and had %s: the same manifest creates different objects than before, and stored objects keep the old value", c.name(), c.After, c.Before)
			}
			report(checks.Finding{Place: place, Cause: c.cause(), Message: message, Fix: "explain in the release notes what changes, and which value keeps the old behaviour"})
		}
		return nil
	})

// emptyDefault reports whether a default of "" was added or removed: managers don't distinguish it from a missing text.
func (c schemaChange) emptyDefault() bool {
	const empty = `""`
	return (c.Before == "" || c.Before == empty) && (c.After == "" || c.After == empty)
}

// defaultFollowsFrom reports whether another change of a default has the same effect: that of an object whose default
// sets the field to the same values, or, for an object that is {} by default, those of its fields.
func (c schemaChange) defaultFollowsFrom(o schemaChange) bool {
	if c.crd.Name != o.crd.Name || c.version != o.version || c.Field == o.Field {
		return false
	}
	if o.Under(c.Field) {
		return (c.Before == "" || c.Before == "{}") && (c.After == "" || c.After == "{}")
	}
	path := strings.Split(strings.TrimPrefix(c.Field, o.Field+"."), ".")
	return c.Under(o.Field) && reflect.DeepEqual(defaultAt(o.Before, path), defaultAt(c.Before, nil)) &&
		reflect.DeepEqual(defaultAt(o.After, path), defaultAt(c.After, nil))
}

// defaultAt returns the value of a field in a default, which is JSON, or nil if it is missing.
func defaultAt(text string, path []string) any {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

// narrowing describes the new restriction of a change, with its severity; "" means no restriction, or one that another
// check reports.
func (c schemaChange) narrowing(ctx context.Context) (checks.Severity, string) {
	if c.Narrows == diff.Widens {
		return "", ""
	}
	severity, what := narrowing(ctx, c.SchemaChange)
	if c.inStatus() && what != "" {
		if c.Kind != diff.FieldType {
			return "", "" // only the manager writes it
		}
		severity = checks.Note
	}
	return severity, what
}

// narrowing describes a change of a field after which valid values may be refused.
func narrowing(ctx context.Context, c diff.SchemaChange) (checks.Severity, string) {
	reworded := checks.Warning
	if c.Before != "" {
		reworded = checks.Note // only values show whether it allows less than before
	}
	switch c.Kind {
	case diff.FieldType:
		return checks.Error, fmt.Sprintf("the type is %s, and was %s", c.After, c.Before)
	case diff.FieldLimit, diff.FieldNullable:
		if c.Before == "" {
			return checks.Warning, fmt.Sprintf("it has the limit %s, and had none", c.After)
		}
		return checks.Warning, fmt.Sprintf("the limit is %s, and was %s", c.After, c.Before)
	case diff.FieldPattern:
		return reworded, fmt.Sprintf("it has to match %s%s", c.After, instead(c.Before))
	case diff.FieldFormat:
		return checks.Note, fmt.Sprintf("its format is %s%s", c.After, instead(c.Before))
	case diff.FieldList:
		return checks.Warning, fmt.Sprintf("its items have to be unique: the list is a %s%s", c.After, instead(c.Before))
	case diff.FieldCombination:
		return reworded, fmt.Sprintf("it has to fit %s%s", c.After, instead(c.Before))
	case diff.FieldRule:
		switch {
		case c.HoldsForOld(ctx):
			return "", ""
		case c.Reworded():
			return checks.Note, "the rule changed to " + c.After
		}
		return checks.Warning, "it has a new rule: " + c.After
	}
	return "", ""
}

// instead describes the previous value.
func instead(before string) string {
	if before == "" {
		return ""
	}
	return ", and before " + before
}
