package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

func TestWalk(t *testing.T) {
	value := map[string]any{"b": []any{"x", map[string]any{"c": "y"}}, "a": "z", "skipped": map[string]any{"d": "w"}}
	var visited []string
	var paths [][]any
	manifest.Walk(value, []any{"spec"}, func(path []any, value any) bool {
		if text, ok := value.(string); ok {
			visited = append(visited, manifest.FieldPath(path...)+"="+text)
			paths = append(paths, slices.Clone(path))
		}
		return manifest.FieldName(path) != "skipped"
	})
	if got, want := strings.Join(visited, " "), "spec.a=z spec.b[0]=x spec.b[1].c=y"; got != want {
		t.Errorf("visited %s, want %s", got, want)
	}
	for i, path := range paths {
		if got := manifest.At(map[string]any{"spec": value}, path...); got != strings.Split(visited[i], "=")[1] {
			t.Errorf("At(%v) = %v, want the value of %s", path, got, visited[i])
		}
	}
	if got := manifest.FieldName(paths[1]); got != "b" {
		t.Errorf("FieldName of an item of b = %q, want b", got)
	}
}

func TestEdit(t *testing.T) {
	value := map[string]any{"a": "x", "b": []any{"x", int64(1)}}
	manifest.Edit(value, func(value any) any {
		if value == "x" {
			return []any{"y"}
		}
		if value == "y" {
			return "z"
		}
		return value
	})
	if got, want := fmt.Sprint(value), "map[a:[z] b:[[z] 1]]"; got != want {
		t.Errorf("edited value = %s, want %s", got, want)
	}
}

func TestReferenceOf(t *testing.T) {
	for _, tc := range []struct {
		fields map[string]any
		want   string
	}{
		{map[string]any{"apiVersion": "a.io/v1", "kind": "A", "name": "n"}, "A.a.io"},
		{map[string]any{"apiGroup": "b.io", "apiVersion": "a.io/v1", "kind": "A"}, "A.b.io"},
		{map[string]any{"apiGroup": "", "kind": "Secret"}, "Secret"},
		{map[string]any{"apiVersion": "v1", "kind": "Secret"}, "Secret"},
		{map[string]any{"kind": int64(1)}, ""},
		{nil, ""},
	} {
		if got := manifest.ReferenceOf(tc.fields).GroupKind().String(); got != tc.want {
			t.Errorf("ReferenceOf(%v) has kind %q, want %q", tc.fields, got, tc.want)
		}
	}
}

func TestPodOf(t *testing.T) {
	documents, err := manifest.Parse("f.yaml", []byte(`
kind: CronJob
spec: {jobTemplate: {spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [1, {name: c}], initContainers: [{name: d}]}}}}}
---
kind: Pod
metadata: {labels: {a: b}}
spec: {containers: [{name: c}]}
---
kind: PodTemplate
template: {spec: {containers: [{name: c}]}}
---
kind: Deployment
spec: {}
---
kind: Service
spec: {containers: [{name: c}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	wants := []string{
		"spec.jobTemplate.spec.template.spec.containers[1] spec.jobTemplate.spec.template.spec.initContainers[0] b",
		"spec.containers[0] b", "template.spec.containers[0] <nil>", "none", "none",
	}
	for i, d := range documents {
		got := "none"
		if pod, ok := manifest.PodOf(d.Object); ok {
			got = ""
			for _, c := range pod.Containers() {
				got += manifest.FieldPath(c.Path...) + " "
				if fields, _ := manifest.At(d.Object.Object, c.Path...).(map[string]any); fields["name"] != c.Name() {
					t.Errorf("container %s isn't at its path %v", c.Name(), c.Path)
				}
			}
			got += fmt.Sprint(pod.Labels["a"])
		}
		if got != wants[i] {
			t.Errorf("pod of the %s = %s, want %s", d.Object.GetKind(), got, wants[i])
		}
	}
	if _, ok := manifest.PodOf(unstructured.Unstructured{Object: map[string]any{}}); ok {
		t.Error("PodOf found a pod in an object without a kind")
	}
}
