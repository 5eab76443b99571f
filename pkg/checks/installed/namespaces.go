package installed

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// KindScopes returns which kinds of the components are namespaced.
var KindScopes = checks.OnceValue(func(s *checks.Subject) components.Scopes {
	var crds []unstructured.Unstructured
	for _, d := range s.Objects("CustomResourceDefinition") {
		crds = append(crds, d.Object)
	}
	return components.ScopesOf(crds)
})

// TargetNamespace returns the namespace in which clusterctl installs the components: the name of their first Namespace,
// or "".
func TargetNamespace(s *checks.Subject) string {
	for _, d := range s.Objects("Namespace") {
		return d.Object.GetName()
	}
	return ""
}

// OwnNamespace returns the target namespace, or, in a file without a Namespace, the namespace that most
// of its objects name.
func OwnNamespace(s *checks.Subject) string {
	if target := TargetNamespace(s); target != "" {
		return target
	}
	return MostCommon(s.Objects(), func(o unstructured.Unstructured) string { return o.GetNamespace() })
}

// MostCommon returns the most frequent value of objects, or "" if no object has one.
func MostCommon(objects []*manifest.Document, value func(o unstructured.Unstructured) string) string {
	count, most := map[string]int{}, ""
	for _, d := range objects {
		v := value(d.Object)
		if v == "" {
			continue
		}
		if count[v]++; most == "" || count[v] > count[most] {
			most = v
		}
	}
	return most
}

// TreatedAsNamespaced reports whether clusterctl sets a namespace on objects of a kind. It runs clusterctl's code,
// because the list of kinds is not exported.
func TreatedAsNamespaced(ctx context.Context, s *checks.Subject, d *manifest.Document) (bool, error) {
	const target = "target"
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": d.Object.GetAPIVersion(), "kind": d.Object.GetKind(), "metadata": map[string]any{"name": d.Object.GetName()},
	})
	if err != nil {
		return false, fmt.Errorf("write a %s for clusterctl: %w", d.Object.GetKind(), err)
	}
	result, refusal, err := AsInstalled(ctx, s.Release, raw, target, nil)
	if err != nil || refusal != nil {
		return false, err
	}
	return slices.ContainsFunc(result.Objs(), func(o unstructured.Unstructured) bool {
		return o.GetKind() == d.Object.GetKind() && o.GetNamespace() == target
	}), nil
}
