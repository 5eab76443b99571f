package publish

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/yamledit"
)

// editProviders returns the text of the clusterctl.yaml at a path with these entries in its list of providers, and a
// description of the changes; none if the entries are already right. It changes only wrong URLs and adds new entries.
// The error for a text that clusterctl would not read, or that can't be edited in this way, has a line and says what to
// do.
func editProviders(path string, text []byte, entries []store.Entry) ([]byte, []string, error) {
	doc, err := parseConfig(path, text)
	if err != nil {
		return nil, nil, err
	}
	var changed []string
	for _, entry := range entries {
		for {
			after, change, line := doc.with(entry)
			if after == nil {
				return nil, nil, doc.problem(line, "the list of providers is written in a way that can't be changed in place: "+
					"write these entries into it, then publish again:\n%s", blockEntries("  ", entries))
			}
			if change == "" {
				break
			}
			doc, changed = after, append(changed, change)
		}
	}
	return doc.data, changed, nil
}

// with returns the document after one change for an entry, and a description of the change; the document itself if the
// entry is right. Nil means that the document has to be edited by hand, at a line.
func (d *configDocument) with(entry store.Entry) (after *configDocument, change string, line int) {
	var values []map[string]any
	wrong, found := -1, false
	for i, item := range d.items {
		values = append(values, item.value)
		if item.name == entry.Name && item.kind == string(entry.Type) {
			found = true
			if !sameRepository(item.url, entry.URL) {
				wrong = i
			}
		}
	}
	var edit yamledit.Edit
	var ok bool
	switch {
	case wrong >= 0:
		item := d.items[wrong]
		line, change = item.line, fmt.Sprintf("set the url of %s, which was %s", entry, item.url)
		values[wrong] = maps.Clone(item.value)
		values[wrong]["url"] = entry.URL
		edit, ok = d.replaceURL(item, entry)
	case found:
		return d, "", 0
	default:
		line, change = d.line(), "add "+entry.String()
		values = append(values, map[string]any{"name": entry.Name, "url": entry.URL, "type": string(entry.Type)})
		edit, ok = d.add(entry)
	}
	if !ok {
		return nil, "", line
	}
	// A text with another meaning is never used, however it is written.
	after, err := parseConfig(d.path, d.text.Apply(edit))
	if err != nil || !reflect.DeepEqual(d.otherValues(), after.otherValues()) || !after.lists(values) {
		return nil, "", line
	}
	return after, change, line
}

// lists reports whether the list of providers has these values; the last one may be the first.
func (d *configDocument) lists(values []map[string]any) bool {
	same := func(values []map[string]any) bool {
		return slices.EqualFunc(values, d.items, func(a map[string]any, b configItem) bool { return reflect.DeepEqual(a, b.value) })
	}
	last := len(values) - 1
	return same(values) || same(slices.Concat(values[last:], values[:last]))
}

func (d *configDocument) otherValues() map[string]any {
	others := maps.Clone(d.values)
	maps.DeleteFunc(others, func(key string, _ any) bool { return strings.EqualFold(key, providersKey) })
	if len(others) == 0 {
		return nil
	}
	return others
}

func (d *configDocument) line() int {
	switch {
	case d.key != nil:
		return d.key.Line
	case d.root != nil:
		return d.root.Line
	}
	return 0
}

func (d *configDocument) replaceURL(item configItem, entry store.Entry) (yamledit.Edit, bool) {
	if item.urlNode == nil {
		return yamledit.Edit{}, false
	}
	start, end, ok := d.text.Scalar(item.urlNode)
	return yamledit.Edit{Start: start, End: end, New: `"` + entry.URL + `"`}, ok
}

func (d *configDocument) add(entry store.Entry) (yamledit.Edit, bool) {
	fields := entryFields(entry)
	switch {
	case d.root == nil:
		return d.appendKey("", fields), true
	case d.key == nil && d.values[providersKey] != nil:
		return yamledit.Edit{}, false // the value comes from a merge key
	case d.key == nil && d.root.Style&yaml.FlowStyle != 0:
		return d.intoFlow(d.root, providersKey+": ["+yamledit.FlowEntry(fields)+"]")
	case d.key == nil:
		return d.appendKey(strings.Repeat(" ", d.root.Column-1), fields), true
	case d.list.Kind == yaml.AliasNode:
		return yamledit.Edit{}, false
	case d.list.Kind == yaml.ScalarNode && d.list.Value == "":
		return d.text.InsertLines(d.key.Line+1, yamledit.BlockEntry(d.entryIndent(), fields)...), true
	case d.list.Kind == yaml.ScalarNode:
		start, end, ok := d.text.Scalar(d.list)
		return d.underKey(start, end, fields), ok
	case len(d.list.Content) == 0 && d.root.Style&yaml.FlowStyle == 0:
		start, ok := d.text.Offset(d.list)
		return d.underKey(start, start+len("[]"), fields), ok && bytes.HasPrefix(d.data[start:], []byte("[]"))
	case d.list.Style&yaml.FlowStyle != 0:
		return d.intoFlow(d.list, yamledit.FlowEntry(fields))
	}
	edit, err := d.text.Insert(d.list, len(d.list.Content), fields)
	return edit, err == nil
}

// appendKey adds the list at the end of the document, which is the end of the file or a mark.
func (d *configDocument) appendKey(indent string, fields []yamledit.Field) yamledit.Edit {
	line := d.text.Lines() + 1
	if d.root != nil {
		for i := d.root.Line + 1; i < line; i++ {
			if text := strings.TrimRight(d.text.Line(i), " \t"); text == "..." || text == "---" {
				line = i
			}
		}
	}
	return d.text.InsertLines(line, append([]string{indent + providersKey + ":"}, yamledit.BlockEntry(indent+"  ", fields)...)...)
}

// intoFlow adds text after the opening bracket or brace of a node.
func (d *configDocument) intoFlow(node *yaml.Node, text string) (yamledit.Edit, bool) {
	start, ok := d.text.Offset(node)
	if !ok || d.data[start] != '[' && d.data[start] != '{' {
		return yamledit.Edit{}, false // an anchor or a tag is in front
	}
	if len(node.Content) > 0 {
		text += ", "
	}
	return yamledit.Edit{Start: start + 1, End: start + 1, New: text}, true
}

// underKey replaces a value on the line of its key by a list.
func (d *configDocument) underKey(start, end int, fields []yamledit.Field) yamledit.Edit {
	for start > 0 && d.data[start-1] == ' ' {
		start--
	}
	lineBreak := d.text.LineBreak(end)
	return yamledit.Edit{Start: start, End: end, New: lineBreak + strings.Join(yamledit.BlockEntry(d.entryIndent(), fields), lineBreak)}
}

func (d *configDocument) entryIndent() string {
	return strings.Repeat(" ", d.key.Column+1)
}

// entryFields returns an entry in quotes, because a name such as 1 would be a number. Names, types and escaped URLs
// need no escapes.
func entryFields(entry store.Entry) []yamledit.Field {
	return []yamledit.Field{
		{Key: "name", Value: entry.Name, Quoted: true},
		{Key: "url", Value: entry.URL, Quoted: true},
		{Key: "type", Value: string(entry.Type), Quoted: true},
	}
}

func blockEntries(indent string, entries []store.Entry) string {
	var lines []string
	for _, entry := range entries {
		lines = append(lines, yamledit.BlockEntry(indent, entryFields(entry))...)
	}
	return strings.Join(lines, "\n") + "\n"
}
