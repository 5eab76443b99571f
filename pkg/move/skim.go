package move

import (
	"bytes"
	"iter"
)

// fields are the fields of a mapping that are kept. A nil value keeps everything below the field.
type fields map[string]fields

var (
	// keptMetadata are the fields that all kinds keep. Annotations may be as large as the object.
	keptMetadata = fields{
		"name": nil, "namespace": nil, "uid": nil, "ownerReferences": nil,
		"labels":      {"clusterctl.cluster.x-k8s.io": nil, "clusterctl.cluster.x-k8s.io/move": nil, "clusterctl.cluster.x-k8s.io/move-hierarchy": nil},
		"annotations": {"clusterctl.cluster.x-k8s.io/block-move": nil, "cluster.x-k8s.io/paused": nil},
	}
	// keptOfKinds are further fields that kinds keep, by the names of kinds without groups.
	keptOfKinds = map[string]fields{
		"Cluster":                   {"spec": nil, "status": nil},
		"ClusterClass":              {"spec": nil},
		"ClusterResourceSetBinding": {"spec": {"clusterName": nil}},
		"Machine":                   {"status": {"nodeRef": nil}},
		"Provider":                  {"type": nil},
		"CustomResourceDefinition": {"spec": {
			"group": nil, "scope": nil, "names": {"kind": nil, "plural": nil}, "versions": {"name": nil, "storage": nil, "served": nil},
		}},
	}
)

// keptFields returns the fields that are kept of an object of a kind.
func keptFields(kind string) fields {
	kept := fields{"apiVersion": nil, "kind": nil, "metadata": keptMetadata}
	for name, below := range keptOfKinds[kind] {
		kept[name] = below
	}
	return kept
}

// dropUnread drops the fields outside of the metadata that no rule for the object's kind reads.
func (o *Object) dropUnread() {
	var content map[string]any
	for name := range keptOfKinds[o.Kind] {
		if value, ok := o.Content[name]; ok {
			if content == nil {
				content = map[string]any{}
			}
			content[name] = value
		}
	}
	o.Content = content
}

// line is a line of YAML without its end.
type line struct {
	text []byte
	// indent is the number of spaces before it; -1 for an empty line or a comment.
	indent int
}

// eachLine returns the lines of a text with their offsets.
func eachLine(text []byte) iter.Seq2[int, line] {
	return func(yield func(int, line) bool) {
		at := 0
		for l := range bytes.Lines(text) {
			content := bytes.TrimSuffix(bytes.TrimSuffix(l, []byte("\n")), []byte("\r"))
			if !yield(at, line{content, indentOf(content, 0)}) {
				return
			}
			at += len(l)
		}
	}
}

// indentOf returns where the text of a line begins, from an offset on; -1 for an empty line or a comment.
func indentOf(text []byte, from int) int {
	for i := from; i < len(text) && text[i] != '#'; i++ {
		if text[i] != ' ' {
			return i
		}
	}
	return -1
}

// isItem reports whether a line begins an item of a block list.
func (l line) isItem() bool {
	text := l.text[l.indent:]
	return text[0] == '-' && (len(text) == 1 || text[1] == ' ')
}

// keyOf returns the key of a text that begins a field of a block mapping, e.g. `name: x`. It returns false if the text
// may be something else.
func keyOf(text []byte) ([]byte, bool) {
	end := bytes.IndexByte(text, ':')
	if end <= 0 || end+1 < len(text) && text[end+1] != ' ' {
		return nil, false
	}
	for _, c := range text[:end] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '/' && c != '-' && c != '_' && c != '*' && c != '~' {
			return nil, false
		}
	}
	return text[:end], text[0] != '-' && text[0] != '*' && text[0] != '~'
}

// kindOf returns the kind of an object in block style, or "".
func kindOf(text []byte) string {
	indent := -1
	for _, l := range eachLine(text) {
		if indent < 0 {
			indent = l.indent
		}
		if value, ok := bytes.CutPrefix(l.text[max(l.indent, 0):], []byte("kind: ")); ok && l.indent == indent {
			return string(value)
		}
	}
	return ""
}

// skim returns the text of an object with the lines of the fields to keep. The other lines become empty, so that line
// numbers stay. It understands the output of kubectl and Go programs, and returns false for other text, which has to be
// parsed as a whole. It does not detect invalid YAML in the lines that it empties.
func skim(text []byte) ([]byte, bool) {
	kind := kindOf(text)
	if kind == "" {
		return nil, false
	}
	type mapping struct {
		indent int
		keep   fields
	}
	var open []mapping       // the mappings around a line
	next := keptFields(kind) // the fields to keep of a mapping that begins in the next line
	value, keep := -1, false // the indent of the field whose value is kept or emptied in whole
	kept := make([]byte, 0, len(text)/2)
	for _, l := range eachLine(text) {
		if l.indent < 0 || value >= 0 && (l.indent > value || l.indent == value && l.isItem()) {
			if value >= 0 && keep {
				kept = append(kept, l.text...)
			}
			kept = append(kept, '\n')
			continue
		}
		indent, prefix := l.indent, 0 // prefix is the length of the part that stays if the field does not
		if l.isItem() {
			prefix = l.indent + 1
			indent = indentOf(l.text, prefix)
		}
		for len(open) > 0 && open[len(open)-1].indent > indent {
			open = open[:len(open)-1]
		}
		if next != nil && indent >= 0 && (len(open) == 0 || open[len(open)-1].indent < indent) {
			open = append(open, mapping{indent, next})
		}
		if len(open) == 0 || open[len(open)-1].indent != indent {
			return nil, false
		}
		name, ok := keyOf(l.text[indent:])
		if !ok {
			return nil, false
		}
		below, wanted := open[len(open)-1].keep[string(name)]
		next, value, keep = nil, indent, wanted
		if wanted && below != nil && !bytes.HasSuffix(l.text, []byte(": {}")) {
			if !bytes.HasSuffix(l.text, []byte(":")) {
				return nil, false // a value in the line of its key, with braces or a tag
			}
			next, value = below, -1
		}
		if wanted {
			prefix = len(l.text)
		}
		kept = append(append(kept, l.text[:prefix]...), '\n')
	}
	return kept, true
}
