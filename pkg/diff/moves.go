package diff

import (
	"crypto/sha256"
	"slices"
	"strings"
	"unicode"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// end is a removed or new field, or a field of a removed or new object.
type end struct {
	SchemaChange
	// of is the index of its change, and root the change's path.
	of   int
	root string
}

// isNested reports whether the field is removed or new together with a parent object.
func (e end) isNested() bool { return e.Field != e.root }

// moved returns the changes, in which fields that moved into an object, or out of one, are changes of kind
// FieldRenamed. The changes of the objects stay.
func moved(changes []SchemaChange) []SchemaChange {
	changes, ends := replaced(changes)
	if ends == nil {
		return changes
	}
	pairs := pairUp(ends, end.keys)
	var taken []end
	overlaps := func(e end) bool {
		return slices.ContainsFunc(taken, func(t end) bool {
			return t.Kind == e.Kind && (within(t.Field, e.Field) || within(e.Field, t.Field))
		})
	}
	isMoved, news := map[int]bool{}, map[int][]SchemaChange{}
	for i, to := range ends { // objects come before their fields
		j, ok := pairs[i]
		isSame := ok && !to.isNested() && !ends[j].isNested() && parentOf(to.Field) == parentOf(ends[j].Field)
		if !ok || isSame || overlaps(to) || overlaps(ends[j]) { // Renamed compares the fields of one object more exactly
			continue
		}
		from := ends[j]
		taken = append(taken, from, to)
		isMoved[from.of] = isMoved[from.of] || !from.isNested()
		isMoved[to.of] = isMoved[to.of] || !to.isNested()
		news[to.of] = append(news[to.of], renamed(from.SchemaChange, to.SchemaChange)...)
	}
	var all []SchemaChange
	for i, c := range changes {
		if !isMoved[i] {
			all = append(all, c)
		}
		all = append(all, news[i]...)
	}
	return all
}

// replaced returns the changes, in which pairs of fields are changes of kind FieldRenamed: a field moved into a new
// object, and another one, from a removed object, took its place. It returns the ends of the changes as well, nil if
// nothing can have moved.
//
// Cluster API's status.conditions became status.deprecated.v1beta1.conditions in this way, and
// status.v1beta2.conditions became status.conditions.
func replaced(changes []SchemaChange) ([]SchemaChange, []end) {
	ends := endsOf(changes)
	if ends == nil {
		return changes, nil
	}
	var both []end
	for _, e := range ends {
		if e.isNested() {
			both = append(both, e)
		}
	}
	for i, c := range changes {
		isFirst := i == 0 || changes[i-1].Field != c.Field
		if isFirst && c.Old != nil && c.Schema != nil && c.Kind != FieldRenamed {
			old, now := c, c
			old.Kind, now.Kind, now.Narrows = FieldRemoved, FieldAdded, Widens
			both = append(both, end{old, i, c.Field}, end{now, i, c.Field})
		}
	}
	pairs := pairUp(both, end.shapes)
	target := map[int]end{} // the new field of each replaced one, by the index of the latter in both
	for to, from := range pairs {
		if !both[from].isNested() && both[to].isNested() {
			target[from] = both[to]
		}
	}
	var all []SchemaChange
	var gone []string
	for i, c := range changes {
		if slices.ContainsFunc(gone, func(field string) bool { return within(c.Field, field) }) {
			continue
		}
		old := slices.IndexFunc(both, func(e end) bool { return e.of == i && !e.isNested() })
		if old >= 0 {
			to, hasTarget := target[old]
			from, hasSource := pairs[old+1]
			if hasTarget && hasSource && both[from].isNested() {
				gone = append(gone, c.Field)
				all = append(all, renamed(both[from].SchemaChange, both[old+1].SchemaChange)...)
				all = append(all, renamed(both[old].SchemaChange, to.SchemaChange)...)
				continue
			}
		}
		all = append(all, c)
	}
	if len(gone) == 0 {
		return changes, ends
	}
	return all, endsOf(all)
}

// endsOf returns the removed and new fields, with all fields below them that are not in lists or maps. It is nil if
// nothing can have moved.
func endsOf(changes []SchemaChange) []end {
	var ends []end
	kinds := map[SchemaKind]bool{}
	for i, c := range changes {
		switch {
		case c.Kind == FieldType && len(c.Schema.Properties) > 0:
			c.Kind = FieldAdded // its fields are new
		case c.Kind != FieldAdded && c.Kind != FieldRemoved:
			continue
		}
		kinds[c.Kind] = true
		var add func(c SchemaChange)
		add = func(c SchemaChange) {
			if c.Field != changes[i].Field || c.Kind == changes[i].Kind {
				ends = append(ends, end{SchemaChange: c, of: i, root: changes[i].Field})
			}
			schema := c.is()
			for _, name := range unionKeys(schema.Properties, nil) {
				below, next := schema.Properties[name], c
				next.Field, next.Before, next.After, next.Narrows = c.Field+"."+name, "", "", Widens
				if c.Kind == FieldAdded {
					next.At, next.Schema = manifest.Join(c.At, "properties", name), &below
				} else {
					next.Old = &below
				}
				add(next)
			}
		}
		add(c)
	}
	if !kinds[FieldAdded] || !kinds[FieldRemoved] {
		return nil
	}
	return ends
}

// keys returns keys that identify the field in each of its scopes. A key is made of the type or the name without a unit,
// and the description; of the name and the fields below it; or of the name and the type, if the other end is not in a
// removed or new object. Many fields share a type and a name of one word, so the key of such a name has the first
// sentence of the description too.
func (e end) keys() []string {
	schema, name := e.is(), leaf(e.Field)
	text, kind := describedAs(schema.Description, name), summaryType(schema)
	sentence, _, _ := strings.Cut(text, ". ")
	sentence = strings.TrimSuffix(sentence, ".")
	nested := FieldRemoved // the kind of the end that is nested
	if e.isNested() == (e.Kind == FieldAdded) {
		nested = FieldAdded
	}
	keys := e.shapes()
	for _, s := range e.scopes() {
		keys = append(keys, digest(s.around, s.called, "named", string(nested), kind, sentence))
		if words(name) > 1 {
			keys = append(keys, digest(s.around, s.called, "called", string(nested), kind))
		}
		if text != "" {
			keys = append(keys, digest(s.around, "described", kind, text), digest(s.around, "in units", inUnits(schema.Description, name)))
		}
	}
	if !e.isNested() && words(name) > 1 { // the object that it moved into, or out of, may be in both releases
		keys = append(keys, digest(parentOf(parentOf(e.Field)), spelled(name), "called", string(e.Kind), kind))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// digest returns a short key for texts, which may be long and many.
func digest(texts ...string) string {
	hash := sha256.New()
	for _, text := range texts {
		hash.Write([]byte(text))
		hash.Write([]byte{0})
	}
	return string(hash.Sum(nil))
}

// shapes returns the keys of a field with several fields below it: its name and shape.
func (e end) shapes() []string {
	shape, fields := shapeOf(e.is())
	if fields < 2 {
		return nil
	}
	var keys []string
	for _, s := range e.scopes() {
		keys = append(keys, digest(s.around, s.called, "shaped", shape))
	}
	return keys
}

// scope is an object around a field, and how the field may be called in it.
type scope struct{ around, called string }

// scopes returns the objects around the field, up to the first that is in both releases. In each, the field is called by
// its name or by its path: rolloutBefore becomes rollout.before.
func (e end) scopes() []scope {
	var all []scope
	for around := parentOf(e.Field); ; around = parentOf(around) {
		for _, called := range slices.Compact([]string{spelled(leaf(e.Field)), spelled(e.Field[len(around):])}) {
			all = append(all, scope{around, called})
		}
		if around == parentOf(e.root) {
			return all
		}
	}
}

// spelled returns a name or path in a normal spelling: hostId is hostID, and gateway_ip is gatewayIP.
func spelled(name string) string {
	return strings.ToLower(withoutSigns.Replace(name))
}

var withoutSigns = strings.NewReplacer(".", "", "_", "", "-", "")

// words counts the words of a name: rolloutAfter has two.
func words(name string) int {
	n := 0
	before := ' '
	for _, r := range name {
		if r != '_' && (before == ' ' || before == '_' || unicode.IsUpper(r) && !unicode.IsUpper(before)) {
			n++
		}
		before = r
	}
	return n
}
