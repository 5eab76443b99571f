package move_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

const list = `apiVersion: v1
items:
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: Cluster
  metadata:
    annotations:
      note: |
        kind: Nothing
        metadata:
    name: a
    namespace: team
    uid: "1"
  spec:
    infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DemoCluster, name: a}
  status:
    conditions: []
- apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
  kind: DemoCluster
  metadata:
    labels: {}
    name: a
    namespace: team
    ownerReferences:
    - apiVersion: cluster.x-k8s.io/v1beta2
      controller: true
      kind: Cluster
      name: a
      uid: "1"
    uid: "2"
  spec:
    text: "items:
      - folded"
- apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
  kind: DemoPort
  metadata:
    name: lost
    namespace: team
    uid: "3"
kind: List
metadata:
  resourceVersion: ""
`

// crdText is a CRD with a list of versions before a field in braces.
const crdText = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  labels:
    clusterctl.cluster.x-k8s.io: ""
%[3]s
  name: x
spec:
  versions:
  - additionalPrinterColumns:
    - name: Age
    name: v1beta1
    storage: true
  - additionalPrinterColumns:
    - name: Age
    name: v1alpha1
    storage: false
  scope: Namespaced
  group: %[2]s
  names: {kind: %[1]s}
`

// summary returns a line for each object of a plan.
func summary(p *move.Plan) []string {
	lines := []string{}
	for i, group := range p.Groups {
		for _, m := range group {
			lines = append(lines, fmt.Sprintf("%d %s", i+1, m.Object))
		}
	}
	for _, l := range p.LeftBehind {
		lines = append(lines, fmt.Sprintf("left %s: %s", l.Object, l.Why))
	}
	return lines
}

func TestDump(t *testing.T) {
	object := func(kind, name, uid, more string) string {
		return fmt.Sprintf("apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: %s\nmetadata:\n  name: %s\n  namespace: team\n  uid: %q\n%s", kind, name, uid, more)
	}
	owned := "  ownerReferences:\n  - apiVersion: cluster.x-k8s.io/v1beta2\n    kind: Cluster\n    name: a\n    uid: \"1\"\n"
	cluster := strings.Replace(object("Cluster", "a", "1", "spec:\n  paused: false\n"), "infrastructure.cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2", 1)
	const jsonCluster = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"name":"a","namespace":"team","uid":"1"},"spec":{"paused":false}}`
	const jsonPort = `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"DemoPort","metadata":{"name":"p","namespace":"team","uid":"2","ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"a","uid":"1"}]}}`
	both := []string{"1 Cluster team/a", "2 DemoPort team/p"}
	for _, tc := range []struct {
		name     string
		files    map[string]string
		want     []string
		problems []string // parts of them, in order
	}{
		{
			name: "a list of kubectl", files: map[string]string{"all.yaml": list},
			want: []string{"1 Cluster team/a", "2 DemoCluster team/a", "left DemoPort team/lost: it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"},
		},
		{name: "documents", files: map[string]string{"all.yaml": "# a dump\n---\n" + cluster + "---\n" + object("DemoPort", "p", "2", owned)}, want: both},
		{name: "a document in the line of its marker", files: map[string]string{"all.yaml": cluster + "--- " + jsonPort + "\n"}, want: both},
		{
			name: "an invalid list", files: map[string]string{"all.yaml": strings.Replace(list, "- apiVersion: infrastructure", "  apiVersion: infrastructure", 1)},
			want: []string{"left DemoPort team/lost: it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"}, problems: []string{"all.yaml:17: this isn't YAML: mapping key \"apiVersion\" already defined"},
		},
		{name: "files in folders", files: map[string]string{"a/c.yml": cluster, "b/p.yaml": object("DemoPort", "p", "2", owned), "README.md": "no"}, want: both},
		{name: "JSON", files: map[string]string{"c.json": jsonCluster, "Kind_team_p.yaml": jsonPort}, want: both},
		{name: "JSON documents", files: map[string]string{"c.json": jsonCluster + "\n" + jsonPort}, want: both},
		{name: "a JSON list", files: map[string]string{"c.json": `{"apiVersion":"v1","kind":"List","items":[` + jsonCluster + "," + jsonPort + "]}"}, want: both},
		{
			name: "flow style", files: map[string]string{"c.yaml": cluster + "---\n" + jsonPort + "\n---\n" + object("DemoPort", "q", "3", strings.Replace(owned, "ownerReferences:", "labels: {a: b}\n  ownerReferences:", 1))},
			want: append(both, "2 DemoPort team/q"),
		},
		{
			name: "CRLF", files: map[string]string{"c.yaml": strings.ReplaceAll(cluster+"---\n"+object("DemoPort", "p", "2", owned), "\n", "\r\n")}, want: both,
		},
		{
			name: "truncated list", files: map[string]string{"all.yaml": list[:strings.Index(list, "kind: List")]},
			want: []string{"1 Cluster team/a", "2 DemoCluster team/a", "left DemoPort team/lost: it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"}, problems: []string{"all.yaml:38: the list ends without its kind: the file is truncated"},
		},
		{
			name: "truncated in a text", files: map[string]string{"all.yaml": list[:strings.Index(list, "- folded")]},
			want: []string{"1 Cluster team/a"}, problems: []string{"all.yaml:32: the list ends without its kind", "this isn't YAML: found unexpected end of stream; the object is left out"},
		},
		{
			name: "truncated JSON", files: map[string]string{"all.json": `{"apiVersion":"v1","kind":"List","items":[` + jsonCluster + "," + jsonPort[:50]},
			want: []string{"1 Cluster team/a"}, problems: []string{"all.json:1: the file is truncated"},
		},
		{
			name: "broken JSON", files: map[string]string{"all.json": jsonCluster + "\n}" + jsonPort},
			want: []string{"1 Cluster team/a"}, problems: []string{"all.json:2: this isn't JSON: invalid character '}'"},
		},
		{
			name: "broken YAML in the middle", files: map[string]string{"all.yaml": cluster + "---\nkind: [\n---\n" + object("DemoPort", "p", "2", owned)},
			want: both, problems: []string{"all.yaml:10: this isn't YAML"},
		},
		{
			name: "no UIDs", files: map[string]string{"all.yaml": strings.ReplaceAll(cluster+"---\n"+object("DemoPort", "p", "2", owned), "uid: ", "uids: ")},
			want: both, problems: []string{"all.yaml:1: 2 of 2 objects have no metadata.uid"},
		},
		{
			name: "a UID twice", files: map[string]string{"a.yaml": cluster, "b.yaml": object("DemoPort", "p", "1", "")},
			want:     []string{"1 Cluster team/a", "left DemoPort team/p: it has no link to a Cluster, a ClusterResourceSet or another move hierarchy: no owner, and no label to move it"},
			problems: []string{"DemoPort team/p has the UID 1, which Cluster team/a has as well"},
		},
		{
			name: "two dumps in one", files: map[string]string{"a.yaml": cluster, "b.yaml": strings.Replace(cluster, `"1"`, `"9"`, 1)},
			want: []string{"1 Cluster team/a"}, problems: []string{"Cluster team/a exists twice with different UIDs"},
		},
		{
			name: "CRDs", files: map[string]string{"all.yaml": cluster + "---\n" + object("DemoDisk", "d", "5", "") + "---\n" + object("DemoHidden", "h", "6", owned),
				"crds.yaml": fmt.Sprintf(crdText, "Cluster", "cluster.x-k8s.io", "    a: b") + fmt.Sprintf(crdText, "DemoDisk", "infrastructure.cluster.x-k8s.io", "    clusterctl.cluster.x-k8s.io/move: \"\"")},
			want: []string{"1 Cluster team/a", "1 DemoDisk team/d", "left DemoHidden team/h: its owner Cluster team/a is moved, but clusterctl does not read this object: its CRD has no label clusterctl.cluster.x-k8s.io"},
		},
		{name: "the same twice", files: map[string]string{"a.yaml": cluster, "b.yaml": cluster}, want: []string{"1 Cluster team/a"}},
		{name: "no objects", files: map[string]string{"a.yaml": cluster, "b.yaml": "a: b\n", "c.yaml": "# nothing\n", "d.yaml": "- a\n"}, want: []string{"1 Cluster team/a"}, problems: []string{
			"b.yaml:1: this isn't an object of Kubernetes", "c.yaml: the file has no objects", "d.yaml:1: this isn't YAML: the document isn't an object",
		}},
		{
			name: "an invalid Cluster", files: map[string]string{"a.yaml": strings.Replace(cluster, "paused: false", "paused: [1]", 1)},
			want: []string{"1 Cluster team/a"}, problems: []string{"Cluster team/a: it can't be read: reading Cluster a"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := writeFiles(t, tc.files)
			world, err := move.Dump(t.Context(), false, folder)
			if err != nil {
				t.Fatal(err)
			}
			plan := move.Discover(t.Context(), world, "team").Plan()
			if diff := cmp.Diff(tc.want, summary(plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if len(plan.Problems) != len(tc.problems) || plan.Incomplete != (len(tc.problems) > 0) {
				t.Fatalf("got the problems %v, want %v", plan.Problems, tc.problems)
			}
			for i, want := range tc.problems {
				if got := strings.ReplaceAll(plan.Problems[i].String(), folder+"/", ""); !strings.Contains(got, want) {
					t.Errorf("got the problem %q, want %q", got, want)
				}
			}
			// A dump with all fields has the same plan.
			complete, err := move.Dump(t.Context(), true, folder)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summary(move.Discover(t.Context(), complete, "team").Plan())); diff != "" {
				t.Errorf("plan of complete objects (-want +got):\n%s", diff)
			}
		})
	}
}

// writeFiles writes files into a new folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestNoDump(t *testing.T) {
	empty := t.TempDir()
	for _, path := range []string{empty, filepath.Join(empty, "missing")} {
		if _, err := move.Dump(t.Context(), false, path); !errors.Is(err, move.ErrNoDump) {
			t.Errorf("%s: got the error %v, want ErrNoDump", path, err)
		}
	}
}

// FuzzDump checks that every file results in objects or problems, and that skimming a file finds the same
// objects as reading it completely.
func FuzzDump(f *testing.F) {
	f.Add([]byte(list))
	f.Add([]byte("items:\n-\n- a: b\n  kind: List\n"))
	f.Add([]byte(`{"items":[{"kind":"a"}`))
	f.Add([]byte("a: |\n b\nkind: X\nmetadata:\n- name: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		world, err := move.Dump(t.Context(), false, file)
		if err != nil {
			return
		}
		move.Discover(t.Context(), world, "").Plan()
	})
}
