package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const sample = `# a comment
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  labels: {app.kubernetes.io/name: demo}
---
---
kind: Deployment
apiVersion: apps/v1
metadata: {name: b, namespace: c}
spec:
  template: &t
    containers:
    - name: manager
      image: x
  again: *t
`

func TestPlace(t *testing.T) {
	documents, err := Parse("f.yaml", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 2 || documents[1].Index != 3 {
		t.Fatalf("%d documents, the last with index %d, want 2 and 3", len(documents), documents[len(documents)-1].Index)
	}
	for _, tc := range []struct {
		document int
		path     []any
		want     string
	}{
		{0, nil, "2:1 "},
		{0, []any{"metadata", "name"}, "5:3 metadata.name"},
		{0, []any{"metadata", "labels", "app.kubernetes.io/name"}, "6:12 metadata.labels[app.kubernetes.io/name]"},
		{0, []any{"metadata", "annotations", "a"}, "4:1 metadata.annotations.a"},
		{1, []any{"spec", "template", "containers", 0, "image"}, "16:7 spec.template.containers[0].image"},
		{1, []any{"spec", "again", "containers", 0, "image"}, "16:7 spec.again.containers[0].image"},
		{1, []any{"spec", "template", "containers", 7}, "14:5 spec.template.containers[7]"},
	} {
		place := documents[tc.document].Place(tc.path...)
		if got := fmt.Sprintf("%d:%d %s", place.Line, place.Column, place.Path); got != tc.want {
			t.Errorf("place of %v = %q, want %q", tc.path, got, tc.want)
		}
	}
	if got, want := documents[1].Place().Object.String(), "Deployment c/b"; got != want {
		t.Errorf("object = %q, want %q", got, want)
	}
}

// TestHostile parses untrusted input: Parse returns objects or a SyntaxError, and never panics.
func TestHostile(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for _, tc := range []struct {
		name, text string
		want       string // part of the error, or "" for no error
	}{
		{"a bomb of aliases", bomb, "f.yaml:"},
		{"an alias of itself", "a: &a [*a]\n", "f.yaml"},
		{"deep nesting", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "f.yaml"},
		{"deep maps", "a: " + strings.Repeat("{a: ", 500) + strings.Repeat("}", 500), "nested deeper than 200 fields"},
		{"megabytes in one line", "a: " + strings.Repeat("x", 4<<20), ""},
		{"too large", strings.Repeat("a: b\n", maxFileSize/5+1), "are not read"},
		{"a NUL byte", "a: b\nc: \x00\n", "f.yaml:2: there is a NUL byte"},
		{"no UTF-8", "a: \xff\xfe\n", "f.yaml"},
		{"CRLF", "a: b\r\nc: d\r\n", ""},
		{"tabs", "a:\n\tb: c\n", "f.yaml:2: found character that cannot start any token"},
		{"duplicate keys", "a: b\na: c\n", "f.yaml:2: mapping key \"a\" already defined at line 1"},
		{"a list", "- a\n", "f.yaml:1: the document isn't an object"},
		{"a text", "hello\n", "f.yaml:1: the document isn't an object"},
		{"keys that are not strings", "1: a\ntrue: b\n", ""},
		{"10,000 documents", strings.Repeat("a: b\n---\n", 10_000), ""},
		{"too many documents", strings.Repeat("---\n", maxDocuments+2), "there are more than"},
		{"a date", "a: 2026-01-01\n", ""},
		{"a custom tag", "a: !!python/object b\n", ""},
		{"a merge key", "a: &a {b: c}\nd: {<<: *a}\n", ""},
		{"empty", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(tc.text))
			var syntax *SyntaxError
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("error = %v, want none", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error = %v, want %q", err, tc.want)
			case err != nil && !errors.As(err, &syntax):
				t.Errorf("error is a %T, want a *SyntaxError", err)
			}
		})
	}
}

// TestValuesHaveJSONTypes checks that values have the types of decoded JSON.
func TestValuesHaveJSONTypes(t *testing.T) {
	documents, err := Parse("f.yaml", []byte("a: 1\nb: 2026-01-01\nc: {1: x}\nd: [1.5, 2]\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := documents[0].Object.Object
	if _, ok := o["a"].(int64); !ok {
		t.Errorf("number is a %T, want an int64", o["a"])
	}
	if got := o["b"]; got != "2026-01-01T00:00:00Z" {
		t.Errorf("date = %v, want 2026-01-01T00:00:00Z", got)
	}
	if got := o["c"].(map[string]any)["1"]; got != "x" {
		t.Errorf("field with the name 1 = %v, want x", got)
	}
	documents[0].Object.DeepCopy() // panics on types that JSON does not have
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("a: {<<: [*b]}"))
	f.Add([]byte("%YAML 1.1\n--- !!map {a: !!binary aGk=}\n...\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, err := Parse("f.yaml", data)
		var syntax *SyntaxError
		if err != nil && !errors.As(err, &syntax) {
			t.Fatalf("error is a %T, want a *SyntaxError", err)
		}
		for _, d := range documents {
			d.Object.DeepCopy()
			d.Place("metadata", "labels", 0, "x")
		}
	})
}
