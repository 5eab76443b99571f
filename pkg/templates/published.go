package templates

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Published is a template before its variables are replaced.
type Published struct {
	// Documents are those of the file. A use of a variable is the text ${NAME} in them, whatever its default.
	Documents []*manifest.Document
	// Blocks are the variables that stand for lines of YAML, which no single value can replace.
	Blocks []Block
	// scalars are the single values with variables, by document.
	scalars map[*manifest.Document][]manifest.Scalar
}

// Block is a use of a variable that stands for fields, items or whole objects.
type Block struct {
	Variable string
	// Line is the line of the use.
	Line int
	// Document is the document that contains the block, or nil if the block is a separate document.
	Document *manifest.Document
	// Path is the object or list that is open on the line. The block may add to it, and to its parents.
	Path []any
	// Objects means that the block may be whole objects.
	Objects bool
	// Value means that the block is the whole value of the field at Path.
	Value bool
}

// errNoValue is the error for a variable that has no value.
var errNoValue = errors.New("not set")

// The limits for the search for variables that no word can replace.
const (
	// maxPublished is the size of a file in bytes.
	maxPublished = 1 << 18
	// maxTries is the number of times that a file is read.
	maxTries = 100
)

// Publish reads a template with a word in place of each variable. If the result isn't YAML, it uses the defaults of the
// variables that no word can replace, or removes them. The error is that of a file that isn't YAML then either.
func Publish(f release.File) (*Published, error) {
	variables, err := Variables(f)
	if err != nil {
		return nil, err
	}
	return publish(f, variables)
}

func publish(f release.File, variables []Variable) (*Published, error) {
	if bytes.IndexByte(f.Data, 0) >= 0 {
		_, err := manifest.Parse(f.Name, f.Data) // the processor treats a NUL as the end of the file
		return nil, err
	}
	m := newMarkers(f, variables)
	var err error
	all := slices.Sorted(maps.Keys(m.defaults))
	p := &Published{scalars: map[*manifest.Document][]manifest.Scalar{}}
	left := map[string]bool{}
	if p.Documents, err = m.parse(all); err != nil {
		if len(f.Data) > maxPublished || len(all) == 0 {
			return nil, err
		}
		var unmarked error
		if p.Documents, unmarked = m.parse(nil); unmarked != nil {
			return nil, unmarked
		}
		var marked []string
		if m.add(&marked, &p.Documents, all); m.tries > maxTries {
			return nil, err
		}
		for _, name := range all {
			left[name] = !slices.Contains(marked, name)
		}
	}
	for _, d := range p.Documents {
		manifest.Edit(d.Object.Object, m.restore)
		for _, scalar := range d.Scalars() {
			if text := m.text(scalar.Text); text != scalar.Text {
				scalar.Text, scalar.Path = text, m.path(scalar.Path)
				p.scalars[d] = append(p.scalars[d], scalar)
			}
		}
	}
	for _, v := range variables {
		if left[v.Name] && v.Default == nil {
			for _, line := range v.Lines {
				p.Blocks = append(p.Blocks, p.blockAt(f.Data, v.Name, line, m))
			}
		}
	}
	return p, nil
}

// markers are the words that replace variables.
type markers struct {
	file release.File
	// word is the prefix of all markers, which does not occur in the file.
	word     string
	names    []string
	defaults map[string]*string
	pattern  *regexp.Regexp
	tries    int
}

func newMarkers(f release.File, variables []Variable) *markers {
	m := &markers{file: f, word: "zzvariable", defaults: map[string]*string{}}
	for bytes.Contains(f.Data, []byte(m.word)) {
		m.word += "z"
	}
	for _, v := range variables {
		m.names = append(m.names, v.Name)
		m.defaults[v.Name] = v.Default
	}
	m.pattern = regexp.MustCompile("(?i)" + m.word + "([0-9]+)z") // a use may be in capitals: ${NAME^^}
	return m
}

// parse reads the file with markers in place of some variables.
func (m *markers) parse(marked []string) ([]*manifest.Document, error) {
	values := map[string]string{}
	for i, name := range m.names {
		if slices.Contains(marked, name) {
			values[name] = m.word + strconv.Itoa(i) + "z"
		} else if m.defaults[name] == nil {
			values[name] = ""
		}
	}
	data, err := newProcessor().processLines(m.file.Data, func(name string) (string, error) {
		if value, ok := values[name]; ok {
			return value, nil
		}
		return "", errNoValue
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.file.Name, err)
	}
	return manifest.Parse(m.file.Name, data)
}

// add marks as many further variables as possible: if some can't be marked together, it tries each half.
func (m *markers) add(marked *[]string, documents *[]*manifest.Document, names []string) {
	if m.tries++; m.tries > maxTries {
		return
	}
	more := slices.Concat(*marked, names)
	if parsed, err := m.parse(more); err == nil {
		*marked, *documents = more, parsed
		return
	}
	if half := len(names) / 2; half > 0 {
		m.add(marked, documents, names[:half])
		m.add(marked, documents, names[half:])
	}
}

// markerStarts are the prefixes of markers: a search for them is faster than the pattern.
var markerStarts = []string{"zz", "ZZ", "Zz", "zZ"}

// text returns a text with variables in place of their markers.
func (m *markers) text(text string) string {
	if len(m.names) == 0 || len(text) < len(m.word) || !slices.ContainsFunc(markerStarts, func(start string) bool { return strings.Contains(text, start) }) {
		return text
	}
	return m.pattern.ReplaceAllStringFunc(text, func(marker string) string {
		i, err := strconv.Atoi(m.pattern.FindStringSubmatch(marker)[1])
		if err != nil || i >= len(m.names) {
			return marker
		}
		return "${" + m.names[i] + "}"
	})
}

// path returns a path with variables in place of their markers.
func (m *markers) path(path []any) []any {
	restored := slices.Clone(path)
	for i, step := range restored {
		if name, ok := step.(string); ok {
			restored[i] = m.text(name)
		}
	}
	return restored
}

// restore restores the variables in a text, or in the names of fields.
func (m *markers) restore(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if restored := m.text(name); restored != name {
				delete(v, name)
				v[restored] = field
			}
		}
	case string:
		return m.text(v)
	}
	return value
}

// blockAt returns the block on a line of the file.
func (p *Published) blockAt(data []byte, variable string, line int, m *markers) Block {
	block := Block{Variable: variable, Line: line}
	lines := bytes.Split(data, []byte("\n"))
	separator := func(i int) bool { return i < 0 || i >= len(lines) || bytes.HasPrefix(lines[i], []byte("---")) }
	blank := func(i int) bool {
		text := bytes.TrimSpace(lines[i])
		return len(text) == 0 || text[0] == '#'
	}
	first, last := line-2, line
	for !separator(first) && blank(first) {
		first--
	}
	for !separator(last) && blank(last) {
		last++
	}
	block.Objects = bytes.HasPrefix(lines[line-1], []byte("$")) && (separator(first) || separator(last))
	for !separator(first) {
		first--
	}
	for !separator(last) {
		last++
	}
	for _, d := range p.Documents {
		if d.Line() > first+1 && d.Line() <= last {
			block.Document, block.Path = d, m.path(d.Before(line))
		}
	}
	return block
}
