package move

import (
	"strings"
	"testing"
)

// TestSkim checks that the lines of fields that no rule reads become empty, and that text in another style than
// kubectl's is not skimmed.
func TestSkim(t *testing.T) {
	crd := "kind: CustomResourceDefinition\nmetadata:\n  name: x\n"
	for _, tc := range []struct{ name, text, want string }{
		{
			name: "a Machine",
			text: "apiVersion: v1\ndata:\n  kind: none\nkind: Machine\n# a comment\nmetadata:\n  annotations:\n    a: |\n      name: b\n\n      #c\n    cluster.x-k8s.io/paused: \"\"\n" +
				"  finalizers:\n  - f\n  labels: {}\n  name: \"x\n    y\"\nstatus:\n  addresses:\n  - type: A\n  nodeRef:\n    name: n\n",
			want: "apiVersion: v1\n\n\nkind: Machine\n# a comment\nmetadata:\n  annotations:\n\n\n\n\n    cluster.x-k8s.io/paused: \"\"\n" +
				"\n\n  labels: {}\n  name: \"x\n    y\"\nstatus:\n\n\n  nodeRef:\n    name: n\n",
		},
		{
			name: "an item of a list", text: "  apiVersion: v1\n  kind: Secret\n  metadata:\n    name: x\n    ownerReferences:\n    - kind: A\n      name: b\n  spec: 1\n",
			want: "  apiVersion: v1\n  kind: Secret\n  metadata:\n    name: x\n    ownerReferences:\n    - kind: A\n      name: b\n\n",
		},
		{
			name: "a list of mappings",
			text: crd + "spec:\n  versions:\n  - columns:\n    - name: Age\n    name: v1\n    schema:\n      name: no\n  - name: v2\n    other: x\n  group: g\n",
			want: crd + "spec:\n  versions:\n  -\n\n    name: v1\n\n\n  - name: v2\n\n  group: g\n",
		},
		{name: "braces", text: crd + "spec:\n  names: {kind: X}\n"},
		{name: "braces that are not read", text: crd + "status: {a: b}\n", want: crd + "\n"},
		{name: "a key in quotes", text: crd + "\"spec\":\n  group: g\n"},
		{name: "a dash on a line of its own", text: crd + "spec:\n  versions:\n  -\n    name: v1\n"},
		{name: "less indented than the first line", text: "  kind: Secret\n  metadata:\n    name: x\nspec:\n"},
		{name: "no kind", text: "metadata:\n  name: x\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := skim([]byte(tc.text))
			if string(got) != tc.want || ok != (tc.want != "") {
				t.Errorf("skim returns %v and\n%s\nwant\n%s", ok, got, tc.want)
			}
			if ok && strings.Count(string(got), "\n") != strings.Count(tc.text, "\n") {
				t.Error("the number of lines has changed")
			}
		})
	}
}
