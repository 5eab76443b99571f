package diff

import (
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// notes describes every change in words.
func (d *Difference) notes() []note {
	var all []note
	for _, u := range d.Unread {
		all = append(all, note{of: notCompared, subject: u.File + " of " + u.Version, text: say(u.What+" are not compared: %s", u.Message)})
	}
	all = append(all, d.seriesNotes()...)
	all = append(all, variableNotes(d.Provider.ComponentsFile(), d.Variables)...)
	all = append(all, d.fileNotes()...)
	all = append(all, d.kindNotes()...)
	for _, c := range d.Permissions {
		all = append(all, permissionNotes(c)...)
	}
	for _, c := range d.Images {
		all = append(all, note{of: imageNames, subject: c.Object.String(), field: c.Container, text: prefixed("image ", fromTo(c.Before, c.After)), breaks: c.Breaks()})
	}
	for _, c := range d.Objects {
		all = append(all, objectNotes(c)...)
	}
	for _, name := range d.Reworded {
		all = append(all, note{of: otherFiles, subject: name, text: say("only its text changed")})
	}
	return all
}

// fromTo describes a change of a value; "" means none.
func fromTo(before, after string) phrase {
	switch {
	case before == "":
		return say("added: %s", after)
	case after == "":
		return say("removed, was %s", before)
	}
	return say("%s, was %s", after, before)
}

// prefixed returns a phrase with words before it.
func prefixed(words string, p phrase) phrase { return phrase{words + p.words, p.values} }

// seriesNotes describes the changes of the contract and the release series.
func (d *Difference) seriesNotes() []note {
	var all []note
	if c := d.Contract; c.Before != c.After {
		all = append(all, note{of: series, text: prefixed("contract ", fromTo(c.Before, c.After)), breaks: c.Breaks})
	}
	for _, c := range d.Series {
		text := say("contract %s, was %s", c.After, c.Before)
		switch {
		case c.Before == "":
			text = say("added, contract %s", c.After)
		case c.After == "":
			text = say("removed, contract was %s: clusterctl does not upgrade from its releases", c.Before)
		}
		all = append(all, note{of: series, field: c.Series, text: text, breaks: c.Breaks()})
	}
	return all
}

// variableNotes describes the changes of the variables of a file.
func variableNotes(file string, changes []VariableChange) []note {
	var all []note
	for _, c := range changes {
		all = append(all, note{of: variables, subject: file, field: c.Name, text: c.phrase(), breaks: c.Breaks()})
	}
	return all
}

// phrase describes the change of a variable.
func (c VariableChange) phrase() phrase {
	quoted := func(value *string) string {
		if *value == "" {
			return `""`
		}
		return *value
	}
	switch {
	case c.Kind == Added && c.After == nil:
		return say("added, and has to be set")
	case c.Kind == Added:
		return say("added, default %s", quoted(c.After))
	case c.Kind == Removed && c.Before == nil:
		return say("removed")
	case c.Kind == Removed:
		return say("removed, default was %s", quoted(c.Before))
	case c.After == nil:
		return say("has to be set, default was %s", quoted(c.Before))
	case c.Before == nil:
		return say("default %s, had to be set", quoted(c.After))
	}
	return say("default %s, was %s", quoted(c.After), quoted(c.Before))
}

// fileNotes describes the changes of flavors, classes and other files.
func (d *Difference) fileNotes() []note {
	var all []note
	for _, f := range newFirst(d.Files, func(f FileDifference) bool { return f.Kind == Added }) {
		n := note{of: flavors, subject: f.Name, breaks: f.Breaks()}
		what := f.what()
		switch {
		case f.Role == release.RoleOther:
			n.of, n.text = otherFiles, say(string(f.Kind))
		case f.Kind != Changed:
			n.text = say(what + " " + string(f.Kind))
		case f.Unread:
			n.text = say("changed; its objects are not compared, as it is YAML only once its variables have values")
		}
		if n.text.words != "" {
			all = append(all, n)
		}
		if f.Kind != Changed {
			continue
		}
		all = append(all, variableNotes(f.Name, f.Variables)...)
		for _, c := range f.Classes {
			for _, v := range Renamed(c.Variables) {
				all = append(all, note{of: variables, subject: "ClusterClass " + c.Class, field: v.Field, text: v.phrase(), breaks: v.breaksValues()})
			}
		}
		for _, o := range f.Objects {
			if o.Kind != Changed {
				all = append(all, note{of: flavors, subject: o.Object.String(), place: f.Name, text: say(string(o.Kind))})
			}
			for _, c := range o.Fields {
				all = append(all, note{of: flavors, subject: o.Object.String(), place: f.Name, field: c.Path, text: fromTo(c.Before, c.After)})
			}
		}
	}
	return all
}

// newFirst returns the new items of a list, and then the others.
func newFirst[T any](items []T, isNew func(T) bool) []T {
	isOld := func(item T) bool { return !isNew(item) }
	return append(slices.DeleteFunc(slices.Clone(items), isOld), slices.DeleteFunc(slices.Clone(items), isNew)...)
}

// what describes the kind of a file.
func (d FileDifference) what() string {
	switch {
	case d.Role == release.RoleClusterTemplate && d.Title == "":
		return "default flavor"
	case d.Role == release.RoleClusterTemplate:
		return "flavor"
	case d.Role == release.RoleClusterClass:
		return "ClusterClass"
	}
	return "file"
}

// kindNotes describes the changes of the CRDs.
func (d *Difference) kindNotes() []note {
	var all []note
	for _, c := range newFirst(d.CRDs, func(c CRDChange) bool { return c.Before == nil }) {
		kind := c.kind()
		if slices.ContainsFunc(d.CRDs, func(o CRDChange) bool { return o.Name != c.Name && o.kind() == kind }) {
			kind = c.Name
		}
		switch {
		case c.Before == nil:
			all = append(all, note{of: api, subject: kind, text: say("kind added")})
			continue
		case c.After == nil:
			all = append(all, note{of: api, subject: kind, text: say("kind removed"), breaks: c.Breaks()})
			continue
		}
		for _, v := range c.Versions {
			text := say(v.After + " (was " + v.Before + ")")
			switch {
			case v.Before == "":
				text = say("version added (" + v.After + ")")
			case v.After == "":
				text = say("version removed (was " + v.Before + ")")
			}
			all = append(all, note{of: api, subject: kind, place: v.Version, text: text, breaks: v.Breaks(), deprecates: v.Before != "" && v.deprecates()})
		}
		for _, p := range c.Properties {
			if n := propertyNote(kind, p); n.field != "deprecationWarning" || !c.newlyDeprecated(n.place) {
				all = append(all, n)
			}
		}
		for _, fields := range slices.Concat(c.Fields, c.Migrations) {
			place := fields.Version
			if fields.From != fields.Version {
				place = fields.From + " to " + fields.Version
			}
			changes := Renamed(fields.Changes)
			if fields.From != fields.Version { // what manifests of the old version lack or lose comes first
				changes = slices.Clone(changes)
				slices.SortStableFunc(changes, func(a, b SchemaChange) int { return b.weight() - a.weight() })
			}
			for _, change := range changes {
				subject, field := inTemplate(kind, change.Field)
				if change.Kind == FieldRenamed && field != change.Field {
					_, change.Before = inTemplate(kind, change.Before)
				}
				n := note{of: api, subject: subject, place: place, field: field, text: change.phrase(), breaks: c.FieldBreaks(fields, change),
					isLimit: change.Kind == FieldLimit && change.Before == ""}
				if change.limitsStatus() {
					n.of = statusLimits
				}
				all = append(all, n)
			}
		}
	}
	return all
}

// kind returns the kind that is defined.
func (c CRDChange) kind() string {
	if c.After == nil {
		return c.Before.Spec.Names.Kind
	}
	return c.After.Spec.Names.Kind
}

// newlyDeprecated reports whether a version is newly deprecated.
func (c CRDChange) newlyDeprecated(version string) bool {
	return slices.ContainsFunc(c.Versions, func(v VersionChange) bool { return v.Version == version && v.deprecates() })
}

// deprecates reports whether the version is newly deprecated.
func (v VersionChange) deprecates() bool { return isDeprecated(v.After) && !isDeprecated(v.Before) }

// limitsStatus reports whether a change restricts the values that the manager may write into the status.
func (c SchemaChange) limitsStatus() bool {
	switch c.Kind {
	case FieldLimit, FieldPattern, FieldFormat, FieldRequired, FieldOptional, FieldRule, FieldList, FieldNullable:
		return c.Under("status") || c.Under("spec.template.status")
	}
	return false
}

// versionPath splits the path of a property into the version of a kind and the rest.
var versionPath = regexp.MustCompile(`^spec\.versions\[([^\]]*)\]\.?(.*)$`)

// propertyNote describes the change of a property of a CRD.
func propertyNote(kind string, c FieldChange) note {
	n := note{of: api, subject: kind, field: c.Path, text: fromTo(c.Before, c.After), breaks: c.Breaks}
	if match := versionPath.FindStringSubmatch(c.Path); match != nil {
		n.place, n.field = match[1], match[2]
	}
	switch {
	case strings.HasPrefix(c.Path, "spec.conversion"), strings.HasPrefix(c.Path, "metadata.annotations[cert-manager.io/"):
		n.of = webhooks
	case strings.HasPrefix(c.Path, contractLabels):
		n.of = series
	case strings.HasPrefix(c.Path, "metadata."):
		n.of = definitionText
	}
	return n
}

// weight is greater for changes that need more attention when a manifest is written for another version.
func (c SchemaChange) weight() int {
	if c.dropsValues() {
		return int(Narrows) + 1
	}
	return int(c.Breaks())
}

// inTemplate names a kind and a field of it. A field in spec.template of a template kind has the name that it has in
// the kind created from the template, so that the same change in both is one line.
func inTemplate(kind, field string) (subject, path string) {
	if field == "" {
		return kind, "the object"
	}
	if rest, ok := strings.CutPrefix(field, "spec.template."); ok && strings.HasSuffix(kind, "Template") {
		return kind + " (spec.template)", rest
	}
	return kind, field
}

// phrase describes a change of a schema.
func (c SchemaChange) phrase() phrase {
	switch c.Kind {
	case FieldAdded:
		return say("added (%s)", c.After)
	case FieldRemoved:
		return say("removed (was %s)", c.Before)
	case FieldRenamed:
		if from := parentOf(c.Before); leaf(c.Before) == leaf(c.After) && from != "" {
			return say("moved, was in %s", from)
		}
		return say("renamed, was %s", c.Before)
	case FieldRequired, FieldOptional:
		return say(c.After + ", was " + c.Before)
	case FieldEnum:
		return c.enumPhrase()
	case FieldRule:
		if c.Before == "" {
			return say("rule added: %s", c.After)
		}
		return say("rule removed: %s", c.Before)
	case FieldLimit, FieldNullable:
		return fromTo(c.Before, c.After)
	case FieldOpen:
		return say("fields that the schema does not name: " + c.After + ", were " + c.Before)
	}
	return prefixed(string(c.Kind)+" ", fromTo(c.Before, c.After))
}

// enumPhrase describes the added and removed values.
func (c SchemaChange) enumPhrase() phrase {
	old, now := enumTexts(c.Old), enumTexts(c.Schema)
	added, removed := without(now, old), without(old, now)
	switch {
	case len(old) == 0:
		return phrase{"values are limited to %s", [][]string{now}}
	case len(now) == 0:
		return phrase{"values are no longer limited to %s", [][]string{old}}
	case len(removed) == 0:
		return phrase{"values added: %s", [][]string{added}}
	case len(added) == 0:
		return phrase{"values removed: %s", [][]string{removed}}
	}
	return phrase{"values removed: %s; added: %s", [][]string{removed, added}}
}

// permissionNotes describes the added and removed permissions of a role.
func permissionNotes(c PermissionChange) []note {
	var all []note
	add := func(words string, changes []Permission) {
		for _, p := range changes {
			all = append(all, note{of: permissions, subject: c.Role.String(), field: p.Resource, text: phrase{words, [][]string{p.Verbs}}})
		}
	}
	add("may %s", c.Added)
	add("may no longer %s", c.Removed)
	return all
}

// sectionOf returns the section for an object of a kind, except for kinds with their own section.
func sectionOf(c ObjectChange) *section {
	group, _, _ := strings.Cut(c.Object.APIVersion, "/")
	switch {
	case group == "rbac.authorization.k8s.io", c.Object.Kind == "ServiceAccount":
		return permissions
	case group == "admissionregistration.k8s.io", group == "cert-manager.io":
		return webhooks
	}
	return otherObjects
}

// flagPath matches the part of a path that belongs to a container's command line.
var flagPath = regexp.MustCompile(`(containers|initContainers)\[[^\]]*\]\.(args|command|env|envFrom)\b.*$`)

// objectNotes describes the changes of an object of the components.
func objectNotes(c ObjectChange) []note {
	n := note{of: sectionOf(c), subject: c.Object.String(), text: say(string(c.Kind))}
	if c.Kind != Changed {
		return []note{n}
	}
	var all []note
	for _, f := range c.Fields {
		n.field, n.text, n.breaks, n.of = f.Path, fromTo(f.Before, f.After), f.Breaks, sectionOf(c)
		if strings.HasSuffix(c.Object.Kind, "WebhookConfiguration") {
			if followsRules(f, c.Fields) {
				continue
			}
			n.field, n.text = webhookNote(f)
		}
		if manifest.HasPods(c.Object.Kind) {
			if path := flagPath.FindString(f.Path); path != "" {
				n.of, n.field = flags, path
			}
		}
		all = append(all, n)
	}
	return all
}
