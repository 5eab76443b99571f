// Package yamledit edits YAML files in place: all bytes outside an edit stay, with comments, order, quotes and line
// breaks. It doesn't interpret the text: parse the result before you write it.
package yamledit

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Edit replaces the bytes from Start to End of a file with New.
type Edit struct {
	Start, End int
	New        string
}

// Text is a file split into lines, to find the bytes of a line and column of the YAML decoder.
type Text struct {
	data []byte
	// starts are the offsets at which the lines begin.
	starts []int
}

// byteOrderMark is the prefix that some editors add to UTF-8. The decoder doesn't count it as a column.
const byteOrderMark = "\uFEFF"

// NewText splits a file into lines. It returns an error for line breaks of YAML 1.1 that are neither LF nor CRLF.
func NewText(data []byte) (*Text, error) {
	withoutCRLF := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if bytes.ContainsAny(withoutCRLF, "\r\u0085\u2028\u2029") {
		return nil, errors.New("it has line breaks that are neither LF nor CRLF")
	}
	t := &Text{data: data, starts: []int{0}}
	for i, b := range data {
		if b == '\n' && i+1 < len(data) {
			t.starts = append(t.starts, i+1)
		}
	}
	return t, nil
}

// Apply returns the file after an edit.
func (t *Text) Apply(e Edit) []byte {
	return bytes.Join([][]byte{t.data[:e.Start], t.data[e.End:]}, []byte(e.New))
}

// Lines returns the number of lines.
func (t *Text) Lines() int { return len(t.starts) }

// Start returns the offset of a line, counted from 1, and that of the file's end for the lines after the last.
func (t *Text) Start(line int) int {
	if line > len(t.starts) {
		return len(t.data)
	}
	return t.starts[line-1]
}

// Line returns a line without its line break.
func (t *Text) Line(line int) string {
	return strings.TrimRight(string(t.data[t.Start(line):t.Start(line+1)]), "\r\n")
}

// Offset returns the offset of a node in the file, or false if the file has no such place.
func (t *Text) Offset(node *yaml.Node) (int, bool) {
	if node.Line < 1 || node.Line > len(t.starts) {
		return 0, false
	}
	at := t.Start(node.Line)
	if node.Line == 1 && bytes.HasPrefix(t.data, []byte(byteOrderMark)) {
		at += len(byteOrderMark)
	}
	for range node.Column - 1 {
		if at >= len(t.data) {
			return 0, false
		}
		_, size := utf8.DecodeRune(t.data[at:])
		at += size
	}
	return at, at < len(t.data)
}

// Scalar returns the start and end of a scalar or an alias. It returns false for scalars that can't be replaced alone:
// those in block style, and those with an anchor or a tag.
func (t *Text) Scalar(node *yaml.Node) (start, end int, ok bool) {
	start, ok = t.Offset(node)
	if !ok || node.Kind != yaml.ScalarNode && node.Kind != yaml.AliasNode {
		return 0, 0, false
	}
	rest := string(t.data[start:])
	switch {
	case node.Kind == yaml.AliasNode:
		end = start + len("*"+node.Value)
		return start, end, strings.HasPrefix(rest, "*"+node.Value)
	case rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return start, start + i + 1, true
			}
		}
		return 0, 0, false
	case rest[0] == '\'':
		// A quote inside is written twice.
		at := strings.IndexByte(strings.ReplaceAll(rest[1:], "''", "  "), '\'')
		return start, start + 1 + at + 1, at >= 0
	}
	return start, start + len(node.Value), node.Value != "" && strings.HasPrefix(rest, node.Value)
}

// LineBreak returns the line break at an offset: that of the previous line.
func (t *Text) LineBreak(offset int) string {
	end := bytes.LastIndexByte(t.data[:offset], '\n')
	if end < 0 {
		end = bytes.IndexByte(t.data, '\n')
	}
	if end > 0 && t.data[end-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// InsertLines returns the edit that inserts whole lines before a line, or at the end of the file.
func (t *Text) InsertLines(line int, lines ...string) Edit {
	at := t.Start(line)
	lineBreak := t.LineBreak(at)
	text := strings.Join(lines, lineBreak)
	if at == len(t.data) && at > 0 && t.data[at-1] != '\n' {
		return Edit{at, at, lineBreak + text}
	}
	return Edit{at, at, text + lineBreak}
}

func isBlank(line string) bool {
	return strings.TrimSpace(line) == ""
}

func isComment(line string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#")
}

// indent returns the number of spaces in front of a line.
func indent(line string) int {
	return len(line) - len(strings.TrimLeft(line, " "))
}
