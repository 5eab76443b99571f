package publish

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// providersKey is the key of the list of providers; clusterctl takes it in any case.
const providersKey = "providers"

// configDocument is a clusterctl.yaml with the places of what is in it.
type configDocument struct {
	text []byte
	// starts are the offsets of the lines in text.
	starts  []int
	newline string
	// values is what the text means.
	values map[string]any
	// root is the mapping that the document is; nil where it is empty.
	root *yaml.Node
	// key and list are those of the providers; nil where there are none.
	key, list *yaml.Node
	// next is the key behind the list; nil where there is none.
	next  *yaml.Node
	items []configItem
}

// configItem is an entry of the list of providers.
type configItem struct {
	name, url, kind string
	line            int
	// urlNode is where the URL stands; nil where it stands nowhere in the entry itself.
	urlNode *yaml.Node
	// value is what the entry means, with its keys in lower case, as clusterctl reads them.
	value map[string]any
}

// parseConfig reads a clusterctl.yaml. What clusterctl would not read is an error.
func parseConfig(text []byte) (*configDocument, error) {
	d := &configDocument{text: text, starts: lineStarts(text), newline: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		d.newline = "\r\n"
	}
	if !utf8.Valid(text) {
		return nil, &configError{message: "it is not UTF-8: save it as that"}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, &configError{message: "it is no valid YAML; correct it, then publish again", err: err}
	}
	switch err := decoder.Decode(&yaml.Node{}); {
	case err == nil:
		return nil, &configError{message: "it has more than one document, of which clusterctl reads the first only: keep one"}
	case !errors.Is(err, io.EOF):
		return nil, &configError{message: "it is no valid YAML; correct it, then publish again", err: err}
	}
	if len(document.Content) == 0 || isImplicitNull(document.Content[0]) {
		return d, nil
	}
	d.root = document.Content[0]
	if d.root.Kind != yaml.MappingNode {
		return nil, &configError{line: d.root.Line, message: "it is no mapping: clusterctl's configuration has keys, such as providers"}
	}
	if err := uniqueKeys(d.root); err != nil {
		return nil, err
	}
	if err := d.root.Decode(&d.values); err != nil {
		return nil, &configError{message: "clusterctl would not read it; correct it, then publish again", err: err}
	}
	return d, d.findProviders()
}

func isImplicitNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Tag == "!!null" && node.Value == ""
}

// uniqueKeys refuses keys that are there twice. Clusterctl does not tell upper from lower case.
func uniqueKeys(mapping *yaml.Node) error {
	lines := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		if key.Kind != yaml.ScalarNode {
			continue
		}
		name := strings.ToLower(key.Value)
		if line, ok := lines[name]; ok {
			return &configError{line: key.Line, message: fmt.Sprintf("the key %q is in line %d already: keep one of them", key.Value, line)}
		}
		lines[name] = key.Line
	}
	return nil
}

// findProviders finds the list of providers and reads its entries.
func (d *configDocument) findProviders() error {
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		switch {
		case strings.EqualFold(d.root.Content[i].Value, providersKey):
			d.key, d.list = d.root.Content[i], d.root.Content[i+1]
		case d.key != nil && d.next == nil:
			d.next = d.root.Content[i]
		}
	}
	if d.list == nil {
		return nil
	}
	list := d.list
	if list.Kind == yaml.AliasNode {
		list = list.Alias
	}
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		return &configError{line: d.list.Line, message: "providers is no list: write entries with name, url and type under it"}
	}
	for _, node := range list.Content {
		item, err := readItem(node)
		if err != nil {
			return err
		}
		d.items = append(d.items, item)
	}
	return nil
}

// readItem reads an entry of the list of providers.
func readItem(node *yaml.Node) (configItem, error) {
	item := configItem{line: node.Line, value: map[string]any{}}
	mapping := node
	if node.Kind == yaml.AliasNode {
		mapping = node.Alias
	}
	if mapping.Kind != yaml.MappingNode {
		return item, &configError{line: node.Line, message: "an entry of providers is no mapping: it has name, url and type"}
	}
	if err := uniqueKeys(mapping); err != nil {
		return item, err
	}
	var value map[string]any
	if err := mapping.Decode(&value); err != nil {
		return item, &configError{line: node.Line, message: "clusterctl would not read this entry of providers", err: err}
	}
	for k, v := range value {
		item.value[strings.ToLower(k)] = v
	}
	item.name, item.kind, item.url = textOf(item.value["name"]), textOf(item.value["type"]), textOf(item.value["url"])
	for i := 0; i+1 < len(node.Content); i += 2 {
		if strings.EqualFold(node.Content[i].Value, "url") {
			item.urlNode = node.Content[i+1]
		}
	}
	return item, nil
}

// textOf returns a value as clusterctl reads it into a text: a number becomes its digits.
func textOf(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// byteOrderMark may begin a file; YAML does not count it as a column.
const byteOrderMark = "\uFEFF"

// lineStarts returns the offsets of lines, which end as YAML 1.1 has it.
func lineStarts(text []byte) []int {
	starts := []int{0}
	for i := 0; i < len(text); {
		width := lineBreak(text[i:])
		if width == 0 {
			i++
			continue
		}
		i += width
		starts = append(starts, i)
	}
	return starts
}

// lineBreak returns the length of the line break that a text begins with, or 0.
func lineBreak(text []byte) int {
	for _, end := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(text, []byte(end)) {
			return len(end)
		}
	}
	return 0
}

// endsLine says whether a text ends with a line break, or is empty.
func endsLine(text []byte) bool {
	return len(text) == 0 || text[len(text)-1] == '\n' || text[len(text)-1] == '\r'
}

// lineStart returns where a line, counted from zero, begins; a line too far is the text's end.
func (d *configDocument) lineStart(line int) int {
	if line >= len(d.starts) {
		return len(d.text)
	}
	return d.starts[line]
}

func (d *configDocument) lineText(line int) string {
	return string(d.text[d.lineStart(line):d.lineStart(line+1)])
}

// offset returns where a node begins in the text. Columns count characters.
func (d *configDocument) offset(node *yaml.Node) int {
	at := d.lineStart(node.Line - 1)
	if at == 0 && strings.HasPrefix(string(d.text), byteOrderMark) {
		at = len(byteOrderMark)
	}
	for range node.Column - 1 {
		_, width := utf8.DecodeRune(d.text[at:])
		at += width
	}
	return at
}

// scalarEnd returns where a scalar that begins at an offset ends, or false for what can't be
// replaced without a change elsewhere: text over several lines, and what has an anchor or a tag.
func (d *configDocument) scalarEnd(node *yaml.Node, start int) (int, bool) {
	rest := string(d.text[start:])
	switch {
	case node.Kind == yaml.AliasNode:
		return start + len("*"+node.Value), strings.HasPrefix(rest, "*"+node.Value)
	case node.Kind != yaml.ScalarNode || rest == "":
		return 0, false
	case rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return start + i + 1, true
			}
		}
		return 0, false
	case rest[0] == '\'':
		for i := 1; i < len(rest); i++ {
			if rest[i] != '\'' {
				continue
			}
			if i+1 == len(rest) || rest[i+1] != '\'' {
				return start + i + 1, true
			}
			i++
		}
		return 0, false
	}
	return start + len(node.Value), node.Value != "" && strings.HasPrefix(rest, node.Value)
}

// lastLine returns the last line that a node or one below it begins in.
func lastLine(node *yaml.Node) int {
	last := node.Line
	for _, child := range node.Content {
		last = max(last, lastLine(child))
	}
	return last
}

// nextKeyLine returns the line, counted from zero, at which the list of providers is over.
func (d *configDocument) nextKeyLine() int {
	if d.next != nil {
		return d.next.Line - 1
	}
	return d.endLine()
}

// endLine returns the line, counted from zero, behind the document: that of a mark, or the end.
func (d *configDocument) endLine() int {
	if d.root != nil {
		for line := d.root.Line; line < len(d.starts); line++ {
			text := strings.TrimRight(d.lineText(line), " \t\r\n")
			if text == "..." || text == "---" {
				return line
			}
		}
	}
	return len(d.starts)
}

// line returns the line of the list of providers, for errors.
func (d *configDocument) line() int {
	switch {
	case d.key != nil:
		return d.key.Line
	case d.root != nil:
		return d.root.Line
	}
	return 0
}
