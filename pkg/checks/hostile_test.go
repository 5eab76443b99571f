package checks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// oddValues are values of types that checks do not expect.
var oddValues = []any{nil, "", "$", "${A}", "$(A)", "a/b/c", int64(-1), true, []any{}, []any{nil, "a", []any{}}, map[string]any{}, map[string]any{"a": nil}}

// TestHostileComponents checks that no check panics or fails on fields of unexpected types: releases are
// untrusted input.
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
				continue // they are large, and a few are enough
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
			if _, err := catalog.All().Run(t.Context(), &checks.Subject{Release: spoiled}); err != nil {
				t.Error(err)
			}
			upgradeFindings(t, &checks.Subject{Release: spoiled, Previous: own})
			upgradeFindings(t, &checks.Subject{Release: own, Previous: spoiled})
		}()
	}
}

// TestHostileTemplates does the same with templates and classes.
func TestHostileTemplates(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		spoiled := &release.Release{Provider: own.Provider, Version: own.Version}
		for _, f := range own.Files {
			if release.IsClusterTemplate(f.Name) || release.IsClusterClass(f.Name) {
				f.Data = spoilDocuments(t, random, f.Data)
			}
			spoiled.Files = append(spoiled.Files, f)
		}
		subject := &checks.Subject{Release: spoiled}
		for _, check := range catalog.All() {
			if check.Group == checks.Templates || check.Group == checks.ClusterClass {
				func() {
					defer func() {
						if r := recover(); r != nil {
							t.Errorf("round %d: %s: %v", round, check.ID, r)
						}
					}()
					if err := check.Run(t.Context(), subject, func(checks.Finding) {}); err != nil {
						t.Errorf("round %d: %s: %v", round, check.ID, err)
					}
				}()
			}
		}
	}
}

// spoilDocuments spoils the objects of a file, to which it adds a ClusterResourceSet and a Secret.
func spoilDocuments(t *testing.T, random *rand.Rand, data []byte) []byte {
	t.Helper()
	const more = `
---
apiVersion: addons.cluster.x-k8s.io/v1beta2
kind: ClusterResourceSet
metadata: {name: a}
spec:
  clusterSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
  resources: [{kind: Secret, name: b}, {kind: ConfigMap, name: c}]
---
apiVersion: v1
kind: Secret
metadata: {name: b, namespace: c, labels: {a: b}}
type: Opaque
`
	var documents []string
	for document := range strings.SplitSeq(string(data)+more, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		spoil(random, object)
		edited, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(edited))
	}
	return []byte(strings.Join(documents, "---\n"))
}

// spoil replaces a random field with an odd value.
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

// hostileTexts are files that are expensive to process, or that are not valid text or YAML.
var hostileTexts = []struct {
	name, text string
	// fine is true if the text is valid in a template.
	fine bool
}{
	{name: "aliases of aliases", text: header + "a: &a [x,x,x,x,x,x,x,x,x]\n" + aliases(12)},
	{name: "megabytes in a line", text: header + "a: " + strings.Repeat("x", 4<<20) + "\n", fine: true},
	{name: "a million variables in a line", text: header + "a: " + strings.Repeat("${A} ", 1<<20) + "\n"},
	{name: "a million doubled dollars in a line", text: header + "a: " + strings.Repeat("$$", 1<<20) + "\n"},
	{name: "variables within variables", text: header + "a: " + strings.Repeat("${A:=", 20_000) + strings.Repeat("}", 20_000) + "\n", fine: true},
	{name: "a variable that is never closed", text: "a: ${X\n" + strings.Repeat("b: c\n", 100_000)},
	{name: "a default that is never closed", text: "a: ${X:=\n" + strings.Repeat("b: ${C}\n", 100_000)},
	{name: "100,000 variables", text: numbered(100_000, "v%d: ${V%d}\n")},
	{name: "100,000 fields side by side", text: header + numbered(100_000, "v%d: %d\n")},
	{name: "lists in lists", text: header + "a: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "\n"},
	{name: "fields in fields", text: strings.Repeat("{a: ", 50_000) + "1" + strings.Repeat("}", 50_000) + "\n"},
	{name: "no UTF-8", text: header + "a: \xff\xfe\n"},
	{name: "a NUL", text: header + "a: \x00b\n"},
	{name: "30,000 documents", text: strings.Repeat("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n", 30_000)},
	{name: "a key twice", text: header + "a: b\na: c\n"},
	{name: "a tab", text: "a:\n\tb: c\n"},
}

const header = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"

// aliases returns nested lists, each with nine aliases of the list before it.
func aliases(levels int) string {
	var text strings.Builder
	for i := range levels {
		fmt.Fprintf(&text, "%c: &%c [%s*%c]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 8), 'a'+i)
	}
	return text.String()
}

// numbered returns a line for each number below count; the format line takes the number twice.
func numbered(count int, line string) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, line, i, i)
	}
	return text.String()
}

// TestHostileFiles checks that the checks end and report the file, whatever a file contains.
func TestHostileFiles(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	components, _ := own.Components()
	for _, name := range []string{components.Name, release.MetadataFile, "cluster-template.yaml", "clusterclass-hostile.yaml"} {
		for _, hostile := range hostileTexts {
			t.Run(name+"/"+hostile.name, func(t *testing.T) {
				files := slices.DeleteFunc(slices.Clone(own.Files), func(f release.File) bool { return f.Name == name })
				spoiled, err := release.New(own.Provider, own.Version, append(files, release.File{Name: name, Data: []byte(hostile.text)}))
				if err != nil {
					t.Fatal(err)
				}
				result, err := catalog.All().Run(t.Context(), &checks.Subject{Release: spoiled})
				if err != nil {
					t.Fatal(err)
				}
				reported := slices.ContainsFunc(result.Findings, func(f checks.Finding) bool { return f.File == name })
				if fine := hostile.fine && release.IsClusterTemplate(name); !reported && !fine {
					t.Errorf("no finding is about the file; all findings: %v", result.Findings)
				}
				for _, f := range result.Findings {
					if len(f.Message) > 10_000 {
						t.Errorf("%s has a message of %d characters", f.ID, len(f.Message))
					}
				}
			})
		}
	}
}
