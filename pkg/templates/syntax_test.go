package templates_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// syntaxCases are templates with the place that the error must name; "" means no error.
var syntaxCases = []struct {
	name     string
	text     string
	place    string
	wantText string
}{
	{name: "empty", text: ""},
	{name: "plain YAML", text: "a: b\n---\nc: d\n"},
	{name: "a variable", text: "a: ${B}\n"},
	{name: "defaults", text: "a: ${B:=1}\nb: ${C:-\"x\"}\nc: ${D=2}\n"},
	{name: "functions", text: "a: ${B/x/y}\nb: ${C,,}\nc: ${#D}\nd: ${E:0:3}\n"},
	{name: "shell variables in the processor's syntax", text: "run: |\n  echo ${x%.*} ${y##*/}\n"},
	{name: "escaped", text: "run: |\n  echo $${x} $${not a name}\n"},
	{name: "no braces", text: "run: |\n  echo $x $(date) $1 $$\n"},
	{name: "YAML only after rendering", text: "${A}\n- [\n"},
	{name: "a space", text: "a: b\nc: ${B C}\n", place: "t.yaml:2:", wantText: "$${...}"},
	{name: "no name", text: "a: b\n\nc: ${}\n", place: "t.yaml:3:"},
	{name: "never closed", text: "a: b\nc: d\ne: ${F\n", place: "t.yaml:3:"},
	{name: "closed in the next line", text: "a: ${B\n}\n"},
	{name: "after one that is closed in the next line", text: "a: ${B\n}\nc: ${D E}\nf: g\n", place: "t.yaml:3:"},
	{name: "the second of two", text: "a: ${B}\nc: ${D E}\n", place: "t.yaml:2:"},
	{name: "no YAML in the first document", text: "a: b\nc: d: e\n", place: "t.yaml: document 1", wantText: "line 2"},
	{name: "no YAML in the third document", text: "a: b\n---\nc: d\n---\n- e: [\n", place: "t.yaml: document 3", wantText: "line 5"},
	{name: "a tab", text: "a:\n\tb: c\n", place: "t.yaml: document 1", wantText: "line 2"},
	{name: "no YAML, with an escaped variable", text: "a: $${B}\nc: [\n", place: "t.yaml: document 1"},
	{name: "Windows lines", text: "a: b\r\nc: ${B C}\r\n", place: "t.yaml:2:"},
}

func TestCheckSyntax(t *testing.T) {
	for _, tc := range syntaxCases {
		t.Run(tc.name, func(t *testing.T) {
			err := templates.CheckSyntax("t.yaml", []byte(tc.text))
			if tc.place == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("error = nil, want an error")
			}
			if !strings.HasPrefix(err.Error(), tc.place) || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("error = %v, want place %q and text %q", err, tc.place, tc.wantText)
			}
		})
	}
}

var errorPlace = regexp.MustCompile(`^t\.yaml(:\d+)?: `)

// FuzzCheckSyntax checks that a template passes if and only if clusterctl's processor accepts it with values for
// its variables, and that an error begins with the file.
func FuzzCheckSyntax(f *testing.F) {
	for _, tc := range syntaxCases {
		f.Add([]byte(tc.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		err := templates.CheckSyntax("t.yaml", data)
		if !bytes.Equal(data, before) {
			t.Error("CheckSyntax changed the template")
		}
		processor := yamlprocessor.NewSimpleProcessor()
		_, processError := processor.Process(data, func(string) (string, error) { return "x", nil })
		switch {
		case err != nil && !errorPlace.MatchString(err.Error()):
			t.Errorf("the error does not begin with the file and its line: %q", err)
		case err == nil && processError != nil:
			t.Errorf("CheckSyntax accepts what clusterctl refuses: %v\n%s", processError, data)
		case err != nil && strings.Contains(err.Error(), "clusterctl can't parse a variable") && processError == nil:
			t.Errorf("CheckSyntax refuses variables that clusterctl accepts: %v\n%s", err, data)
		}
		if lines := bytes.Count(data, []byte("\n")) + 1; err != nil {
			var line int
			if n, _ := fmt.Sscanf(err.Error(), "t.yaml:%d:", &line); n == 1 && (line < 1 || line > lines) {
				t.Errorf("the error is in line %d of a text with %d lines: %v", line, lines, err)
			}
		}
	})
}
