package move

import (
	"bytes"
	"iter"
	"slices"
)

// fields says which fields of a mapping are kept; nil under a name keeps all that is below it.
type fields map[string]fields

var (
	// keptMetadata is what all kinds keep. Annotations may be as large as the object.
	keptMetadata = fields{
		"name": nil, "namespace": nil, "uid": nil, "ownerReferences": nil,
		"labels":      {"clusterctl.cluster.x-k8s.io": nil, "clusterctl.cluster.x-k8s.io/move": nil, "clusterctl.cluster.x-k8s.io/move-hierarchy": nil},
		"annotations": {"clusterctl.cluster.x-k8s.io/block-move": nil, "cluster.x-k8s.io/paused": nil},
	}
	// keptOfKinds is what some kinds keep besides, by their names alone.
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

// line is a line of YAML without its end.
type line struct {
	text []byte
	// indent counts the spaces before it; -1 is an empty line or a comment.
	indent int
}

// eachLine returns the lines of a text with the places where they begin.
func eachLine(text []byte) iter.Seq2[int, line] {
	return func(yield func(int, line) bool) {
		for at := 0; at < len(text); {
			end, next := len(text), len(text)
			if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
				end, next = at+i, at+i+1
			}
			if !yield(at, newLine(bytes.TrimSuffix(text[at:end], []byte("\r")))) {
				return
			}
			at = next
		}
	}
}

// linesOf splits text into lines.
func linesOf(text []byte) []line {
	lines := make([]line, 0, bytes.Count(text, []byte("\n"))+1)
	for _, l := range eachLine(text) {
		lines = append(lines, l)
	}
	return lines
}

func newLine(text []byte) line {
	for i, c := range text {
		switch c {
		case ' ':
			continue
		case '#':
			return line{text: text, indent: -1}
		}
		return line{text: text, indent: i}
	}
	return line{text: text, indent: -1}
}

// keyOf returns the key of a line that begins a field of a block mapping, e.g. `name: x`; false is a
// line that may be something else.
func (l line) keyOf() (string, bool) {
	text := l.text[l.indent:]
	end := bytes.IndexByte(text, ':')
	if end <= 0 || end+1 < len(text) && text[end+1] != ' ' {
		return "", false
	}
	for _, c := range text[:end] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '/' && c != '-' && c != '_' && c != '*' && c != '~' {
			return "", false
		}
	}
	return string(text[:end]), text[0] != '-' && text[0] != '*' && text[0] != '~'
}

// skim writes those lines of a block mapping that belong to the fields to keep. It understands what
// kubectl and Go programs write; of anything else it returns false, and the whole text has to be
// read. What it passes over may be no YAML: only a parser would know.
func skim(to *bytes.Buffer, lines []line, keep fields) bool {
	indent := -1
	for i := 0; i < len(lines); {
		l := lines[i]
		if l.indent < 0 {
			i++
			continue
		}
		if indent < 0 {
			indent = l.indent
		}
		name, ok := l.keyOf()
		if !ok || l.indent != indent {
			return false
		}
		end := i + 1
		for end < len(lines) && (lines[end].indent < 0 || lines[end].indent > indent || lines[end].indent == indent && isItem(lines[end])) {
			end++
		}
		below, wanted := keep[name]
		switch {
		case !wanted:
		case below == nil:
			writeLines(to, lines[i:end])
		case bytes.HasSuffix(l.text, []byte(": {}")):
			writeLines(to, lines[i:end])
		case !bytes.HasSuffix(l.text, []byte(":")):
			return false // a value in the line of its key, with braces or a tag
		default:
			writeLines(to, lines[i:i+1])
			if !skimBelow(to, lines[i+1:end], below) {
				return false
			}
		}
		i = end
	}
	return true
}

// skimBelow skims the value of a field: a mapping, or a list of mappings.
func skimBelow(to *bytes.Buffer, lines []line, keep fields) bool {
	for len(lines) > 0 && lines[0].indent < 0 {
		lines = lines[1:]
	}
	if len(lines) == 0 || !isItem(lines[0]) {
		return skim(to, lines, keep)
	}
	indent := lines[0].indent
	return eachItem(lines, func(item []line) bool {
		to.Write(bytes.Repeat([]byte(" "), indent))
		to.WriteString("-\n")
		return skim(to, item, keep)
	})
}

// isItem says whether a line begins an item of a block list.
func isItem(l line) bool {
	text := l.text[l.indent:]
	return text[0] == '-' && (len(text) == 1 || text[1] == ' ')
}

// eachItem calls for each item of a block list with its lines, with a space in place of the dash, until
// one returns false. It returns false itself where the lines are something else, too.
func eachItem(lines []line, do func([]line) bool) bool {
	indent, start := lines[0].indent, 0
	for i := 1; i <= len(lines); i++ {
		if i < len(lines) {
			l := lines[i]
			if l.indent < 0 || l.indent > indent {
				continue
			}
			if l.indent < indent || !isItem(l) {
				return false
			}
		}
		item := slices.Clone(lines[start:i]) // whoever has to read them all needs the dashes
		text := bytes.Clone(item[0].text)
		text[indent] = ' '
		item[0] = newLine(text)
		if !do(item) {
			return false
		}
		start = i
	}
	return true
}

func writeLines(to *bytes.Buffer, lines []line) {
	for _, l := range lines {
		to.Write(l.text)
		to.WriteByte('\n')
	}
}
