package metadata

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// text is a file by lines, to find in its bytes what the YAML decoder names by line and column.
type text struct {
	data []byte
	// starts are the offsets at which the lines begin.
	starts []int
}

// byteOrderMark is what some editors put in front of UTF-8. The decoder doesn't count it as a column.
const byteOrderMark = "\uFEFF"

// newText splits a file into lines. It is an error if the file has line breaks that YAML 1.1 counts
// and that are neither LF nor CRLF.
func newText(data []byte) (*text, error) {
	withoutCRLF := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if bytes.ContainsAny(withoutCRLF, "\r\u0085\u2028\u2029") {
		return nil, errors.New("it has line breaks that are neither LF nor CRLF")
	}
	t := &text{data: data, starts: []int{0}}
	for i, b := range data {
		if b == '\n' && i+1 < len(data) {
			t.starts = append(t.starts, i+1)
		}
	}
	return t, nil
}

// start returns the offset of a line, counted from 1, and that of the file's end for the line after the last.
func (t *text) start(line int) int {
	if line > len(t.starts) {
		return len(t.data)
	}
	return t.starts[line-1]
}

// line returns a line without its line break.
func (t *text) line(line int) string {
	return strings.TrimRight(string(t.data[t.start(line):t.start(line+1)]), "\r\n")
}

// offset returns where in the file a node begins, or false where the file has no such place.
func (t *text) offset(node *yaml.Node) (int, bool) {
	if node.Line < 1 || node.Line > len(t.starts) {
		return 0, false
	}
	at := t.start(node.Line)
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

// lineBreak returns the line break that is in use where new lines go: that of the line before.
func (t *text) lineBreak(offset int) string {
	end := bytes.LastIndexByte(t.data[:offset], '\n')
	if end < 0 {
		end = bytes.IndexByte(t.data, '\n')
	}
	if end > 0 && t.data[end-1] == '\r' {
		return "\r\n"
	}
	return "\n"
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
