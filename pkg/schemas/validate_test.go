package schemas_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// demoKinds is the components YAML of a release with one kind.
const demoKinds = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: demos.example.com, labels: {cluster.x-k8s.io/v1beta2: v1}}
spec:
  group: example.com
  names: {kind: Demo, plural: demos}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations:
            - {rule: "self.size < 10 || has(self.reason)", message: large ones need a reason}
            properties:
              size: {type: integer}
              reason: {type: string}
              mode: {type: string, enum: [a, b], default: a}
              labels: {type: object, additionalProperties: {type: string}}
              count: {type: integer, format: int64, minimum: 2, maximum: 2000, x-kubernetes-validations: [{rule: "self % 2 == 0", message: odd}]}
              step: {type: integer, enum: [1, 5]}
              port: {x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: "type(self) == int ? self < 100 : self.endsWith('%')", message: no port}]}
              share: {type: number, x-kubernetes-validations: [{rule: "self < 0.5", message: too much}]}
              big: {type: integer, x-kubernetes-validations: [{rule: "self > 0", message: negative}]}
              items:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string, default: x}}}
  - name: v0
    served: false
    storage: false
    schema: {openAPIV3Schema: {type: object}}
`

// demo returns the kinds of a release with demoKinds.
func demo(t *testing.T) *schemas.Kinds {
	t.Helper()
	provider, err := release.ParseLabel("infrastructure-demo")
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.New(provider, "v0.1.0", []release.File{{Name: provider.ComponentsFile(), Data: []byte(demoKinds)}})
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := schemas.For(r)
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

func TestValidate(t *testing.T) {
	kinds := demo(t)
	const head = "apiVersion: example.com/v1\nkind: Demo\nmetadata: {name: a}\n"
	for _, tc := range []struct {
		name, object string
		want         []string
	}{
		{"right", head + "spec: {size: 1}", nil},
		{"nulls are dropped", head + "spec: {size: 1, reason: null, mode: null}", nil},
		{"an unknown field", head + "spec: {size: 1, items: [{name: b, more: c}]}", []string{"[spec items 0 more] unknown field"}},
		{"a wrong type", head + "spec: {size: '1'}", []string{`[spec size] Invalid value: "string": spec.size in body must be of type integer: "string"`}},
		{"a wrong type with fields", head + "spec: {size: 1, items: {a: b}}", []string{`[spec items] Invalid value: "object": spec.items in body must be of type array: "object"`}},
		{"a missing field", head + "spec: {}", []string{"[spec size] Required value"}},
		{"an enum", head + "spec: {size: 1, mode: c}", []string{`[spec mode] Unsupported value: "c": supported values: "a", "b"`}},
		{"a name with dots", head + "spec: {size: 1, labels: {example.com/a: 1}}", []string{`[spec labels example.com/a] Invalid value: "integer": spec.labels.example.com/a in body must be of type string: "integer"`}},
		{"a rule", head + "spec: {size: 10}", []string{`[spec] Invalid value: large ones need a reason`}},
		{"numbers", head + "spec: {size: 1, count: 4, step: 5, port: 80, share: 0.25, big: 9007199254740993}", nil},
		{"integers written as floats", head + "spec: {size: 1.0, count: 1e3, step: 5.0, port: 80.0}", nil},
		{"a share that is an integer", head + "spec: {size: 1, share: 0}", nil},
		{"a text where an integer may be", head + "spec: {size: 1, port: 10%}", nil},
		{"rules on integers", head + "spec: {size: 1, count: 3, port: 443}", []string{`[spec count] Invalid value: 3: odd`, `[spec port] Invalid value: 443: no port`}},
		{"limits and enums of integers", head + "spec: {size: 1, count: 2002, step: 2}",
			[]string{`[spec count] Invalid value: 2002: spec.count in body should be less than or equal to 2000`, `[spec step] Unsupported value: 2: supported values: "1", "5"`}},
		{"a fraction", head + "spec: {size: 1.5}", []string{`[spec size] Invalid value: "number": spec.size in body must be of type integer: "number"`}},
		{"an integer that does not fit", head + "spec: {size: 1, big: 18446744073709551616}", []string{`[spec big] Invalid value: "number"`}},
		{"a key twice, by its default", head + "spec: {size: 1, items: [{name: x}, {}]}", []string{`[spec items 1] Duplicate value: {"name":"x"}`}},
		{"metadata", "apiVersion: example.com/v1\nkind: Demo\nmetadata: {name: a, labels: {b: true}}\nspec: {size: 1}", []string{"[metadata]"}},
		{"a kind that is not known", "apiVersion: example.org/v1\nkind: Demo\nspec: 1", nil},
		{"the core's", "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Machine\nmetadata: {name: a}\nspec: {clusterName: b, bootstrap: {dataSecretName: c}, infrastructureRef: {apiGroup: d.io, kind: E, name: f, namespace: g}}",
			[]string{"[spec infrastructureRef namespace] unknown field"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &object.Object); err != nil { // as clusterctl reads it
				t.Fatal(err)
			}
			before := object.DeepCopy()
			problems, err := kinds.Validate(t.Context(), object)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, fmt.Sprint(p.Path, " ", p.Message))
			}
			if !slices.EqualFunc(got, tc.want, func(got, want string) bool { return len(got) >= len(want) && got[:len(want)] == want }) {
				t.Errorf("problems = %q, want %q", got, tc.want)
			}
			if fmt.Sprint(before) != fmt.Sprint(object) {
				t.Error("Validate changed the object")
			}
		})
	}
}

func TestVersionsThatAreNotServed(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v0", "kind": "Demo"}}
	_, err := demo(t).Validate(t.Context(), object)
	var notServed *schemas.VersionError
	if !errors.As(err, &notServed) || err.Error() != "Demo is not served in version v0, but in v1" {
		t.Errorf("error = %v, want a VersionError that names v1", err)
	}
}

// TestCore checks that schemas of the kinds that templates use exist and can be used.
func TestCore(t *testing.T) {
	kinds, count := schemas.Of(), 0
	for _, kind := range kinds.All() {
		for _, version := range kind.Served() {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(kind.WithVersion(version))
			if _, err := kinds.Validate(t.Context(), object); err != nil {
				t.Error(err)
			}
			count++
		}
	}
	if _, ok := kinds.Kind(schema.GroupKind{Group: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane"}); !ok || count < 30 {
		t.Errorf("got %d versions of kinds, want at least 30; KubeadmControlPlane exists: %v, want true", count, ok)
	}
}
