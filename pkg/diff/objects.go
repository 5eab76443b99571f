package diff

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// ObjectChange is the change of an object of a file.
type ObjectChange struct {
	Object manifest.Object
	Kind   Kind
	// Fields are those that changed, where both releases have the object.
	Fields []FieldChange
}

// Kind is the kind of a change: added, removed or changed.
type Kind string

// The kinds of changes.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// objectKey identifies an object after clusterctl has put all objects into one namespace.
type objectKey struct{ group, kind, name string }

func keyOf(o unstructured.Unstructured) objectKey {
	gvk := o.GroupVersionKind()
	return objectKey{gvk.Group, gvk.Kind, o.GetName()}
}

// objects returns the changed objects, by their kinds and names; it compares the part of each that a function returns.
// Of objects with the same kind and name, the last counts.
func objects(before, after []*manifest.Document, part func(unstructured.Unstructured) map[string]any) []ObjectChange {
	old, now := byKey(before), byKey(after)
	var changes []ObjectChange
	for key := range union(old, now) {
		was, is := old[key], now[key]
		switch {
		case is == nil:
			changes = append(changes, ObjectChange{Object: was.Place().Object, Kind: Removed})
			continue
		case was == nil:
			changes = append(changes, ObjectChange{Object: is.Place().Object, Kind: Added})
			continue
		}
		w := fieldWalk{hide: key.kind == "Secret" && key.group == ""}
		w.values(part(was.Object), part(is.Object), "")
		if len(w.changes) > 0 {
			changes = append(changes, ObjectChange{Object: is.Place().Object, Kind: Changed, Fields: w.changes})
		}
	}
	slices.SortFunc(changes, func(a, b ObjectChange) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Name, b.Object.Name),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.APIVersion, b.Object.APIVersion))
	})
	return changes
}

// Fields returns the fields that differ between two objects.
func Fields(before, after map[string]any) []FieldChange {
	var w fieldWalk
	w.values(before, after, "")
	return w.changes
}

func byKey(documents []*manifest.Document) map[objectKey]*manifest.Document {
	all := map[objectKey]*manifest.Document{}
	for _, d := range documents {
		all[keyOf(d.Object)] = d
	}
	return all
}

// comparedFields returns the fields of an object without those that are compared elsewhere: rules of roles, and images.
func comparedFields(o unstructured.Unstructured) map[string]any {
	fields := maps.Clone(o.Object)
	delete(fields, "status")
	if isRole(o) {
		delete(fields, "rules")
	}
	if manifest.HasPods(o.GetKind()) {
		return withoutImages(fields)
	}
	return fields
}

// fieldWalk compares two values field by field.
type fieldWalk struct {
	changes []FieldChange
	// hide replaces values in the result.
	hide bool
	// plain writes non-empty texts without quotes.
	plain bool
}

// values compares two values of a field.
func (w *fieldWalk) values(before, after any, path string) {
	oldFields, oldIsMap := before.(map[string]any)
	newFields, newIsMap := after.(map[string]any)
	if oldIsMap && newIsMap {
		for _, name := range unionKeys(oldFields, newFields) {
			w.values(oldFields[name], newFields[name], join(path, name))
		}
		return
	}
	oldNames, oldIsNamed := itemsByName(before)
	newNames, newIsNamed := itemsByName(after)
	if oldIsNamed && newIsNamed && len(oldNames)+len(newNames) > 0 {
		for _, name := range unionKeys(oldNames, newNames) {
			w.values(oldNames[name], newNames[name], path+"["+name+"]")
		}
		return
	}
	if w.texts(before, after, path) {
		return
	}
	if old, now := compact(before), compact(after); old != now {
		w.add(path, w.text(before), w.text(after))
	}
}

// text writes a value; "" is none.
func (w *fieldWalk) text(value any) string {
	if value == nil {
		return ""
	}
	if text, ok := value.(string); ok && w.plain && text != "" {
		return text
	}
	return compact(value)
}

// texts compares two lists of texts, such as arguments, item by item; it returns false if they are other lists, or have
// the same items in another order.
func (w *fieldWalk) texts(before, after any, path string) bool {
	old, oldAreTexts := textItems(before)
	now, newAreTexts := textItems(after)
	removed, added := without(old, now), without(now, old)
	if !oldAreTexts || !newAreTexts || len(removed)+len(added) == 0 {
		return false
	}
	for _, was := range removed {
		is := ""
		isSame := func(item string) bool { return flagOf(item) == flagOf(was) }
		if len(removed) == 1 && len(added) == 1 && !strings.HasPrefix(was, "-") && !strings.HasPrefix(added[0], "-") {
			isSame = func(string) bool { return true } // one text replaced another
		}
		if i := slices.IndexFunc(added, isSame); i >= 0 {
			is = added[i]
			added = slices.Delete(added, i, i+1)
		}
		w.add(path+"[]", was, is)
	}
	for _, is := range added {
		w.add(path+"[]", "", is)
	}
	return true
}

// flagOf returns the name of an argument of a command, which ends with "=".
func flagOf(item string) string {
	name, _, _ := strings.Cut(item, "=")
	return name
}

// textItems returns the items of a list of texts; nil is a list without items.
func textItems(value any) ([]string, bool) {
	if value == nil {
		return nil, true
	}
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	var items []string
	for _, item := range list {
		text, isText := item.(string)
		if !isText {
			return nil, false
		}
		items = append(items, text)
	}
	return items, true
}

func (w *fieldWalk) add(path, before, after string) {
	if w.hide && !strings.HasPrefix(path, "metadata") {
		if before != "" {
			before = "(not shown)"
		}
		if after != "" {
			after = "(not shown, changed)"
		}
	}
	breaks := narrowsIf(strings.HasSuffix(path, ".failurePolicy") && after == `"Fail"`, Perhaps)
	w.changes = append(w.changes, FieldChange{Path: path, Before: before, After: after, Breaks: breaks})
}

// join adds a field's name to a path as Kubernetes writes it.
func join(path, name string) string {
	step := manifest.FieldPath(name)
	if path == "" || strings.HasPrefix(step, "[") {
		return path + step
	}
	return path + "." + step
}

// itemsByName returns the items of a list whose keys are their names; false for another list. Nil is a list without
// items.
func itemsByName(value any) (map[string]any, bool) {
	if value == nil {
		return nil, true
	}
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return nil, ok
	}
	items := map[string]any{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, _ := fields["name"].(string)
		if _, taken := items[name]; name == "" || taken {
			return nil, false
		}
		items[name] = item
	}
	return items, true
}

// unionKeys returns the keys of two maps in order.
func unionKeys[V any](a, b map[string]V) []string { return sets.List(union(a, b)) }

// union returns the keys of two maps.
func union[K comparable, V any](a, b map[K]V) sets.Set[K] {
	return sets.KeySet(a).Union(sets.KeySet(b))
}
