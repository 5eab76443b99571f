// Package format chooses by name among the ways to show something.
package format

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Named is one way to show a T.
type Named[T any] struct {
	// Name as users give it.
	Name string
	// Write shows a T.
	Write func(T, io.Writer) error
}

// List are all ways to show a T, in the order of help texts.
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

// JSON shows a value as indented JSON.
func JSON[T any](value T, w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Write shows value, which errors call what, in the format of a name. The error is that of Parse, or
// that of the format.
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

// Printable replaces the control characters of a text, which could move a terminal's cursor or a table's
// columns, and what isn't UTF-8.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return '·'
		}
		return r
	}, s)
}
