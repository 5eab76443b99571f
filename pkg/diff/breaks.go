package diff

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// The methods called Breaks say whether a change breaks what users have: their objects, manifests,
// settings, or what reads them. Perhaps is what only users can tell. All formats show these answers.

// Breaks is about a kind that is gone: nothing reconciles its objects any more.
func (c CRDChange) Breaks() Narrowing { return narrowsIf(c.After == nil, Narrows) }

// Breaks is about a version in which users can't write and read objects any more.
func (c VersionChange) Breaks() Narrowing {
	return narrowsIf(isServed(c.Before) && !isServed(c.After), Narrows)
}

// FieldBreaks is about a change in Fields or Migrations. A version that is neither served nor stored
// has no users. A new version leaves objects as they are, unless nothing converts them to it.
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

// Breaks is about a field: it is gone, or values that it could have are refused. The status is
// written by the manager, and only read by others.
func (c SchemaChange) Breaks() Narrowing {
	if c.Under("status") || c.Under("spec.template.status") {
		return narrowsIf(c.dropsValues(), Perhaps)
	}
	return c.breaksValues()
}

// dropsValues says whether values that are in the field, or in fields without a name, are dropped.
func (c SchemaChange) dropsValues() bool { return (c.Closes() || c.Kind == FieldRenamed) && !c.Kept }

// breaksValues says whether values that users have set are dropped or refused.
func (c SchemaChange) breaksValues() Narrowing {
	switch {
	case c.dropsValues():
		return Narrows
	case c.HoldsForOld(context.Background()):
		return Widens
	}
	return c.Narrows
}

// Breaks is about a variable that users have to set who did not have to before, or that has no effect
// any more.
func (c VariableChange) Breaks() Narrowing {
	switch {
	case c.Demanded():
		return Narrows
	case c.Kind == Removed:
		return Perhaps
	}
	return Widens
}

// Breaks is about a flavor or a class that is gone.
func (d FileDifference) Breaks() Narrowing {
	return narrowsIf(d.Kind == Removed && d.Role != release.RoleOther, Narrows)
}

// Breaks is about an image that has moved: mirrors of it have to follow.
func (c ImageChange) Breaks() Narrowing {
	registry, path := Repository(c.Before)
	newRegistry, newPath := Repository(c.After)
	return narrowsIf(c.Before != "" && c.After != "" && (registry != newRegistry || path != newPath), Perhaps)
}

// Breaks is about releases from which clusterctl does not upgrade any more, or which have another
// contract.
func (c SeriesChange) Breaks() Narrowing {
	switch {
	case c.Before == "":
		return Widens
	case c.After == "":
		return Narrows
	}
	return Perhaps
}

// ContractBreaks is about the contract of the releases: another one needs another Cluster API.
func (d *Difference) ContractBreaks() Narrowing {
	return narrowsIf(d.Contract.Before != "" && d.Contract.Before != d.Contract.After, Perhaps)
}
