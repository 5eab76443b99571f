// Package format selects the format of an output by its name.
package format

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Named is a format for a T.
type Named[T any] struct {
	// Name is the name that users give.
	Name string
	// Write writes a T.
	Write func(T, io.Writer) error
}

// List are all formats for a T, in the order of help texts.
type List[T any] []Named[T]

// Names returns the names of the formats.
func (l List[T]) Names() []string {
	names := make([]string, 0, len(l))
	for _, named := range l {
		names = append(names, named.Name)
	}
	return names
}

// Parse returns an error that lists the formats if name is not one of them.
func (l List[T]) Parse(name string) error {
	if !slices.Contains(l.Names(), name) {
		return fmt.Errorf("%q isn't a format: use %s", name, strings.Join(l.Names(), ", "))
	}
	return nil
}

// JSON writes a value as indented JSON.
func JSON[T any](value T, w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Write writes value in the format with a name. Errors call the value what. The error is that of Parse, or that of the
// format.
func (l List[T]) Write(name, what string, value T, w io.Writer) error {
	for _, named := range l {
		if named.Name != name {
			continue
		}
		if err := named.Write(value, w); err != nil {
			return fmt.Errorf("writing %s as %s: %w", what, name, err)
		}
		return nil
	}
	return l.Parse(name)
}

// Printable replaces the control characters of a text, which could move a terminal's cursor or a table's columns, and
// invalid UTF-8.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return '·'
		}
		return r
	}, s)
}
