package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/move/draw"
)

func TestGraph(t *testing.T) {
	var machines strings.Builder
	for i := range 70 {
		name := "m" + strings.Repeat("x", i)
		machines.WriteString("---\napiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: DemoMachine\nmetadata:\n  name: " + name + "\n  namespace: team\n  uid: " + name +
			"\n  ownerReferences:\n  - {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, name: a, uid: \"1\"}\n")
	}
	other := strings.NewReplacer("namespace: team", "namespace: other", `uid: "1"`, `uid: "8"`, `uid: "2"`, `uid: "9"`).Replace(clusterDump)
	for _, tc := range []struct {
		name, dump     string
		args           []string
		status         int
		stdout, stderr []string
	}{
		{name: "a tree", dump: clusterDump, stdout: []string{"Owners in the namespace team of the dump", "Cluster team/a  → moved\n└─ DemoCluster team/a  → moved\n"}},
		{name: "an object left behind isn't a failure", dump: clusterDump + orphanDump, stdout: []string{"DemoDisk team/lost  × LEFT BEHIND: it has no link to a Cluster"}},
		{name: "SVG", dump: clusterDump + orphanDump, args: []string{"--format", "svg"}, stdout: []string{"<svg xmlns=", "× LEFT BEHIND: 1"}},
		{name: "each object as text", dump: clusterDump + machines.String(), stdout: []string{"DemoMachine team/mxxxx  → moved"}},
		{name: "collapsed as a picture", dump: clusterDump + machines.String(), args: []string{"--format", "svg"}, stdout: []string{"DemoMachine ×70"}},
		{name: "collapsed as text", dump: clusterDump + machines.String(), args: []string{"--collapse", "kinds"}, stdout: []string{"DemoMachine ×70 (m and 69 more)"}},
		{name: "one of the namespaces", dump: clusterDump + "---\n" + other, args: []string{"--namespace", "other"}, stdout: []string{"Cluster other/a"}},
		{name: "namespaces mixed", dump: clusterDump + "---\n" + other, status: exitFailed, stderr: []string{"set --namespace to one of"}},
		{name: "a Cluster that is paused", dump: strings.Replace(clusterDump, "spec:", "spec:\n  paused: true", 1), stdout: []string{"The move does not start now: Cluster team/a: it is paused"}},
		{name: "incomplete", dump: clusterDump + "---\na: [\n", status: exitFailed, stdout: []string{"INCOMPLETE: ", "this isn't YAML", "Cluster team/a"}, stderr: []string{"the graph is incomplete"}},
		{name: "an unknown format", dump: clusterDump, args: []string{"--format", "png"}, status: exitUsage, stderr: []string{`--format: "png" isn't a format: use text, json, dot, mermaid, svg, html`}},
		{name: "an unknown way to collapse", dump: clusterDump, args: []string{"--collapse", "all"}, status: exitUsage, stderr: []string{`--collapse: "all" isn't a way to collapse: use auto`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "dump.yaml")
			if err := os.WriteFile(file, []byte(tc.dump), 0o600); err != nil {
				t.Fatal(err)
			}
			got := execute(t, append([]string{"graph", file}, tc.args...)...)
			if got.status != tc.status {
				t.Errorf("status %d, want %d; %s", got.status, tc.status, got.stderr)
			}
			for _, want := range tc.stdout {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("the output is\n%s\nwant %q in it", got.stdout, want)
				}
			}
			for _, want := range tc.stderr {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("the error is %s, want %q in it", got.stderr, want)
				}
			}
			if tc.status != exitUsage && len(tc.stderr) > 0 && len(tc.stdout) > 0 {
				// Each format shows the readable objects and reports that the graph is incomplete.
				for _, format := range draw.Formats.Names() {
					shown := execute(t, "graph", file, "--format", format)
					if shown.status != tc.status || !strings.Contains(strings.ToLower(shown.stdout), "incomplete") {
						t.Errorf("%s does not report that the graph is incomplete: status %d\n%s", format, shown.status, shown.stdout)
					}
				}
			}
		})
	}
}
