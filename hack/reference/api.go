package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// apiPage returns the fields of all kinds. For a kind that embeds the spec of another one, it names that kind.
func apiPage() (string, error) {
	files, err := filepath.Glob("provider/config/crd/bases/*.yaml")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Kinds and their fields\n\n" + generated + `
All kinds are of the API group ` + "`infrastructure.cluster.x-k8s.io`" + `. ` + "`[]`" + ` stands for the items of a list, ` + "`{}`" + ` for the values of a map.
`)
	kinds := map[string]bool{}
	crds := make([]apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if err := yaml.UnmarshalStrict(content, &crds[i]); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		kinds[crds[i].Spec.Names.Kind] = true
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			names, schema := crd.Spec.Names, version.Schema.OpenAPIV3Schema
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", names.Kind, plain(paragraphs(schema.Description)))
			fmt.Fprintf(&b, "Version `%s`, scope %s, for kubectl `%s`.\n\n", version.Name, crd.Spec.Scope, strings.Join(append(names.ShortNames, names.Plural), "`, `"))
			f := fields{}
			if of := strings.TrimSuffix(names.Kind, "Template"); of != names.Kind && kinds[of] {
				f.embedded, f.of = "spec.template.spec", of
			}
			f.add("", "", *schema)
			b.WriteString(table([]string{"field", "type", "limits", "meaning"}, f.rows))
		}
	}
	return b.String(), nil
}

// fields collects a row for each field.
type fields struct {
	rows [][]string
	// embedded is the path of a field that is the spec of another kind, of.
	embedded, of string
}

// add adds the fields of an object, in the order of their names, required ones first. prefix precedes their names.
func (f *fields) add(path, prefix string, schema apiextensionsv1.JSONSchemaProps) {
	names := slices.SortedFunc(maps.Keys(schema.Properties), func(a, b string) int {
		if x, y := slices.Contains(schema.Required, a), slices.Contains(schema.Required, b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			continue
		}
		field := schema.Properties[name]
		own := prefix + name
		limits := limitsOf(field)
		if slices.Contains(schema.Required, name) {
			limits = append([]string{"required"}, limits...)
		}
		meaning := plain(field.Description)
		if own == f.embedded {
			f.rows = append(f.rows, []string{code(own), "object", strings.Join(limits, "; "),
				fmt.Sprintf("As `spec` of a [%s](#%s). %s", f.of, strings.ToLower(f.of), meaning)})
			continue
		}
		f.rows = append(f.rows, []string{code(own), typeOf(field), strings.Join(limits, "; "), meaning})
		f.below(own, field)
	}
}

// below adds the fields of an object, of the items of a list or of the values of a map.
func (f *fields) below(path string, field apiextensionsv1.JSONSchemaProps) {
	switch {
	case len(field.Properties) > 0:
		f.add(path, path+".", field)
	case strings.HasSuffix(path, ".conditions"): // their fields are those of all Kubernetes conditions
	case field.Items != nil && field.Items.Schema != nil:
		f.below(path+"[]", *field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		f.below(path+"{}", *field.AdditionalProperties.Schema)
	}
}

// typeOf names the type of a field. A field that is an integer or a string is a quantity in this API.
func typeOf(field apiextensionsv1.JSONSchemaProps) string {
	switch {
	case field.XIntOrString:
		return "quantity"
	case field.Items != nil && field.Items.Schema != nil:
		return "list of " + typeOf(*field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*field.AdditionalProperties.Schema)
	case field.Format != "":
		return field.Type + " (" + field.Format + ")"
	}
	return field.Type
}

// limitsOf describes the allowed values of a field, with its default.
func limitsOf(field apiextensionsv1.JSONSchemaProps) []string {
	var limits []string
	if field.Default != nil {
		limits = append(limits, "default "+code(string(field.Default.Raw)))
	}
	if len(field.Enum) > 0 {
		values := make([]string, len(field.Enum))
		for i, value := range field.Enum {
			values[i] = code(strings.Trim(string(value.Raw), `"`))
		}
		limits = append(limits, strings.Join(values, ", "))
	}
	limits = append(limits, between(field.Minimum, field.Maximum, "")...)
	limits = append(limits, between(field.MinLength, field.MaxLength, "character")...)
	limits = append(limits, between(field.MinItems, field.MaxItems, "item")...)
	limits = append(limits, between(field.MinProperties, field.MaxProperties, "field")...)
	if field.Pattern != "" && !field.XIntOrString {
		limits = append(limits, code(field.Pattern))
	}
	for _, rule := range field.XValidations {
		limits = append(limits, plain(rule.Message))
	}
	if field.Items != nil && field.Items.Schema != nil {
		for _, limit := range limitsOf(*field.Items.Schema) {
			limits = append(limits, "each "+limit)
		}
	}
	return limits
}

// between describes the range of a number, or of a number of characters, items or fields.
func between[N int64 | float64](least, most *N, what string) []string {
	number := func(n *N) string {
		text := strconv.FormatFloat(float64(*n), 'f', -1, 64)
		switch {
		case what == "":
			return text
		case *n == 1:
			return text + " " + what
		}
		return text + " " + what + "s"
	}
	switch {
	case least != nil && most != nil && *least == *most:
		return []string{number(least)}
	case least != nil && most != nil:
		return []string{strconv.FormatFloat(float64(*least), 'f', -1, 64) + " to " + number(most)}
	case least != nil:
		return []string{"at least " + number(least)}
	case most != nil:
		return []string{"at most " + number(most)}
	}
	return nil
}

// paragraphs joins the lines of each paragraph.
func paragraphs(text string) string {
	parts := strings.Split(text, "\n\n")
	for i, part := range parts {
		parts[i] = strings.Join(strings.Fields(part), " ")
	}
	return strings.Join(parts, "\n\n")
}
