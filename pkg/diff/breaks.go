package diff

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// The methods called Breaks report whether a change breaks users: their objects, manifests or settings, or programs
// that read them. Perhaps means that it depends on the user. All formats show these answers.

// Breaks is about a removed kind: no controller reconciles its objects any more.
func (c CRDChange) Breaks() Narrowing { return narrowsIf(c.After == nil, Narrows) }

// Breaks is about a version that users can no longer write and read.
func (c VersionChange) Breaks() Narrowing {
	return narrowsIf(isServed(c.Before) && !isServed(c.After), Narrows)
}

// FieldBreaks is about a change in Fields or Migrations. A version that is neither served nor stored has no users. A
// new version does not change objects, unless they are not converted to it.
func (c CRDChange) FieldBreaks(fields VersionFields, change SchemaChange) Narrowing {
	v := c.After.Spec.Versions[fields.Index]
	if !v.Served && !v.Storage {
		return Widens
	}
	converted := c.After.Spec.Conversion != nil && c.After.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
	if fields.From != fields.Version && (converted || !v.Storage) {
		return Widens
	}
	return change.Breaks()
}

// Breaks is about a removed field, or values that are newly refused. The manager writes the status, and others only
// read it.
func (c SchemaChange) Breaks() Narrowing {
	if c.Under("status") || c.Under("spec.template.status") {
		return narrowsIf(c.dropsValues(), Perhaps)
	}
	return c.breaksValues()
}

// dropsValues reports whether values in the field, or in unknown fields, are dropped.
func (c SchemaChange) dropsValues() bool { return (c.Closes() || c.Kind == FieldRenamed) && !c.Kept }

// breaksValues reports whether values that users have set are dropped or refused.
func (c SchemaChange) breaksValues() Narrowing {
	switch {
	case c.dropsValues():
		return Narrows
	case c.HoldsForOld(context.Background()):
		return Widens
	}
	return c.Narrows
}

// Breaks is about a variable that users newly have to set, or that no longer has an effect.
func (c VariableChange) Breaks() Narrowing {
	switch {
	case c.Demanded():
		return Narrows
	case c.Kind == Removed:
		return Perhaps
	}
	return Widens
}

// Breaks is about a removed flavor or class.
func (d FileDifference) Breaks() Narrowing {
	return narrowsIf(d.Kind == Removed && d.Role != release.RoleOther, Narrows)
}

// Breaks is about a moved image, which mirrors have to follow.
func (c ImageChange) Breaks() Narrowing {
	registry, path := Repository(c.Before)
	newRegistry, newPath := Repository(c.After)
	return narrowsIf(c.Before != "" && c.After != "" && (registry != newRegistry || path != newPath), Perhaps)
}

// Breaks is about releases from which clusterctl no longer upgrades, or whose contract changed.
func (c SeriesChange) Breaks() Narrowing {
	switch {
	case c.Before == "":
		return Widens
	case c.After == "":
		return Narrows
	}
	return Perhaps
}
