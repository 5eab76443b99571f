package templates_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// demoFields are the fields of the kind Demo.
const demoFields = `
type: object
required: [list]
properties:
  text: {type: string}
  short: {type: string, maxLength: 3}
  long: {type: string, minLength: 20}
  number: {type: integer, minimum: 10, maximum: 20}
  even: {type: integer, multipleOf: 2, minimum: 3}
  switch: {type: boolean}
  mode: {type: string, enum: [Fast, Slow]}
  usual: {type: string, enum: [a, b], default: b}
  range: {type: string, format: cidr}
  address: {type: string, format: ipv4}
  site: {type: string, format: uri}
  wait: {type: string, format: duration}
  quantity:
    anyOf: [{type: integer}, {type: string}]
    pattern: ^([0-9]+)(Mi|Gi)$
    x-kubernetes-int-or-string: true
  image: {type: string, pattern: '^img-[0-9a-f]{8}$'}
  sum: {type: string, pattern: '^sha(256:[0-9a-f]{64}|512:[0-9a-f]{128})$'}
  digits: {type: string, pattern: '^[0-9]+$'}
  list: {type: array, minItems: 2, items: {type: string, format: cidr}}
  object: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer}}}
  choice: {type: object, minProperties: 1, maxProperties: 1, properties: {big: {type: boolean}, small: {type: boolean}}}
`

// demoKinds returns the kind Demo.
func demoKinds(t *testing.T) *schemas.Kinds {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	text := "spec:\n  group: example.com\n  names: {kind: Demo, plural: demos}\n  versions:\n  - name: v1\n    served: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n" +
		strings.ReplaceAll(demoFields, "\n", "\n            ")
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	return schemas.Of(crd)
}

const demoTemplate = `apiVersion: example.com/v1
kind: Demo
metadata:
  name: ${NAME_URL}
  labels: {a: "${LABEL_CIDR}"}
spec:
  text: ${TEXT}
  short: ${A_LONG_NAME}
  long: ${SHORT}
  number: ${AMOUNT}
  even: ${EVEN}
  switch: ${SWITCH}
  mode: ${MODE}
  usual: ${USUAL}
  range: ${PLACE}
  address: ${HOST}
  site: ${SITE}
  wait: ${WAIT}
  quantity: ${MEMORY}
  image: img-${IMAGE}
  sum: ${SUM}
  digits: ${DIGITS}
  list: ${LIST}
  object: ${OBJECT}
  choice: ${CHOICE}
`

// TestSample checks that all sample values are valid for the schemas of the fields that use the variables.
func TestSample(t *testing.T) {
	kinds := demoKinds(t)
	file := release.File{Name: "cluster-template.yaml", Data: []byte(demoTemplate)}
	samples, err := templates.Sample(file, &templates.Known{Kinds: kinds}, map[string]string{"TEXT": "given"})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := templates.NewProcessor().Process(file.Data, func(name string) (string, error) { return samples.Values[name], nil })
	if err != nil {
		t.Fatal(err)
	}
	documents, err := manifest.Parse(file.Name, rendered)
	if err != nil {
		t.Fatalf("%v:\n%s", err, rendered)
	}
	problems, err := kinds.Validate(t.Context(), &documents[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%v: %s", p.Path, p.Message)
	}
	for name, want := range map[string]string{
		"TEXT": "given", "NAME_URL": "name-url", "LABEL_CIDR": "label-cidr", "AMOUNT": "10", "EVEN": "4", "SWITCH": "true", "MODE": "Fast", "USUAL": "b",
		"PLACE": "192.0.2.0/24", "HOST": "192.0.2.1", "SITE": "https://example.com", "IMAGE": "aaaaaaaa", "DIGITS": `"1"`,
		"OBJECT": `{"name":"x"}`, "CHOICE": `{"big":true}`,
	} {
		if got := samples.Values[name]; got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if slices.Contains(samples.Generated, "TEXT") || !slices.Contains(samples.Generated, "MODE") {
		t.Errorf("Generated = %q, want MODE and not TEXT", samples.Generated)
	}
	if len(samples.Blocks) != 2 || samples.Blocks[0].Variable != "CHOICE" || samples.Blocks[1].Variable != "OBJECT" {
		t.Errorf("Blocks = %+v, want those of CHOICE and OBJECT", samples.Blocks)
	}
}

// TestSampleOfSeveralUses checks that a value is valid for all uses of a variable.
func TestSampleOfSeveralUses(t *testing.T) {
	samples, err := templates.Sample(release.File{Name: "cluster-template.yaml", Data: []byte(`apiVersion: example.com/v1
kind: Demo
metadata: {name: a}
spec: {number: ${A}, even: ${A}, text: "${B}", address: "${B}", list: ["${B}/24", "${C}"], digits: "${C}"}
`)}, &templates.Known{Kinds: demoKinds(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := samples.Values["A"], samples.Values["B"]; a != "10" || b != "192.0.2.1" {
		t.Errorf("A = %q and B = %q, want 10 and 192.0.2.1", a, b)
	}
}

// TestSampleOfClasses checks that a Cluster gets an existing class, and valid values for the class's variables.
func TestSampleOfClasses(t *testing.T) {
	class := release.File{Name: "clusterclass-demo-large.yaml", Data: []byte(`apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: "demo-${SIZE}"}
spec:
  variables:
  - name: cpus
    schema: {openAPIV3Schema: {type: integer, minimum: 4}}
`)}
	known := &templates.Known{Kinds: schemas.Of(), Classes: []release.File{class}}
	samples, err := templates.Sample(release.File{Name: "cluster-template.yaml", Data: []byte(`apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: "${CLUSTER_NAME}"}
spec:
  topology:
    classRef: {name: "demo-${CLASS_SIZE}"}
    variables:
    - {name: cpus, value: ${A_NUMBER_OF_CPUS}}
`)}, known, nil)
	if err != nil {
		t.Fatal(err)
	}
	if class, cpus := samples.Values["CLASS_SIZE"], samples.Values["A_NUMBER_OF_CPUS"]; class != "large" || cpus != "4" {
		t.Errorf("class size = %q and cpus = %q, want large and 4", class, cpus)
	}
	if samples, err = templates.Sample(class, known, nil); err != nil || samples.Values["SIZE"] != "large" {
		t.Errorf("SIZE = %q, want large, as in the file's name: %v", samples.Values["SIZE"], err)
	}
}

func TestPublish(t *testing.T) {
	type block struct {
		Variable string
		Line     int
		Path     []any
		Objects  bool
	}
	for _, tc := range []struct {
		name, text string
		want       string // the objects
		lines      map[string]int
		blocks     []block
	}{
		{"values", "a: ${A}\nb: [${B}, {c: ${C}}]\nd: x-${D:=[1, 2]}\n${E}: '$${F}'\n", `{a: "${A}", b: ["${B}", {c: "${C}"}], d: "x-${D}", "${E}": "${F}"}`, map[string]int{"d": 3}, nil},
		{"lists", "a:\n- ${A}\n- \"${B}\"\n", `{a: ["${A}", "${B}"]}`, nil, nil},
		{"several lines", "a: ${A:=[1,\n  2]}\nb: 1\n", `{a: "${A}", b: 1}`, map[string]int{"b": 3}, nil},
		{"a block of text", "a: |\n  ${A}\nb: 1\n", `{a: "${A}\n", b: 1}`, map[string]int{"b": 3}, nil},
		{"lines of fields", "a:\n  b: 1\n  ${A}\nc: {d: ${D}}\n", `{a: {b: 1}, c: {d: "${D}"}}`, map[string]int{"c": 4}, []block{{"A", 3, []any{"a"}, false}}},
		{"lines with a default", "a:\n  b: 1\n  ${A:=c: 2}\n", `{a: {b: 1, c: 2}}`, nil, nil},
		{"lines with another indentation", "a:\n  b:\n  - c: 1\n${A}\nd: 1\n", `{a: {b: [{c: 1}]}, d: 1}`, map[string]int{"d": 5}, []block{{"A", 4, []any{"a", "b", 0}, false}}},
		{"whole objects", "a: 1\n---\n${A}\n", `{a: 1}`, nil, []block{{"A", 3, nil, true}}},
		{"the end of an object", "a: {}\n${A}\n---\nb: 1\n", `{a: {}}`, nil, []block{{"A", 2, []any{"a"}, true}}},
		{"a value below its field", "a:\n  ${A}\n", `{a: "${A}"}`, nil, nil},
		{"words that are in the file", "zzvariable0z: ${A}\n", `{zzvariable0z: "${A}"}`, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			published, err := templates.Publish(release.File{Name: "cluster-template.yaml", Data: []byte(tc.text)})
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(published.Documents[0].Object.Object)
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := yaml.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(wanted), string(got)); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			for field, line := range tc.lines {
				if got := published.Documents[0].Place(field).Line; got != line {
					t.Errorf("line of %s = %d, want %d", field, got, line)
				}
			}
			var blocks []block
			for _, b := range published.Blocks {
				blocks = append(blocks, block{b.Variable, b.Line, b.Path, b.Objects})
			}
			if diff := cmp.Diff(tc.blocks, blocks); diff != "" {
				t.Errorf("blocks: want -, got +:\n%s", diff)
			}
		})
	}
}

// TestPublishLimits reads files with variables that replace lines of YAML: a few of them are found; for a file that
// has too many, or that is too large, Publish returns an error.
func TestPublishLimits(t *testing.T) {
	blocks := func(count int) string {
		var text strings.Builder
		text.WriteString("a: b\n")
		for i := range count {
			fmt.Fprintf(&text, "${BLOCK%d}\n", i)
		}
		return text.String()
	}
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"a few":    {blocks(5), 5},
		"too many": {blocks(100), -1},
		"too large": {
			blocks(5) + "text: " + strings.Repeat("x", 1<<18) + "\n", -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			published, err := templates.Publish(release.File{Name: "cluster-template.yaml", Data: []byte(tc.text)})
			switch {
			case tc.want < 0 && err == nil:
				t.Errorf("Publish found %d blocks, want an error", len(published.Blocks))
			case tc.want >= 0 && (err != nil || len(published.Blocks) != tc.want):
				t.Errorf("Publish = %+v, %v, want %d blocks", published, err, tc.want)
			}
		})
	}
}
