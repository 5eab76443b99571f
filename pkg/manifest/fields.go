package manifest

import (
	"iter"
	"maps"
	"slices"
)

// Map returns the map at a path of field names, not a copy; nil if there is none.
func Map(fields map[string]any, path ...string) map[string]any {
	for _, step := range path {
		fields, _ = fields[step].(map[string]any)
	}
	return fields
}

// Text returns the text at a path of field names, or "" if there is none.
func Text(fields map[string]any, path ...string) string {
	last := len(path) - 1
	text, _ := Map(fields, path[:last]...)[path[last]].(string)
	return text
}

// List returns the list at a path of field names.
func List(fields map[string]any, path ...string) []any {
	last := len(path) - 1
	list, _ := Map(fields, path[:last]...)[path[last]].([]any)
	return list
}

// Maps returns the maps in the list at a path of field names, not copies, with their indices. It skips other items.
func Maps(fields map[string]any, path ...string) iter.Seq2[int, map[string]any] {
	return func(yield func(int, map[string]any) bool) {
		for i, item := range List(fields, path...) {
			if m, ok := item.(map[string]any); ok && !yield(i, m) {
				return
			}
		}
	}
}

// Texts returns the texts in the list at a path of field names.
func Texts(fields map[string]any, path ...string) []string {
	var texts []string
	for _, item := range List(fields, path...) {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// Child returns the value at a step of a path: a field by its name, or an item of a list by its index.
func Child(value, step any) (any, bool) {
	switch step := step.(type) {
	case string:
		fields, _ := value.(map[string]any)
		field, ok := fields[step]
		return field, ok
	case int:
		items, _ := value.([]any)
		if step >= 0 && step < len(items) {
			return items[step], true
		}
	}
	return nil, false
}

// At returns the value at a path of field names and indices; nil if there is none.
func At(value any, path ...any) any {
	for _, step := range path {
		value, _ = Child(value, step)
	}
	return value
}

// Join returns a path with more steps, without changing the original.
func Join(path []any, more ...any) []any {
	return slices.Concat(path, more)
}

// FieldName returns the last field name of a path: for an item of a list, that of the list.
func FieldName(path []any) string {
	for _, step := range slices.Backward(path) {
		if name, ok := step.(string); ok {
			return name
		}
	}
	return ""
}

// Walk calls visit for a value at a path and, if visit returns true, for all fields and items below it, fields in the
// order of their names. The path is overwritten after the call: clone it to keep it.
func Walk(value any, path []any, visit func(path []any, value any) bool) {
	walk(value, append(make([]any, 0, 16), path...), visit)
}

func walk(value any, path []any, visit func(path []any, value any) bool) {
	if !visit(path, value) {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], append(path, name), visit)
		}
	case []any:
		for i, item := range v {
			walk(item, append(path, i), visit)
		}
	}
}

// Edit returns the result of edit for a value and then for all fields and items of the result. It changes maps and
// lists in place.
func Edit(value any, edit func(any) any) any {
	value = edit(value)
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = Edit(field, edit)
		}
	case []any:
		for i, item := range v {
			v[i] = Edit(item, edit)
		}
	}
	return value
}
