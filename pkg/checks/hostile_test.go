package checks_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// oddValues stand where checks look for something else.
var oddValues = []any{nil, "", "$", "${A}", "$(A)", "a/b/c", int64(-1), true, []any{}, []any{nil, "a", []any{}}, map[string]any{}, map[string]any{"a": nil}}

// TestHostileComponents makes sure that no check stumbles over fields of other types than theirs:
// what is checked comes from strangers.
func TestHostileComponents(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	file, _ := own.Components()
	objects, err := utilyaml.ToUnstructured(file.Data)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		var documents []string
		for _, o := range objects {
			edited := unstructured.Unstructured{Object: o.DeepCopy().Object}
			if edited.GetKind() == "CustomResourceDefinition" && random.IntN(4) > 0 {
				continue // they are large, and a few are as good as all
			}
			for range 1 + random.IntN(2) {
				spoil(random, edited.Object)
			}
			data, err := yaml.Marshal(edited.Object)
			if err != nil {
				t.Fatal(err)
			}
			documents = append(documents, string(data))
		}
		text := strings.Join(documents, "---\n")
		spoiled := &release.Release{Provider: own.Provider, Version: own.Version, Files: []release.File{{Name: file.Name, Data: []byte(text)}}}
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("round %d: %v", round, r)
				}
			}()
			if _, err := checks.Run(t.Context(), &checks.Subject{Release: spoiled}); err != nil {
				t.Error(err)
			}
		}()
	}
}

// spoil puts an odd value in the place of a random field.
func spoil(random *rand.Rand, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if random.IntN(3) > 0 {
				continue
			}
			if random.IntN(3) == 0 {
				value[key] = oddValues[random.IntN(len(oddValues))]
			} else {
				spoil(random, field)
			}
			return
		}
	case []any:
		if len(value) > 0 {
			i := random.IntN(len(value))
			if random.IntN(4) == 0 {
				value[i] = oddValues[random.IntN(len(oddValues))]
			} else {
				spoil(random, value[i])
			}
		}
	}
}
