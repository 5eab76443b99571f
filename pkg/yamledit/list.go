package yamledit

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Field is a field of an entry that is added to a list.
type Field struct {
	Key, Value string
	// Quoted means that the value is written in quotes, because it may be read as another type without.
	Quoted bool
}

func (f Field) written(style yaml.Style) string {
	switch {
	case style == yaml.SingleQuotedStyle:
		return "'" + f.Value + "'"
	case style == yaml.DoubleQuotedStyle || f.Quoted:
		return `"` + f.Value + `"`
	}
	return f.Value
}

// Insert returns the edit that adds an entry to a non-empty list, at an index. The entry has the style of its
// neighbours: block or flow, with their order of fields, spaces and quotes. The values must not need escapes in quotes.
// The error names the obstacle in the file's style.
func (t *Text) Insert(list *yaml.Node, index int, fields []Field) (Edit, error) {
	if list.Style&yaml.FlowStyle != 0 {
		return t.insertFlow(list, index, fields)
	}
	b, err := newBlock(t, list)
	if err != nil {
		return Edit{}, err
	}
	return b.insert(index, fields), nil
}

// BlockEntry returns the lines of an entry in block style.
func BlockEntry(indent string, fields []Field) []string {
	var lines []string
	for i, field := range fields {
		lead := "  "
		if i == 0 {
			lead = "- "
		}
		lines = append(lines, indent+lead+field.Key+": "+field.written(0))
	}
	return lines
}

// FlowEntry returns an entry in braces.
func FlowEntry(fields []Field) string {
	texts := make([]string, 0, len(fields))
	for _, field := range fields {
		texts = append(texts, field.Key+": "+field.written(0))
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// block is a list in block style, with an entry after each dash.
type block struct {
	*Text
	entries []*yaml.Node
	// dashes are the lines of the entries' dashes, and column is the number of spaces before them.
	dashes []int
	column int
}

// dash matches the beginning of an entry.
var dash = regexp.MustCompile(`^( *)-([ \t]|$)`)

func newBlock(t *Text, list *yaml.Node) (*block, error) {
	b := &block{Text: t, entries: list.Content}
	from := list.Line
	for i, entry := range list.Content {
		line := entry.Line
		// The dash precedes the first key, or is alone on a line above it.
		for line >= from && line <= t.Lines() && !dash.MatchString(t.Line(line)) {
			line--
		}
		if line < from || line > t.Lines() {
			return nil, errors.New("an entry has no dash on its own line")
		}
		column := indent(t.Line(line))
		if i == 0 {
			b.column = column
		}
		if column != b.column {
			return nil, errors.New("the dashes of the entries are not aligned")
		}
		b.dashes = append(b.dashes, line)
		from = line + 1
	}
	return b, nil
}

func (b *block) insert(index int, fields []Field) Edit {
	line := b.first(0)
	if index > 0 {
		line = b.last(index-1) + 1
	}
	lines := b.entry(index, fields)
	if b.spaced() {
		if index == 0 {
			lines = append(lines, "")
		} else {
			lines = slices.Insert(lines, 0, "")
		}
	}
	return b.InsertLines(line, lines...)
}

// first returns the first line of an entry, including a comment right above it.
func (b *block) first(i int) int {
	above := 0 // the last line that can't be part of it
	if i > 0 {
		above = b.dashes[i-1]
	}
	line := b.dashes[i]
	for line-1 > above && isComment(b.Line(line-1)) && (i == 0 || indent(b.Line(line-1)) <= b.column) {
		line--
	}
	return line
}

// last returns the last line of an entry, including comments right below it that are indented like its fields.
func (b *block) last(i int) int {
	limit := b.Lines() + 1
	if i+1 < len(b.dashes) {
		limit = b.dashes[i+1]
	}
	last := b.dashes[i]
	for line := last + 1; line < limit; line++ {
		switch content := b.Line(line); {
		case isBlank(content):
		case indent(content) > b.column && (!isComment(content) || line == last+1):
			last = line
		case !isComment(content):
			return last
		}
	}
	return last
}

// spaced reports whether a blank line separates all entries.
func (b *block) spaced() bool {
	for i := 1; i < len(b.dashes); i++ {
		if !isBlank(b.Line(b.first(i) - 1)) {
			return false
		}
	}
	return len(b.dashes) > 1
}

// entry returns the lines of a new entry, in the style of the nearest entry whose style can be copied.
func (b *block) entry(index int, fields []Field) []string {
	for distance := range b.entries {
		for _, i := range []int{index - 1 - distance, index + distance} { // the one before, the one after
			if i < 0 || i >= len(b.entries) {
				continue
			}
			if lines, ok := b.like(i, fields); ok {
				return lines
			}
		}
	}
	return BlockEntry(strings.Repeat(" ", b.column), fields)
}

// like returns the lines of a new entry in the style of another: order of fields, spaces, quotes.
func (b *block) like(i int, fields []Field) ([]string, bool) {
	entry := b.entries[i]
	if entry.Style&yaml.FlowStyle != 0 {
		flow, _, ok := b.flowLike(entry, fields)
		start, _ := b.Offset(entry)
		margin := string(b.data[b.Start(entry.Line):min(start, len(b.data))])
		return []string{margin + flow}, ok && dash.MatchString(margin) && entry.Line == b.dashes[i] && !strings.Contains(flow, "\n")
	}
	values, ok := b.values(entry, fields)
	if !ok {
		return nil, false
	}
	var lines []string
	if entry.Line > b.dashes[i] {
		lines = append(lines, strings.Repeat(" ", b.column)+"-")
	}
	for n, v := range values {
		key := entry.Content[2*n]
		keyStart, ok := b.Offset(key)
		lineStart := b.Start(key.Line)
		if !ok || lineStart > keyStart || keyStart > v.Start || entry.Content[2*n+1].Line != key.Line {
			return nil, false
		}
		margin := string(b.data[lineStart:keyStart])
		if withDash := n == 0 && entry.Line == b.dashes[i]; withDash != dash.MatchString(margin) || strings.Trim(margin, " -") != "" {
			return nil, false
		}
		lines = append(lines, string(b.data[lineStart:v.Start])+v.New)
	}
	return lines, true
}

// values returns the places of an entry's values in the order of its fields, and the values of a new entry. It returns
// false if the entry has other fields, or a field that can't be copied: with an anchor, an alias, a tag, or several
// lines.
func (t *Text) values(entry *yaml.Node, fields []Field) ([]Edit, bool) {
	if len(entry.Content) != 2*len(fields) {
		return nil, false
	}
	var values []Edit
	for i := 0; i < len(entry.Content); i += 2 {
		key, node := entry.Content[i], entry.Content[i+1]
		field := slices.IndexFunc(fields, func(f Field) bool { return f.Key == key.Value })
		start, end, ok := t.Scalar(node)
		if field < 0 || !ok || node.Kind == yaml.AliasNode || bytes.ContainsAny(t.data[start:end], "\r\n") {
			return nil, false
		}
		values = append(values, Edit{start, end, fields[field].written(node.Style)})
	}
	return values, true
}

// flowLike returns a new entry in the style of one in braces, and the end of that one.
func (t *Text) flowLike(entry *yaml.Node, fields []Field) (string, int, bool) {
	start, ok := t.Offset(entry)
	if !ok || t.data[start] != '{' {
		return "", 0, false
	}
	values, ok := t.values(entry, fields)
	if !ok {
		return "", 0, false
	}
	var like strings.Builder
	from := start
	for _, v := range values {
		if v.Start < from {
			return "", 0, false
		}
		like.Write(t.data[from:v.Start])
		like.WriteString(v.New)
		from = v.End
	}
	rest := t.data[from:]
	closing := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
	if closing == len(rest) || rest[closing] != '}' {
		return "", 0, false
	}
	like.Write(rest[:closing+1])
	// A comment inside would be copied, although it belongs to the other entry.
	return like.String(), from + closing + 1, !strings.Contains(like.String(), "#")
}

// between matches the text between two entries in brackets without comments.
var between = regexp.MustCompile(`^[ \t\r\n]*,[ \t\r\n]*$`)

// insertFlow returns the edit that adds an entry with its comma to a list in brackets.
func (t *Text) insertFlow(list *yaml.Node, index int, fields []Field) (Edit, error) {
	neighbour := list.Content[max(index-1, 0)]
	entry, end, ok := t.flowLike(neighbour, fields)
	start, _ := t.Offset(neighbour)
	if !ok {
		var keys []string
		for _, field := range fields {
			keys = append(keys, field.Key)
		}
		return Edit{}, errors.New("the list is in brackets, and its entries are not all in braces, with the fields " + strings.Join(keys, ", ") + " and without comments")
	}
	separator, err := t.flowSeparator(list, fields)
	if err != nil {
		return Edit{}, err
	}
	if index == 0 {
		return Edit{start, start, entry + separator}, nil
	}
	return Edit{end, end, separator + entry}, nil
}

// flowSeparator returns the separator of the entries of a list in brackets.
func (t *Text) flowSeparator(list *yaml.Node, fields []Field) (string, error) {
	first := list.Content[0]
	start, _ := t.Offset(first)
	if len(list.Content) == 1 {
		margin := string(t.data[t.Start(first.Line):start])
		if isBlank(margin) && first.Line > list.Line {
			return "," + t.LineBreak(start) + margin, nil
		}
		return ", ", nil
	}
	_, end, ok := t.flowLike(first, fields)
	next, found := t.Offset(list.Content[1])
	if ok && found && end <= next {
		if separator := string(t.data[end:next]); between.MatchString(separator) {
			return separator, nil
		}
	}
	return "", errors.New("the list is in brackets, with more than a comma between its entries")
}
