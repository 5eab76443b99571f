package metadata

import (
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// splice returns what to write at which offset of a file so that its list of release series has
// the added one at the index. The error says what in the file's style stands in the way.
func splice(data []byte, list *yaml.Node, index int, added Series) (int, string, error) {
	t, err := newText(data)
	if err != nil {
		return 0, "", err
	}
	if list.Style&yaml.FlowStyle != 0 {
		return spliceFlow(t, list, index, added)
	}
	b, err := newBlock(t, list)
	if err != nil {
		return 0, "", err
	}
	offset, text := b.splice(index, added)
	return offset, text, nil
}

// block is a list with an entry below the other, each behind a dash.
type block struct {
	*text
	entries []*yaml.Node
	// dashes are the lines of the entries' dashes, and column is the number of spaces before them.
	dashes []int
	column int
}

// dash is the beginning of an entry, whatever follows the dash.
var dash = regexp.MustCompile(`^( *)-([ \t]|$)`)

func newBlock(t *text, list *yaml.Node) (*block, error) {
	b := &block{text: t, entries: list.Content}
	from := list.Line
	for i, entry := range list.Content {
		line := entry.Line
		// The dash stands in front of the first key, or alone in a line above it.
		for line >= from && line <= len(t.starts) && !dash.MatchString(t.line(line)) {
			line--
		}
		if line < from || line > len(t.starts) {
			return nil, errors.New("there is an entry without a dash in a line of its own")
		}
		column := indent(t.line(line))
		if i == 0 {
			b.column = column
		}
		if column != b.column {
			return nil, errors.New("the entries' dashes are not below each other")
		}
		b.dashes = append(b.dashes, line)
		from = line + 1
	}
	return b, nil
}

// splice returns where a new entry goes and its lines.
func (b *block) splice(index int, added Series) (int, string) {
	line := b.first(0)
	if index > 0 {
		line = b.last(index-1) + 1
	}
	offset := b.start(line)
	lineBreak := b.lineBreak(offset)
	entry := b.entry(index, added, lineBreak)
	gap := ""
	if b.spaced() {
		gap = lineBreak
	}
	switch {
	case index == 0:
		return offset, entry + lineBreak + gap
	case offset == len(b.data) && !strings.HasSuffix(string(b.data), "\n"):
		return offset, lineBreak + gap + entry
	default:
		return offset, gap + entry + lineBreak
	}
}

// first returns the first line that belongs to an entry: a comment right above it is about it.
func (b *block) first(i int) int {
	above := 0 // the last line that can't be part of it
	if i > 0 {
		above = b.dashes[i-1]
	}
	line := b.dashes[i]
	for line-1 > above && isComment(b.line(line-1)) && (i == 0 || indent(b.line(line-1)) <= b.column) {
		line--
	}
	return line
}

// last returns the last line that belongs to an entry: comments right below it are about it if
// they are indented like its fields.
func (b *block) last(i int) int {
	limit := len(b.starts) + 1
	if i+1 < len(b.dashes) {
		limit = b.dashes[i+1]
	}
	last := b.dashes[i]
	for line := last + 1; line < limit; line++ {
		content := b.line(line)
		if isBlank(content) {
			continue
		}
		inside := indent(content) > b.column
		if !isComment(content) {
			if !inside {
				break
			}
			last = line
		} else if inside && line == last+1 {
			last = line
		}
	}
	return last
}

// spaced says whether a blank line stands between all entries.
func (b *block) spaced() bool {
	for i := 1; i < len(b.dashes); i++ {
		if !isBlank(b.line(b.first(i) - 1)) {
			return false
		}
	}
	return len(b.dashes) > 1
}

// entry returns the lines of a new entry without the last line break, written like the nearest
// entry that has all fields in plain sight.
func (b *block) entry(index int, added Series, lineBreak string) string {
	for _, i := range nearest(index, len(b.entries)) {
		if lines, ok := b.like(i, added); ok {
			return strings.Join(lines, lineBreak)
		}
	}
	margin := strings.Repeat(" ", b.column)
	return strings.Join([]string{
		margin + "- major: " + number(added.Major),
		margin + "  minor: " + number(added.Minor),
		margin + "  contract: " + added.Contract,
	}, lineBreak)
}

// like returns the lines of a new entry in the style of another: order of fields, spaces, quotes.
func (b *block) like(i int, added Series) ([]string, bool) {
	entry := b.entries[i]
	if entry.Style&yaml.FlowStyle != 0 {
		flow, _, ok := flowLike(b.text, entry, added)
		start, _ := b.offset(entry)
		margin := string(b.data[b.start(entry.Line):min(start, len(b.data))])
		return []string{margin + flow}, ok && dash.MatchString(margin) && entry.Line == b.dashes[i] && !strings.Contains(flow, "\n")
	}
	values, ok := findValues(b.text, entry, added)
	if !ok {
		return nil, false
	}
	var lines []string
	if entry.Line > b.dashes[i] {
		lines = append(lines, strings.Repeat(" ", b.column)+"-")
	}
	for n, v := range values {
		key := entry.Content[2*n]
		keyStart, ok := b.offset(key)
		lineStart := b.start(key.Line)
		if !ok || lineStart > keyStart || keyStart > v.start || v.node.Line != key.Line {
			return nil, false
		}
		margin := string(b.data[lineStart:keyStart])
		if withDash := n == 0 && entry.Line == b.dashes[i]; withDash != dash.MatchString(margin) || strings.Trim(margin, " -") != "" {
			return nil, false
		}
		lines = append(lines, string(b.data[lineStart:v.start])+v.written)
	}
	return lines, true
}

// nearest returns the indexes of the entries in the order of their distance from a place between
// them, the one before it first.
func nearest(index, count int) []int {
	indexes := make([]int, 0, count)
	for distance := 1; len(indexes) < count; distance++ {
		if before := index - distance; before >= 0 {
			indexes = append(indexes, before)
		}
		if after := index + distance - 1; after < count {
			indexes = append(indexes, after)
		}
	}
	return indexes
}
