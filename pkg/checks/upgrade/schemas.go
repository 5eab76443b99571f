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

// schemaChange is a change of the schema of a version of a kind that is in use.
type schemaChange struct {
	diff.SchemaChange
	crd *checks.CRD
	// version is the version's name, and index its place in the newer definition.
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

// place returns where in the definition the field is, or its parent where it is gone.
func (c schemaChange) place(more ...any) manifest.Place {
	path := []any{"spec", "versions", c.index, "schema", "openAPIV3Schema"}
	return c.crd.Place(manifest.Join(manifest.Join(path, c.At...), more...)...)
}

// name names the field.
func (c schemaChange) name() string {
	field := c.Field
	if field == "" {
		field = "the object"
	}
	return fmt.Sprintf("%s of %s %s", field, c.crd.Spec.Names.Kind, c.version)
}

// inStatus says whether the field is in a status, which only the manager writes.
func (c schemaChange) inStatus() bool { return c.Under("status") || c.Under("spec.template.status") }

// cause is the same for the same change of a field that several kinds and versions have, such as a
// kind and its template: a Go type is in many schemas. Fields are the same that have the same name.
func (c schemaChange) cause() string {
	return strings.Join([]string{string(c.Kind), c.Field[strings.LastIndex(c.Field, ".")+1:], c.Before, c.After}, "\x00")
}

var crdFieldRemoved = upgradeCheck("crd-field-removed", checks.Error, "No field is gone that users have set", sourceAPIChanges,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			if !c.Closes() {
				continue
			}
			what := fmt.Sprintf("%s is gone", c.name())
			switch {
			case c.Kind == diff.FieldRemoved && c.Kept:
				continue // a map, or an object that keeps what it does not name
			case c.Kind == diff.FieldOpen:
				what = fmt.Sprintf("%s takes no fields any more that the schema does not name", c.name())
			}
			f := checks.Finding{Place: c.place(), Cause: c.cause(), Message: what + ": the API server drops it from what is stored at the next write, whatever users have set",
				Fix: "keep the field, deprecated, as long as this version is there; what has no effect any more may stay without one"}
			switch {
			case c.inStatus():
				f.Severity, f.Message = checks.Note, what+": who reads it finds nothing"
				f.Fix = "say so in the release notes"
			case !c.stored:
				f.Severity, f.Message = checks.Warning, what+": the API server drops it from what users write in this version"
			}
			report(f)
		}
		return nil
	})

var crdFieldRequired = upgradeCheck("crd-field-required", checks.Error, "No field is required that existing objects lack", sourceAPIChanges,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			if c.Kind != diff.FieldRequired && c.Kind != diff.FieldAdded || c.Narrows == diff.Widens {
				continue
			}
			f := checks.Finding{Place: c.place(), Cause: c.cause(),
				Message: fmt.Sprintf("%s is required now and has no default: users' manifests without it are refused, and so is every change of objects that were made without it", c.name()),
				Fix:     "give the field a default, or leave it optional and let the controller say what is missing"}
			if c.inStatus() {
				f.Severity = checks.Note
				f.Message = fmt.Sprintf("%s is required now and has no default: what was stored without it is refused until the manager has written it", c.name())
			}
			report(f)
		}
		return nil
	})

var crdEnumNarrowed = upgradeCheck("crd-enum-narrowed", checks.Error, "No value is gone that a field could have", sourceAPIChanges,
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			if c.Kind != diff.FieldEnum || c.Narrows == diff.Widens {
				continue
			}
			gone, all := c.GoneValues()
			f := checks.Finding{Place: c.place("enum"), Cause: c.cause(),
				Message: fmt.Sprintf("%s can't be %s any more: users' manifests with it are refused, and so are existing objects where they are made again, as clusterctl move does", c.name(), strings.Join(gone, " or ")),
				Fix:     "keep the value, deprecated, as long as this version is there"}
			if all {
				f.Severity = checks.Warning
				f.Message = fmt.Sprintf("%s could be anything and is one of %s now: users' manifests with other values are refused", c.name(), c.After)
			}
			if c.inStatus() {
				f.Severity = checks.Note
				f.Message = fmt.Sprintf("%s can't be %s any more: a status in which the manager of the release before wrote it is refused until the new manager replaces it", c.name(), strings.Join(gone, " or "))
				if all {
					f.Message = fmt.Sprintf("%s could be anything and is one of %s now: a status in which the manager of the release before wrote another value is refused until the new manager replaces it", c.name(), c.After)
				}
				f.Fix = "let the new manager write a status that the schema accepts"
			}
			report(f)
		}
		return nil
	})

var crdValidationNarrowed = upgradeCheck("crd-validation-narrowed", checks.Warning, "What was right before is right now", sourceAPIChanges,
	func(ctx context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		for _, c := range u.schemaChanges() {
			severity, what := c.narrowing(ctx)
			if what == "" {
				continue
			}
			f := checks.Finding{Place: c.place(), Severity: severity, Cause: c.cause(),
				Message: fmt.Sprintf("%s: %s: what users have set before may be refused now", c.name(), what),
				Fix:     "leave what existing objects may have valid; say in the release notes what has to be changed before the upgrade"}
			if c.inStatus() {
				f.Message = fmt.Sprintf("%s: %s: a status that the manager of the release before wrote may be refused until the new manager replaces it", c.name(), what)
				f.Fix = "let the new manager write a status that the schema accepts"
			}
			report(f)
		}
		return nil
	})

var crdDefaultChanged = upgradeCheck("crd-default-changed", checks.Note, "Defaults of fields stay as they are", "Kubernetes, CustomResourceDefinition, Defaulting",
	func(_ context.Context, _ *checks.Subject, u *upgrade, report checks.Report) error {
		changes := slices.DeleteFunc(u.schemaChanges(), func(c schemaChange) bool { return c.Kind != diff.FieldDefault || c.inStatus() })
		for _, c := range changes {
			if c.emptyDefault() || slices.ContainsFunc(changes, c.defaultIsToldBy) {
				continue
			}
			place, message := c.place("default"), ""
			switch {
			case c.Before == "":
				message = fmt.Sprintf("%s has the default %s, and had none: objects that are stored without the field have it from now on, and controllers act on it", c.name(), c.After)
			case c.After == "":
				place = c.place()
				message = fmt.Sprintf("%s has no default, and had %s: objects that are made from now on lack the field", c.name(), c.Before)
			default:
				message = fmt.Sprintf("%s has the default %s, and had %s: the same manifest makes other objects than before, and what is stored keeps the old value", c.name(), c.After, c.Before)
			}
			report(checks.Finding{Place: place, Cause: c.cause(), Message: message, Fix: "say in the release notes what changes, and what to set to keep things as they were"})
		}
		return nil
	})

// emptyDefault says whether a default of "" came or went: a text that is not set is the same to a manager.
func (c schemaChange) emptyDefault() bool {
	const empty = `""`
	return (c.Before == "" || c.Before == empty) && (c.After == "" || c.After == empty)
}

// defaultIsToldBy says whether another change of a default has the same effect: that of an object whose
// default sets the field to the same values, or, for an object that is {} by default, those of its fields.
func (c schemaChange) defaultIsToldBy(o schemaChange) bool {
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

// defaultAt returns the value of a field in a default, which is JSON, or nil where it has none.
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

// narrowing says what a change asks for that was not asked for before, and how much that weighs; ""
// is nothing, or what another check says.
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

// narrowing words a change of a field by which values that were right may be refused.
func narrowing(ctx context.Context, c diff.SchemaChange) (checks.Severity, string) {
	reworded := checks.Warning
	if c.Before != "" {
		reworded = checks.Note // whether it takes less than before, only values can tell
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
			return checks.Note, "the rule is another: " + c.After
		}
		return checks.Warning, "it has a new rule: " + c.After
	}
	return "", ""
}

// instead tells of what was there before.
func instead(before string) string {
	if before == "" {
		return ""
	}
	return ", and before " + before
}
