// Package manifest reads the objects in a YAML file: their fields, references and pods, and the places of the fields,
// so that findings can name a line. The files may be hostile, so their size is limited.
package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The limits for files, which may be hostile. No release comes near them.
const (
	// maxFileSize is in bytes, as release.MaxFileSize.
	maxFileSize = 32 << 20
	// maxDocuments is the maximum number of documents in a file.
	maxDocuments = 20_000
	// maxDepth is the maximum depth of fields.
	maxDepth = 200
	// maxNodes is the maximum number of nodes in a document with resolved aliases.
	maxNodes = 5_000_000
	// maxComparisons is the maximum number of comparisons of keys: the decoder, which looks for duplicates, compares
	// each key of a mapping with each other. A mapping of 20,000 keys is within the limit.
	maxComparisons = 200_000_000
)

// Document is one object in a file, with the places of its fields.
type Document struct {
	// File is the file's name in the release.
	File string
	// Index counts the documents of the file from 1, empty ones included.
	Index int
	// Object is the document as Kubernetes reads it.
	Object unstructured.Unstructured
	// node is the document's mapping.
	node *yamlv3.Node
}

// SyntaxError is the reason why a file can't be read as YAML objects.
type SyntaxError struct {
	File string
	// Document counts from 1; Line is 0 if it is not known.
	Document, Line int
	Message        string
	// Beyond means that the file exceeds the limits of this package; other programs may read it.
	Beyond bool
}

func (e *SyntaxError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
	}
	return fmt.Sprintf("%s: document %d: %s", e.File, e.Document, e.Message)
}

// Parse reads the objects of a file. It skips empty documents. With an error, which is a *SyntaxError, it returns the
// objects before it.
func Parse(file string, data []byte) ([]*Document, error) {
	if len(data) > maxFileSize {
		return nil, &SyntaxError{File: file, Document: 1, Beyond: true, Message: fmt.Sprintf("the file has %d bytes, and more than %d are not read", len(data), maxFileSize)}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return nil, &SyntaxError{File: file, Document: 1, Line: 1 + bytes.Count(data[:i], []byte("\n")), Message: "there is a NUL byte: this isn't YAML"}
	}
	var documents []*Document
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	for index := 1; ; index++ {
		if index > maxDocuments {
			return documents, &SyntaxError{File: file, Document: index, Beyond: true, Message: fmt.Sprintf("there are more than %d documents", maxDocuments)}
		}
		var node yamlv3.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			line, message := yamlError(err)
			return documents, &SyntaxError{File: file, Document: index, Line: line, Message: message}
		}
		document, err := newDocument(file, index, &node)
		if err != nil {
			return documents, err
		}
		if document != nil {
			documents = append(documents, document)
		}
	}
}

// newDocument converts a document's node to an object; nil is an empty document.
func newDocument(file string, index int, root *yamlv3.Node) (*Document, error) {
	refuse := func(line int, format string, args ...any) error {
		return &SyntaxError{File: file, Document: index, Line: line, Message: fmt.Sprintf(format, args...)}
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, nil
	}
	node := root.Content[0]
	if node.Kind != yamlv3.MappingNode {
		return nil, refuse(node.Line, "the document isn't an object: it has no apiVersion and kind")
	}
	left := budget{nodes: maxNodes, comparisons: maxComparisons}
	if line, limit := left.exceeded(node, 0); line > 0 {
		return nil, &SyntaxError{File: file, Document: index, Line: line, Beyond: true, Message: limit}
	}
	object := map[string]any{}
	if err := node.Decode(&object); err != nil {
		line, message := yamlError(err)
		return nil, refuse(cmp.Or(line, node.Line), "%s", message)
	}
	JSONValue(object) // in place
	return &Document{File: file, Index: index, Object: unstructured.Unstructured{Object: object}, node: node}, nil
}

// budget is the remainder of a document's limits.
type budget struct {
	nodes, comparisons int
}

// exceeded returns the line at which a node exceeds a limit, and the limit; 0 means none.
func (b *budget) exceeded(node *yamlv3.Node, depth int) (line int, limit string) {
	b.nodes--
	if node.Kind == yamlv3.MappingNode {
		b.comparisons -= len(node.Content) / 2 * (len(node.Content) / 4)
	}
	switch {
	case depth > maxDepth:
		return max(node.Line, 1), fmt.Sprintf("the document is nested deeper than %d fields", maxDepth)
	case b.nodes < 0:
		return max(node.Line, 1), fmt.Sprintf("the document has more than %d values, once its aliases are followed", maxNodes)
	case b.comparisons < 0:
		return max(node.Line, 1), "an object has more fields than are read"
	case node.Kind == yamlv3.AliasNode:
		return b.exceeded(node.Alias, depth+1)
	}
	for _, child := range node.Content {
		if line, limit := b.exceeded(child, depth+1); line > 0 {
			return line, limit
		}
	}
	return 0, ""
}

// yamlError splits the parser's error into its line and its message.
func yamlError(err error) (int, string) {
	var typeError *yamlv3.TypeError
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if errors.As(err, &typeError) && len(typeError.Errors) > 0 {
		text = typeError.Errors[0]
	}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, message, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				return line, message
			}
		}
	}
	return 0, text
}

// Place returns the place of a field of the document. The path's steps are field names and, for the items of lists,
// their indices; for a missing field, it is the place of its nearest parent.
func (d *Document) Place(path ...any) Place {
	place := Place{File: d.File, Document: d.Index, Path: FieldPath(path...), Object: ObjectOf(d.Object)}
	node := d.node
	place.Line, place.Column = node.Line, node.Column
	for _, step := range path {
		key, next := child(node, step)
		if next == nil {
			break
		}
		node = next
		at := next
		if key != nil {
			at = key // readers look for the field's name
		}
		place.Line, place.Column = at.Line, at.Column
	}
	return place
}

// child returns the node for a step of a path, and that of its key in a mapping.
func child(node *yamlv3.Node, step any) (key, value *yamlv3.Node) {
	if node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	switch step := step.(type) {
	case string:
		for i := 0; node.Kind == yamlv3.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i], node.Content[i+1]
			}
		}
	case int:
		if node.Kind == yamlv3.SequenceNode && step >= 0 && step < len(node.Content) {
			return nil, node.Content[step]
		}
	}
	return nil, nil
}
