package move

import (
	"bytes"
	"errors"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// chunk is a part of a file, with the number of lines before it.
type chunk struct {
	text   []byte
	before int
}

// readYAML reads the documents of a file, objects and lists. It parses one object at a time, because the tree of a whole
// list would take ten times the memory of its text.
func (r *reader) readYAML(data []byte) {
	empty, before := true, 0
	for len(data) > 0 {
		end := len(data)
		if i := bytes.Index(data, []byte("\n---")); i >= 0 {
			end = i + 1
		}
		text := data[:end]
		data = data[end:]
		if bytes.HasPrefix(text, []byte("---")) {
			copy(text, "   ") // the document may begin in the line of its mark
		}
		if r.readDocument(chunk{text, before}, len(data) == 0) {
			empty = false
		}
		before += bytes.Count(text, []byte("\n"))
	}
	if empty {
		r.problem(0, "the file has no objects")
	}
}

// readDocument reads an object or a list, and returns false for an empty document. last means that no document follows,
// so it may be truncated.
func (r *reader) readDocument(d chunk, last bool) bool {
	empty := true
	from, to, number, before := -1, len(d.text), d.before, 0
	kind := ""
	for offset, l := range eachLine(d.text) {
		number++
		empty = empty && l.indent < 0
		if l.indent != 0 {
			continue
		}
		if from >= 0 && to == len(d.text) && !l.isItem() {
			to = offset
		}
		if bytes.Equal(bytes.TrimRight(l.text, " "), []byte("items:")) {
			from, to, before = offset+len(l.text), len(d.text), number-1
		}
		if value, ok := bytes.CutPrefix(l.text, []byte("kind:")); ok {
			kind = string(bytes.TrimSpace(value))
		}
	}
	switch {
	case empty:
	case from < 0 || kind != "" && !strings.HasSuffix(kind, "List"):
		r.readObject(d, !last)
	default:
		if kind == "" {
			r.problem(number, "the list ends without its kind: the file is truncated, and what comes after is missing; dump it again")
		}
		r.readItems(chunk{d.text[from:to], before})
	}
	return !empty
}

// readItems reads the items of a list, each with a space in place of its dash.
func (r *reader) readItems(c chunk) {
	indent, start, before, number := -1, 0, 0, c.before
	item := func(to int) {
		if indent >= 0 {
			c.text[start+indent] = ' '
			r.readObject(chunk{c.text[start:to], before}, to < len(c.text))
		}
	}
	for offset, l := range eachLine(c.text) {
		number++
		if l.indent < 0 || indent >= 0 && l.indent > indent {
			continue
		}
		item(offset)
		if !l.isItem() || indent >= 0 && l.indent < indent {
			r.problem(number, "what comes next isn't an item of the list; dump it with `kubectl get -o yaml` or `-o json`")
			return
		}
		indent, start, before = l.indent, offset, number-1
	}
	item(len(c.text))
}

// readObject reads one object. If it can be skimmed, only the fields that rules read are parsed.
func (r *reader) readObject(c chunk, maySkim bool) {
	var documents []*manifest.Document
	if maySkim && !r.whole {
		if text, ok := skim(c.text); ok {
			documents, _ = manifest.Parse(r.file, text) // errors have the line in the whole text
		}
	}
	if len(documents) == 0 {
		var err error
		documents, err = manifest.Parse(r.file, c.text)
		var syntax *manifest.SyntaxError
		if errors.As(err, &syntax) {
			r.problem(c.before+max(syntax.Line, 1), "this isn't YAML: %s; the object is left out", syntax.Message)
			return
		}
	}
	for _, d := range documents {
		place := d.Place()
		place.Line += c.before
		r.add(d.Object, place)
	}
}
