package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/schematest"
)

const clusterDump = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: a, namespace: team, uid: "1"}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DemoCluster, name: a}
status:
  initialization: {infrastructureProvisioned: true}
  conditions:
  - {type: ControlPlaneInitialized, status: "True", reason: Yes, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoCluster
metadata:
  name: a
  namespace: team
  uid: "2"
  ownerReferences:
  - {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, name: a, uid: "1"}
`

const orphanDump = `---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DemoDisk
metadata: {name: lost, namespace: team, uid: "3"}
`

func TestMovePlan(t *testing.T) {
	other := strings.NewReplacer("namespace: team", "namespace: other", `uid: "1"`, `uid: "8"`, `uid: "2"`, `uid: "9"`).Replace(clusterDump)
	for _, tc := range []struct {
		name, dump     string
		args           []string
		status         int
		stdout, stderr []string
	}{
		{name: "all is moved", dump: clusterDump, status: exitFine, stdout: []string{
			"Move of the namespace team of the dump", "1  Cluster team/a      a Cluster is moved with all its dependents",
			"2  DemoCluster team/a  owned by Cluster team/a", "Deleted from the source: 2", "Nothing is left behind",
		}},
		{name: "an orphan", dump: clusterDump + orphanDump, status: exitFindings, stdout: []string{"LEFT BEHIND: 1", "DemoDisk team/lost: it has no link to a Cluster"}},
		{name: "a Cluster that is paused", dump: strings.Replace(clusterDump, "spec:", "spec:\n  paused: true", 1), status: exitFindings, stdout: []string{"The move does not start now:\n  Cluster team/a: it is paused"}},
		{name: "incomplete", dump: clusterDump + "---\na: [\n", status: exitFailed, stdout: []string{"INCOMPLETE", "this isn't YAML", "Cluster team/a"}, stderr: []string{"the plan is incomplete"}},
		{name: "namespaces mixed", dump: clusterDump + "---\n" + other, status: exitFailed, stderr: []string{"set --namespace to one of other (Clusters: 1, objects: 2), team (Clusters: 1, objects: 2)"}},
		{name: "one of the namespaces", dump: clusterDump + "---\n" + other, args: []string{"--namespace", "other"}, status: exitFine, stdout: []string{"Cluster other/a"}},
		{name: "a missing namespace", dump: clusterDump, args: []string{"--namespace", "nowhere"}, status: exitUsage, stderr: []string{"has no objects in the namespace nowhere: it has team"}},
		{name: "nothing of Cluster API", dump: "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b, uid: c}\n", status: exitFailed, stderr: []string{"has no Clusters and no objects of providers"}},
		{name: "an unknown format", dump: clusterDump, args: []string{"--format", "xml"}, status: exitUsage, stderr: []string{`--format: "xml" isn't a format: use text, json`}},
		{name: "live and a source", dump: clusterDump, args: []string{"--live"}, status: exitUsage, stderr: []string{"remove one of them"}},
		{name: "a context without live", dump: clusterDump, args: []string{"--context", "a"}, status: exitUsage, stderr: []string{"are for --live"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "dump.yaml"), []byte(tc.dump), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, source := range []string{folder, filepath.Join(folder, "dump.yaml")} {
				var stdout, stderr strings.Builder
				status := run(t.Context(), append([]string{"move-plan", source}, tc.args...), &stdout, &stderr)
				if status != tc.status {
					t.Errorf("status %d, want %d; %s", status, tc.status, stderr.String())
				}
				for _, want := range tc.stdout {
					if !strings.Contains(stdout.String(), want) {
						t.Errorf("the output is\n%s\nwant %q in it", stdout.String(), want)
					}
				}
				for _, want := range tc.stderr {
					if !strings.Contains(stderr.String(), want) {
						t.Errorf("the error is %s, want %q in it", stderr.String(), want)
					}
				}
			}
		})
	}
}

func TestMovePlanWithoutSource(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, exitUsage, "name a dump or a release, or use --live"},
		{[]string{filepath.Join(t.TempDir(), "missing")}, exitFailed, "is neither a dump nor a release"},
		{[]string{"--live", "--kubeconfig", filepath.Join(t.TempDir(), "missing")}, exitFailed, "the kubeconfig can't be used"},
	} {
		var stdout, stderr strings.Builder
		status := run(t.Context(), append([]string{"move-plan"}, tc.args...), &stdout, &stderr)
		if status != tc.status || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%v: status %d, want %d; the error is %s, want %q in it", tc.args, status, tc.status, stderr.String(), tc.want)
		}
	}
}

func TestMovePlanAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(file, []byte(clusterDump+orphanDump), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	if status := run(t.Context(), []string{"move-plan", file, "--format", "json"}, &stdout, &stderr); status != exitFindings {
		t.Errorf("status %d, want %d; %s", status, exitFindings, stderr.String())
	}
	schematest.Validate(t, "move-plan.schema.json", []byte(stdout.String()))
	var plan struct {
		Namespace string
		Groups    [][]struct {
			Object  struct{ Kind, Name string }
			Deleted bool
		}
		LeftBehind []struct{ Object struct{ Kind, Name string } }
	}
	if err := json.Unmarshal([]byte(stdout.String()), &plan); err != nil {
		t.Fatal(err)
	}
	if plan.Namespace != "team" || len(plan.Groups) != 2 || !plan.Groups[1][0].Deleted || plan.LeftBehind[0].Object.Name != "lost" {
		t.Errorf("the plan is %+v", plan)
	}
}

// TestCheckWorld checks that check --dump reports in every format the objects that a move leaves behind.
func TestCheckWorld(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(file, []byte(clusterDump+orphanDump), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte(clusterDump+"---\na: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{args: []string{"--dump", file}, status: exitFine, stdout: "DemoDisk team/lost"},
		{args: []string{"--dump", file, "--fail-on", "warning"}, status: exitFindings, stdout: "0 errors, 1 warning, 0 notes in the namespace team of the dump"},
		{args: []string{"--dump", file, "--format", "json"}, status: exitFine, stdout: `"id": "orphan"`},
		{args: []string{"--dump", file, "--format", "github"}, status: exitFine, stdout: "::warning title=orphan,file=" + file},
		{args: []string{"--dump", file, "--format", "gitlab"}, status: exitFine, stdout: `"check_name": "orphan"`},
		{args: []string{"--dump", file, "--format", "sarif"}, status: exitFine, stdout: `"ruleId": "orphan"`},
		{args: []string{"--dump", file, "--format", "junit"}, status: exitFine, stdout: `<testcase classname="ownership" name="secret-unlinked">`},
		{args: []string{"--dump", broken}, status: exitFailed, stdout: "0 errors", stderr: "not read: " + broken + ":"},
		{args: []string{"--dump", file, "release"}, status: exitUsage, stderr: "remove one of them"},
		{args: []string{"--dump", file, "--live"}, status: exitUsage, stderr: "use one of them"},
		{args: []string{"--namespace", "a"}, status: exitUsage, stderr: "are for --live or --dump"},
		{args: []string{"--dump", filepath.Join(filepath.Dir(file), "missing")}, status: exitFailed, stderr: "no such file"},
	} {
		var stdout, stderr strings.Builder
		status := run(t.Context(), append([]string{"check"}, tc.args...), &stdout, &stderr)
		if status != tc.status || !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
			t.Errorf("check %v: status %d, want %d; the output is %q, want %q in it; the error is %q, want %q in it", tc.args, status, tc.status, stdout.String(), tc.stdout, stderr.String(), tc.stderr)
		}
	}
}
