package contract_test

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

var buildOwn = sync.OnceValues(func() (*release.Release, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, err
	}
	config, err := release.Load(filepath.Join(root, release.ConfigFile))
	if err != nil {
		return nil, err
	}
	source, err := tree.Open(root)
	if err != nil {
		return nil, err
	}
	result, err := build.Build(context.Background(), source, build.Options{Config: config, Version: "v0.1.0"})
	if err != nil {
		return nil, err
	}
	return result.Releases[0], nil
})

// ownRelease returns the release of this project's own provider.
func ownRelease(t *testing.T) *release.Release {
	t.Helper()
	own, err := buildOwn()
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// components returns a release of an infrastructure provider with the given components YAML.
func components(text string) *release.Release {
	return &release.Release{
		Provider: release.Provider{Name: "demo", Type: "InfrastructureProvider"}, Version: "v0.1.0",
		Files: []release.File{{Name: "infrastructure-components.yaml", Data: []byte(text)}},
	}
}

// definition returns the YAML of a CRD whose only version has no fields.
func definition(kind, scope, contractVersion string) string {
	return kindOf{kind: kind, group: "infrastructure.cluster.x-k8s.io", scope: scope, contract: contractVersion}.yaml()
}

// kindOf describes a kind from which yaml generates a CRD.
type kindOf struct {
	kind, group, scope string
	// contract is the contract version that the kind's version v1 is declared for, or "".
	contract string
	// fields are the fields' types by path: status.conditions[].type is a field of the items of a list, and
	// status.failureDomains{}.controlPlane one of the values of a map.
	fields map[string]string
	// scale is the scale subresource, or nil.
	scale map[string]any
}

// with returns the kind with changed types of fields; the type "" removes a field and all fields below it.
func (k kindOf) with(changes map[string]string) kindOf {
	k.fields = maps.Clone(k.fields)
	for path, kind := range changes {
		for field := range k.fields {
			if field == path || strings.HasPrefix(field, path+".") || strings.HasPrefix(field, path+"[]") || strings.HasPrefix(field, path+"{}") {
				delete(k.fields, field)
			}
		}
		if kind != "" {
			k.fields[path] = kind
		}
	}
	return k
}

// yaml returns the CRD.
func (k kindOf) yaml() string {
	root := map[string]any{"type": "object"}
	for _, name := range []string{"apiVersion", "kind"} {
		put(root, []string{name}, "string")
	}
	put(root, []string{"metadata"}, "object")
	for path, kind := range k.fields {
		put(root, strings.Split(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path), "."), kind)
	}
	subresources := map[string]any{"status": map[string]any{}}
	if k.scale != nil {
		subresources["scale"] = k.scale
	}
	labels := map[string]any{}
	if k.contract != "" {
		labels["cluster.x-k8s.io/"+k.contract] = "v1"
	}
	plural := strings.ToLower(k.kind) + "s"
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + k.group, "labels": labels},
		"spec": map[string]any{
			"group": k.group, "scope": k.scope,
			"names": map[string]any{"kind": k.kind, "listKind": k.kind + "List", "plural": plural},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": subresources,
				"schema": map[string]any{"openAPIV3Schema": root},
			}},
		},
	})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// put sets the type of the field at a path below a schema, and creates the objects, lists and maps on the path.
func put(schema map[string]any, path []string, kind string) {
	if len(path) == 0 {
		schema["type"] = kind
		return
	}
	var parent map[string]any
	key := path[0]
	switch path[0] {
	case "[]":
		schema["type"], parent, key = "array", schema, "items"
	case "{}":
		schema["type"], parent, key = "object", schema, "additionalProperties"
	default:
		schema["type"] = "object"
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			properties = map[string]any{}
			schema["properties"] = properties
		}
		parent = properties
	}
	child, ok := parent[key].(map[string]any)
	if !ok {
		child = map[string]any{}
		parent[key] = child
	}
	put(child, path[1:], kind)
}

// implementations returns the implementations of a provider with these kinds.
func implementations(t *testing.T, provider release.Provider, kinds ...kindOf) []*contract.Implementation {
	t.Helper()
	texts := make([]string, 0, len(kinds))
	for _, k := range kinds {
		texts = append(texts, k.yaml())
	}
	documents, err := manifest.Parse("components.yaml", []byte(strings.Join(texts, "---\n")))
	if err != nil {
		t.Fatal(err)
	}
	crds := contract.ReadCRDs(documents)
	if len(crds) != len(kinds) {
		t.Fatalf("ReadCRDs returned %d CRDs, want %d", len(crds), len(kinds))
	}
	return contract.Implementations(provider.Type, crds)
}
