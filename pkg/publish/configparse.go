package publish

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/clusterctl-release/clusterctl-release/pkg/yamledit"
)

// providersKey is the key of the list of providers; clusterctl takes it in any case.
const providersKey = "providers"

// configDocument is a clusterctl.yaml with the places of what is in it.
type configDocument struct {
	text *yamledit.Text
	data []byte
	// values is what the text means.
	values map[string]any
	// root is the mapping that the document is; nil where it is empty.
	root *yaml.Node
	// key and list are those of the providers; nil where there are none.
	key, list *yaml.Node
	items     []configItem
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

// configError is a place in a clusterctl.yaml and what is wrong there.
type configError struct {
	// line counts from one; zero is the file as a whole.
	line    int
	message string
	err     error
}

func (e *configError) Error() string {
	text := e.message
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	if e.line == 0 {
		return text
	}
	return fmt.Sprintf("line %d: %s", e.line, text)
}

func (e *configError) Unwrap() error { return e.err }

// inFile adds the file's path to an error of parseConfig or editProviders.
func inFile(path string, err error) error {
	if at, ok := err.(*configError); ok && at.line > 0 { //nolint:errorlint // only an error that nothing is wrapped around has its line in front
		return fmt.Errorf("%s:%d: %w", path, at.line, &configError{message: at.message, err: at.err})
	}
	return fmt.Errorf("%s: %w", path, err)
}

// parseConfig reads a clusterctl.yaml. What clusterctl would not read is an error.
func parseConfig(data []byte) (*configDocument, error) {
	d := &configDocument{data: data}
	if !utf8.Valid(data) {
		return nil, &configError{message: "the file isn't UTF-8 text: save it as UTF-8"}
	}
	var err error
	if d.text, err = yamledit.NewText(data); err != nil {
		return nil, &configError{message: err.Error() + ": save it with line breaks of one of these two kinds"}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, &configError{message: "the file isn't valid YAML; correct it, then publish again", err: err}
	}
	switch err := decoder.Decode(&yaml.Node{}); {
	case err == nil:
		return nil, &configError{message: "the file has more than one document, and clusterctl reads only the first: keep one"}
	case !errors.Is(err, io.EOF):
		return nil, &configError{message: "the file isn't valid YAML; correct it, then publish again", err: err}
	}
	if len(document.Content) == 0 || isImplicitNull(document.Content[0]) {
		return d, nil
	}
	d.root = document.Content[0]
	if d.root.Kind != yaml.MappingNode {
		return nil, &configError{line: d.root.Line, message: "the file isn't a mapping: clusterctl's configuration has keys, such as providers"}
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
	if d.key, d.list = fieldOf(d.root, providersKey); d.list == nil {
		return nil
	}
	list := resolved(d.list)
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		return &configError{line: d.list.Line, message: "providers isn't a list: write entries with name, url and type under it"}
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
	mapping := resolved(node)
	if mapping.Kind != yaml.MappingNode {
		return item, &configError{line: node.Line, message: "an entry of providers isn't a mapping: it has name, url and type"}
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
	_, item.urlNode = fieldOf(node, "url")
	return item, nil
}

// fieldOf returns the last key of that name in a mapping, in any case, and its value.
func fieldOf(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if strings.EqualFold(mapping.Content[i].Value, name) {
			key, value = mapping.Content[i], mapping.Content[i+1]
		}
	}
	return key, value
}

// resolved returns what an alias stands for.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// textOf returns a value as clusterctl reads it into a text: a number becomes its digits.
func textOf(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
