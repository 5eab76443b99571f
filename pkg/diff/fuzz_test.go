package diff

import (
	"bytes"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// foreign are documents that are valid YAML and unusual for Kubernetes.
const foreign = `kind: Deployment
spec:
  replicas: 9223372036854775808
  template: {spec: {containers: [{name: a, image: 1, args: [-1, 18446744073709551615]}, {image: x}, 3]}}
---
kind: CustomResourceDefinition
spec:
  names: {kind: 3, shortNames: x}
  versions: [{name: v1, schema: {openAPIV3Schema: {maximum: 9223372036854775808, minLength: 18446744073709551615}}}, 1]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
rules: [{apiGroups: [3], resources: x, verbs: [get]}, 18446744073709551615]
---
kind: ClusterClass
spec: {variables: [{name: a, schema: {openAPIV3Schema: {minimum: 9223372036854775808}}}, {schema: 1}]}
---
{1: .nan, true: -.inf, 2006-01-02: !!binary "AAECAw==", null: 0x8000000000000000, f: 1e400, g: 18446744073709551616}
`

// FuzzReleases compares two releases with arbitrary files: nothing panics, an error names the file, and the output
// of each format is the same in each run.
func FuzzReleases(f *testing.F) {
	for document := range strings.SplitSeq(foreign, "---\n") {
		data, edited := []byte(document), []byte(strings.ReplaceAll(document, "9223372036854775808", "9223372036854775807"))
		f.Add(data, []byte(""), data, []byte(""))
		f.Add([]byte(""), data, []byte(""), data)
		f.Add(data, edited, data, edited)
		f.Add(data, edited, []byte("a: ${A:=1}"), []byte("a: ${A}\n---\n- b"))
	}
	for _, name := range []string{"infrastructure-components.yaml", "metadata.yaml"} {
		old, now := testFile(f, "old", name), testFile(f, "new", name)
		f.Add(old, now, testFile(f, "old", "cluster-template.yaml"), testFile(f, "new", "cluster-template.yaml"))
		f.Add(now, old, old, now)
	}
	f.Fuzz(func(t *testing.T, components, newComponents, other, newOther []byte) {
		write := func() (string, error) {
			r, err := Sets([]*release.Release{foreignRelease(t, "v0.1.0", components, other)}, []*release.Release{foreignRelease(t, "v0.2.0", newComponents, newOther)})
			if err != nil {
				return "", err
			}
			var out bytes.Buffer
			for _, format := range Formats.Names() {
				if err := r.Write(format, &out); err != nil {
					t.Fatalf("%s: %v", format, err)
				}
			}
			return out.String(), nil
		}
		first, err := write()
		if err != nil {
			if !strings.Contains(err.Error(), ".yaml") {
				t.Fatalf("the error names no file: %v", err)
			}
			return
		}
		if again, _ := write(); again != first {
			t.Fatalf("the output of two runs differs:\n%s\n%s", first, again)
		}
	})
}

func testFile(f *testing.F, folder, name string) []byte {
	f.Helper()
	file, _ := demo(f, folder, "v0.1.0").File(name)
	return file.Data
}

// foreignRelease returns a release with components, and with other as the data of all other files.
func foreignRelease(t *testing.T, version string, components, other []byte) *release.Release {
	t.Helper()
	provider, err := release.ParseLabel("infrastructure-demo")
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.New(provider, version, []release.File{
		{Name: "infrastructure-components.yaml", Data: components}, {Name: "metadata.yaml", Data: []byte("apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 0, minor: 1, contract: v1beta1}\n")},
		{Name: "cluster-template.yaml", Data: other}, {Name: "clusterclass-demo.yaml", Data: other}, {Name: "NOTES.md", Data: other},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
