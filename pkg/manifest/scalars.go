package manifest

import (
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Scalar is a text, number or other single value of a document.
type Scalar struct {
	Path []any
	Text string
	// Quoted means that the notation makes the value a text: quotes, or a block of text.
	Quoted bool
	// Below means that the value is on a line below its field's name.
	Below bool
}

// Scalars returns the single values of the document in their order, without repetitions by aliases.
func (d *Document) Scalars() []Scalar {
	return appendScalars(nil, d.node, nil, d.node.Line)
}

// appendScalars appends the values below a node whose field name is on a line.
func appendScalars(scalars []Scalar, node *yamlv3.Node, path []any, line int) []Scalar {
	switch node.Kind {
	case yamlv3.ScalarNode:
		const texts = yamlv3.DoubleQuotedStyle | yamlv3.SingleQuotedStyle | yamlv3.LiteralStyle | yamlv3.FoldedStyle
		return append(scalars, Scalar{Path: path, Text: node.Value, Quoted: node.Style&texts != 0, Below: node.Line > line})
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			scalars = appendScalars(scalars, node.Content[i+1], append(slices.Clone(path), key.Value), key.Line)
		}
	case yamlv3.SequenceNode:
		for i, item := range node.Content {
			scalars = appendScalars(scalars, item, append(slices.Clone(path), i), item.Line)
		}
	}
	return scalars
}

// Line returns the first line of the document's object.
func (d *Document) Line() int { return d.node.Line }

// Before returns the path of the innermost object or list that is open before a line.
func (d *Document) Before(line int) []any {
	var path []any
	for node := d.node; ; {
		step, next := lastBefore(node, line)
		if next == nil || next.Kind != yamlv3.MappingNode && next.Kind != yamlv3.SequenceNode {
			return path
		}
		path, node = append(path, step), next
	}
}

// lastBefore returns the last field or item of a node that begins before a line, and its step.
func lastBefore(node *yamlv3.Node, line int) (step any, last *yamlv3.Node) {
	switch node.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Line < line {
				step, last = node.Content[i].Value, node.Content[i+1]
			}
		}
	case yamlv3.SequenceNode:
		for i, item := range node.Content {
			if item.Line < line {
				step, last = i, item
			}
		}
	}
	return step, last
}
