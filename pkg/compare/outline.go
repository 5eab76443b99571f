package compare

import (
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// section is a part of what is shown of a difference. Text and Markdown show the same sections.
type section struct {
	title string
	// header names the columns of the rows; a section has rows or items.
	header []string
	rows   [][]string
	items  []string
}

// sections returns what is to be said of a difference, in its order.
func (d *Difference) sections() []section {
	var all []section
	add := func(s section) {
		if len(s.rows)+len(s.items) > 0 {
			all = append(all, s)
		}
	}
	add(d.metadataSection())
	add(d.kindsSection())
	for _, c := range d.CRDs {
		add(c.section())
	}
	add(imageSection(d.Images))
	add(variableSection("Variables of the components", d.Variables))
	add(permissionSection(d.Permissions))
	for _, s := range objectSections("", d.Objects) {
		add(s)
	}
	for _, s := range d.fileSections() {
		add(s)
	}
	if len(d.Reworded) > 0 {
		add(section{title: "Other text only", items: d.Reworded})
	}
	return all
}

// metadataSection tells of the contract and the release series.
func (d *Difference) metadataSection() section {
	s := section{title: "Contract and release series"}
	if d.Contract.Before != d.Contract.After {
		s.items = append(s.items, fmt.Sprintf("the contract is %s, and was %s", orNone(d.Contract.After), orNone(d.Contract.Before)))
	}
	for _, c := range d.Series {
		switch {
		case c.Before == "":
			s.items = append(s.items, fmt.Sprintf("series %s came, contract %s", c.Series, c.After))
		case c.After == "":
			s.items = append(s.items, fmt.Sprintf("series %s is gone, contract %s", c.Series, c.Before))
		default:
			s.items = append(s.items, fmt.Sprintf("series %s has contract %s, and had %s", c.Series, c.After, c.Before))
		}
	}
	return s
}

// kindsSection tells which kinds came and went.
func (d *Difference) kindsSection() section {
	s := section{title: "Kinds"}
	for _, c := range d.CRDs {
		switch {
		case c.Before == nil:
			s.items = append(s.items, fmt.Sprintf("added %s (%s)", c.After.Spec.Names.Kind, c.Name))
		case c.After == nil:
			s.items = append(s.items, fmt.Sprintf("removed %s (%s)", c.Before.Spec.Names.Kind, c.Name))
		}
	}
	return s
}

// section tells what changed in a kind.
func (c CRDChange) section() section {
	if c.Before == nil || c.After == nil {
		return section{}
	}
	s := section{title: fmt.Sprintf("%s (%s)", c.After.Spec.Names.Kind, c.Name), header: []string{"version", "field", "change", "before", "after"}}
	for _, p := range c.Properties {
		s.rows = append(s.rows, []string{"", p.Path, "changed", p.Before, p.After})
	}
	for _, v := range c.Versions {
		change := Changed
		switch {
		case v.Before == "":
			change = Added
		case v.After == "":
			change = Removed
		}
		s.rows = append(s.rows, []string{v.Version, "", string(change), v.Before, v.After})
	}
	for _, f := range c.Fields {
		for _, change := range f.Changes {
			s.rows = append(s.rows, []string{f.Version, change.Field, string(change.Kind), change.Before, change.After})
		}
	}
	return s
}

func imageSection(changes []ImageChange) section {
	s := section{title: "Images", header: []string{"object", "container", "before", "after"}}
	for _, c := range changes {
		s.rows = append(s.rows, []string{c.Object.String(), c.Container, c.Before, c.After})
	}
	return s
}

func variableSection(title string, changes []VariableChange) section {
	s := section{title: title, header: []string{"variable", "change", "default before", "default after"}}
	for _, c := range changes {
		before, after := defaultText(c.Before), defaultText(c.After)
		switch c.Kind {
		case Added:
			before = ""
		case Removed:
			after = ""
		}
		s.rows = append(s.rows, []string{c.Name, string(c.Kind), before, after})
	}
	return s
}

// defaultText is a variable's default for people.
func defaultText(value *string) string {
	switch {
	case value == nil:
		return "none: it must be set"
	case *value == "":
		return `""`
	}
	return *value
}

func permissionSection(changes []PermissionChange) section {
	s := section{title: "Permissions", header: []string{"role", "change", "verbs", "resource"}}
	for _, c := range changes {
		for _, p := range c.Added {
			s.rows = append(s.rows, []string{c.Role.String(), "added", strings.Join(p.Verbs, ", "), p.Resource})
		}
		for _, p := range c.Removed {
			s.rows = append(s.rows, []string{c.Role.String(), "removed", strings.Join(p.Verbs, ", "), p.Resource})
		}
	}
	return s
}

// objectSections tells of objects that came, went and changed; of is the file, or "" for components.
func objectSections(of string, changes []ObjectChange) []section {
	title := "Objects"
	if of != "" {
		title = "Objects of " + of
	}
	came := section{title: title}
	fields := section{title: "Fields of the " + strings.ToLower(title[:1]) + title[1:], header: []string{"object", "field", "before", "after"}}
	for _, c := range changes {
		if c.Kind != Changed {
			came.items = append(came.items, fmt.Sprintf("%s %s", c.Kind, c.Object))
		}
		for _, f := range c.Fields {
			fields.rows = append(fields.rows, []string{c.Object.String(), f.Path, f.Before, f.After})
		}
	}
	return []section{came, fields}
}

// fileSections tells of flavors, classes and other files.
func (d *Difference) fileSections() []section {
	came := section{title: "Flavors, classes and other files"}
	all := []section{{}}
	for _, f := range d.Files {
		text := fmt.Sprintf("%s %s", f.Kind, f.describe())
		if f.Unread {
			text += ", which is YAML only once its variables have values: its objects are not compared"
		}
		came.items = append(came.items, text)
		if f.Kind == Changed {
			all = append(all, variableSection("Variables of "+f.Name, f.Variables))
			all = append(all, objectSections(f.Name, f.Objects)...)
		}
	}
	all[0] = came
	return all
}

// describe names a file for people.
func (f FileDifference) describe() string {
	switch {
	case f.Role == release.RoleClusterTemplate && f.Title == "":
		return fmt.Sprintf("the default flavor (%s)", f.Name)
	case f.Role == release.RoleClusterTemplate:
		return fmt.Sprintf("flavor %s (%s)", f.Title, f.Name)
	case f.Role == release.RoleClusterClass:
		return fmt.Sprintf("ClusterClass %s (%s)", f.Title, f.Name)
	}
	return f.Name
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
