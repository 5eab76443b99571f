package metadata

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is where a field's value stands in an entry, and what a new entry has in its place.
type value struct {
	node       *yaml.Node
	start, end int
	written    string
}

// findValues returns the values of an entry in the order of its fields. It is false where the entry
// doesn't have all three fields or writes one in a way that can't be followed: an anchor, an
// alias, a tag, several lines.
func findValues(t *text, entry *yaml.Node, added Series) ([]value, bool) {
	written := map[string]string{
		fieldMajor:    number(added.Major),
		fieldMinor:    number(added.Minor),
		fieldContract: added.Contract,
	}
	if len(entry.Content) != 2*len(written) {
		return nil, false
	}
	var values []value
	for i := 0; i < len(entry.Content); i += 2 {
		node := entry.Content[i+1]
		start, ok := t.offset(node)
		if !ok {
			return nil, false
		}
		quote := ""
		switch node.Style {
		case yaml.DoubleQuotedStyle:
			quote = `"`
		case yaml.SingleQuotedStyle:
			quote = `'`
		}
		now := quote + node.Value + quote
		if !bytes.HasPrefix(t.data[start:], []byte(now)) {
			return nil, false
		}
		values = append(values, value{
			node:    node,
			start:   start,
			end:     start + len(now),
			written: quote + written[entry.Content[i].Value] + quote,
		})
	}
	return values, true
}

// flowLike returns a new entry in the style of one in braces, and where that one ends.
func flowLike(t *text, entry *yaml.Node, added Series) (string, int, bool) {
	start, ok := t.offset(entry)
	if !ok || t.data[start] != '{' {
		return "", 0, false
	}
	values, ok := findValues(t, entry, added)
	if !ok {
		return "", 0, false
	}
	var like strings.Builder
	from := start
	for _, v := range values {
		if v.start < from {
			return "", 0, false
		}
		like.Write(t.data[from:v.start])
		like.WriteString(v.written)
		from = v.end
	}
	rest := t.data[from:]
	closing := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
	if closing == len(rest) || rest[closing] != '}' {
		return "", 0, false
	}
	like.Write(rest[:closing+1])
	// A comment inside would be copied too, and it is about the other series.
	return like.String(), from + closing + 1, !strings.Contains(like.String(), "#")
}

// between is what may stand between two entries in brackets: no comment.
var between = regexp.MustCompile(`^[ \t\r\n]*,[ \t\r\n]*$`)

// spliceFlow returns where in a list in brackets a new entry goes, and the entry with its comma.
func spliceFlow(t *text, list *yaml.Node, index int, added Series) (int, string, error) {
	neighbour := max(index-1, 0)
	entry, end, ok := flowLike(t, list.Content[neighbour], added)
	start, _ := t.offset(list.Content[neighbour])
	if !ok {
		return 0, "", errors.New("the list is in brackets, and its series are not all {major: N, minor: N, contract: NAME} without comments")
	}
	separator, err := flowSeparator(t, list, added)
	if err != nil {
		return 0, "", err
	}
	if index == 0 {
		return start, entry + separator, nil
	}
	return end, separator + entry, nil
}

// flowSeparator returns what stands between the entries of a list in brackets.
func flowSeparator(t *text, list *yaml.Node, added Series) (string, error) {
	first := list.Content[0]
	start, _ := t.offset(first)
	if len(list.Content) == 1 {
		margin := string(t.data[t.start(first.Line):start])
		if isBlank(margin) && first.Line > list.Line {
			return "," + t.lineBreak(start) + margin, nil
		}
		return ", ", nil
	}
	_, end, ok := flowLike(t, first, added)
	next, found := t.offset(list.Content[1])
	if ok && found && end <= next {
		if separator := string(t.data[end:next]); between.MatchString(separator) {
			return separator, nil
		}
	}
	return "", errors.New("the list is in brackets, with more than a comma between its series")
}

func number(n int32) string {
	return strconv.Itoa(int(n))
}
