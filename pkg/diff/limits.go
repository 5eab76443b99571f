package diff

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// changed receives one change of a field.
type changed func(kind SchemaKind, before, after string, narrows Narrowing)

// compareEnums reports the added and removed values.
func compareEnums(before, after *apiextensionsv1.JSONSchemaProps, change changed) {
	old, now := enumTexts(before), enumTexts(after)
	removed, added := without(old, now), without(now, old)
	if len(removed) == 0 && len(added) == 0 {
		return
	}
	narrows := narrowsIf(len(now) > 0 && (len(old) == 0 || len(removed) > 0), Narrows)
	change(FieldEnum, strings.Join(old, ", "), strings.Join(now, ", "), narrows)
}

// enumTexts returns the values of an enum as JSON.
func enumTexts(s *apiextensionsv1.JSONSchemaProps) []string {
	var texts []string
	for i := range s.Enum {
		texts = append(texts, raw(&s.Enum[i]))
	}
	return texts
}

// RemovedValues returns the removed values of an enum; all is true if there was no enum before, so that any other value
// is now refused.
func (c SchemaChange) RemovedValues() (removed []string, all bool) {
	if c.Old == nil || c.Schema == nil {
		return nil, false
	}
	return without(enumTexts(c.Old), enumTexts(c.Schema)), len(c.Old.Enum) == 0
}

// without returns the items of a list that another does not have.
func without(list, other []string) []string {
	var left []string
	for _, item := range list {
		if !slices.Contains(other, item) {
			left = append(left, item)
		}
	}
	return left
}

// limit is a limit of a number or a length.
type limit struct {
	name string
	// upper says that smaller limits are narrower.
	upper bool
	value func(s *apiextensionsv1.JSONSchemaProps) (float64, bool)
}

// limits are the limits that are compared as numbers.
var limits = []limit{
	{"maximum", true, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.Maximum) }},
	{"minimum", false, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.Minimum) }},
	{"maxLength", true, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.MaxLength) }},
	{"minLength", false, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.MinLength) }},
	{"maxItems", true, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.MaxItems) }},
	{"minItems", false, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.MinItems) }},
	{"maxProperties", true, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.MaxProperties) }},
	{"minProperties", false, func(s *apiextensionsv1.JSONSchemaProps) (float64, bool) { return number(s.MinProperties) }},
}

// number returns the number that a limit points to, false if there is none.
func number[N int64 | float64](n *N) (float64, bool) {
	if n == nil {
		return 0, false
	}
	return float64(*n), true
}

// compareLimits reports the changed limits of numbers and lengths.
func compareLimits(before, after *apiextensionsv1.JSONSchemaProps, change changed) {
	for _, l := range limits {
		old, was := l.value(before)
		now, is := l.value(after)
		if was == is && old == now {
			continue
		}
		tighter := is && (!was && !l.trivial(now) || was && (l.upper && now < old || !l.upper && now > old))
		change(FieldLimit, l.text(old, was), l.text(now, is), narrowsIf(tighter, Narrows))
	}
	for _, exclusive := range []struct {
		name   string
		is, on bool
	}{
		{"exclusiveMaximum", before.ExclusiveMaximum, after.ExclusiveMaximum},
		{"exclusiveMinimum", before.ExclusiveMinimum, after.ExclusiveMinimum},
	} {
		if exclusive.is != exclusive.on {
			change(FieldLimit, fmt.Sprintf("%s %v", exclusive.name, exclusive.is), fmt.Sprintf("%s %v", exclusive.name, exclusive.on), narrowsIf(exclusive.on, Narrows))
		}
	}
	old, was := number(before.MultipleOf)
	now, is := number(after.MultipleOf)
	if was != is || old != now {
		l := limit{name: "multipleOf"}
		change(FieldLimit, l.text(old, was), l.text(now, is), narrowsIf(is, Perhaps))
	}
}

// trivial reports whether a new limit has no effect, such as a minimum length of 0.
func (l limit) trivial(value float64) bool {
	return !l.upper && value <= 0 && l.name != "minimum"
}

func (l limit) text(value float64, there bool) string {
	if !there {
		return ""
	}
	number := fmt.Sprintf("%.6f", value) // without an exponent
	return l.name + " " + strings.TrimRight(strings.TrimRight(number, "0"), ".")
}

// compareTexts reports changes of a pattern, a format, and of whether null is accepted.
func compareTexts(before, after *apiextensionsv1.JSONSchemaProps, change changed) {
	if before.Pattern != after.Pattern {
		change(FieldPattern, before.Pattern, after.Pattern, narrowsIf(after.Pattern != "", Perhaps))
	}
	if before.Format != after.Format {
		// Every int32 is an int64. A format may not be checked at all, so other changes only perhaps refuse values.
		change(FieldFormat, before.Format, after.Format, narrowsIf(after.Format != "" && (before.Format != "int32" || after.Format != "int64"), Perhaps))
	}
	if before.Nullable != after.Nullable {
		change(FieldNullable, fmt.Sprintf("nullable %v", before.Nullable), fmt.Sprintf("nullable %v", after.Nullable), narrowsIf(before.Nullable, Narrows))
	}
}

// compareRules reports the added and removed CEL rules. Their messages may change.
func compareRules(before, after *apiextensionsv1.JSONSchemaProps, change changed) {
	old, now := ruleTexts(before), ruleTexts(after)
	for _, rule := range without(now, old) {
		change(FieldRule, "", rule, Perhaps)
	}
	for _, rule := range without(old, now) {
		change(FieldRule, rule, "", Widens)
	}
}

func ruleTexts(s *apiextensionsv1.JSONSchemaProps) []string {
	var rules []string
	for _, rule := range s.XValidations {
		rules = append(rules, strings.Join(strings.Fields(rule.Rule), " "))
	}
	return rules
}

// compareLists reports changes of a list's type and of the keys of its items.
func compareLists(before, after *apiextensionsv1.JSONSchemaProps, change changed) {
	old, now := listType(before), listType(after)
	if old == now {
		return
	}
	change(FieldList, old, now, narrowsIf(now != "atomic", Perhaps))
}

// listType describes the keys of the items of a list; items of an atomic list have none.
func listType(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XListType == nil {
		return "atomic"
	}
	if len(s.XListMapKeys) == 0 {
		return *s.XListType
	}
	return *s.XListType + " by " + strings.Join(s.XListMapKeys, ", ")
}
