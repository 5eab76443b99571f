package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/report"
)

// inBuiltDemo builds the demo provider and replaces old in a file of its release. It returns the file's path.
func inBuiltDemo(t *testing.T, file, old, with string) string {
	t.Helper()
	inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	path := filepath.Join("out", "release", "infrastructure-demo", "v0.1.0", file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if old != "" && !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckStatus(t *testing.T) {
	path := inBuiltDemo(t, "infrastructure-components.yaml", "registry.example.com/demo/controller:v0.1.0", "registry.example.com/demo/controller:latest")
	for _, tc := range []struct {
		line   string
		status int
		want   string
	}{
		{"check out/release", exitFine, "image-tag"},
		{"check out/release --fail-on warning", exitFindings, filepath.ToSlash(path)},
		{"check out/release/infrastructure-demo/v0.1.0 --fail-on note", exitFindings, "in 1 release"},
		{"check out/release --format github --fail-on warning", exitFindings, "::warning title=image-tag,file=" + filepath.ToSlash(path) + ",line="},
		{"check --list", exitFine, "image-canonical"},
		{"check --explain image-canonical", exitFine, "## Fix it"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			got := execute(t, strings.Fields(tc.line)...)
			if got.status != tc.status {
				t.Errorf("status %d, want %d: %s", got.status, tc.status, got.stderr)
			}
			if !strings.Contains(got.stdout, tc.want) {
				t.Errorf("the output does not have %q:\n%s", tc.want, got.stdout)
			}
		})
	}
	for line, want := range map[string]string{
		"check":                              "name a release to check",
		"check out/release --format yaml":    "use text, json, sarif",
		"check out/release --fail-on never":  "use error, warning or note",
		"check --explain image-canonicall":   `there is no check "image-canonicall"`,
		"check --explain image":              "image-canonical",
		"templates variables out/release -x": "unknown shorthand flag",
	} {
		t.Run(line, func(t *testing.T) { requireFailure(t, execute(t, strings.Fields(line)...), exitUsage, want) })
	}
	requireFailure(t, execute(t, "check", "nowhere"), exitFailed, "nowhere")
}

// TestCheckFormats checks that the report has the findings in every format.
func TestCheckFormats(t *testing.T) {
	inBuiltDemo(t, "metadata.yaml", "kind: Metadata\n", "")
	for _, format := range report.Formats.Names() {
		if got := execute(t, "check", "out/release", "--format", format); !strings.Contains(got.stdout, "metadata-kind") {
			t.Errorf("%s does not name the check:\n%s", format, got.stdout)
		}
	}
	var decoded struct {
		Releases []struct {
			Label, Version string
			Findings       []struct{ ID, File string }
		}
		Summary map[string]int
	}
	if err := json.Unmarshal([]byte(execute(t, "check", "out/release", "--format", "json").stdout), &decoded); err != nil {
		t.Fatal(err)
	}
	if decoded.Summary["warning"] == 0 || decoded.Releases[0].Label != "infrastructure-demo" {
		t.Errorf("the JSON report is %+v", decoded)
	}
}

// TestSuppression suppresses a finding in the release file; the report then lists it with its reason.
func TestSuppression(t *testing.T) {
	inBuiltDemo(t, "metadata.yaml", "kind: Metadata\n", "")
	config, err := os.ReadFile("clusterctl-release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	suppress := func(entries string) {
		if err := os.WriteFile("clusterctl-release.yaml", append(config, "  suppress:\n"+entries...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	suppress("  - {check: metadata-kind, file: metadata.yaml, reason: our users have clusterctl v1.12}\n")
	got := execute(t, "check", "out/release", "--fail-on", "warning")
	if got.status != exitFine || !strings.Contains(got.stdout, "our users have clusterctl v1.12") {
		t.Errorf("status %d:\n%s", got.status, got.stdout)
	}
	suppress("  - {check: metadata-kind, file: elsewhere.yaml, reason: none}\n")
	got = execute(t, "check", "out/release", "--fail-on", "warning")
	if got.status != exitFindings || !strings.Contains(got.stdout, "suppression-unused") {
		t.Errorf("a suppression that matches nothing: status %d:\n%s", got.status, got.stdout)
	}
	suppress("  - {check: metadata-kind}\n")
	requireFailure(t, execute(t, "check", "out/release"), exitFailed, "clusterctl-release.yaml:", "lacks reason")
}

// TestCheckFails checks a release with an unreadable file: the findings of the other checks are printed, and the
// error names the check, the release and the cause.
func TestCheckFails(t *testing.T) {
	inBuiltDemo(t, "infrastructure-components.yaml", "registry.example.com/demo/controller:v0.1.0", "registry.example.com/demo/controller:latest")
	if err := os.Symlink("cluster-template-loop.yaml", filepath.Join("templates", "cluster-template-loop.yaml")); err != nil {
		t.Fatal(err)
	}
	got := execute(t, "check", "out/release")
	if got.status != exitFailed || !strings.Contains(got.stdout, "image-tag") {
		t.Errorf("status %d, want %d with the findings of the other checks:\n%s", got.status, exitFailed, got.stdout)
	}
	for _, want := range []string{"check assets-complete of infrastructure-demo v0.1.0 failed", "cluster-template-loop.yaml", "check again"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("the error does not have %q: %s", want, got.stderr)
		}
	}
	got = execute(t, "publish", "out/release", "--to", "repository")
	if _, err := os.Stat("repository"); got.status != exitFailed || err == nil {
		t.Errorf("publish without that check: status %d, repository: %v", got.status, err)
	}
}

// TestChecksGuardBuildAndPublish checks that build and publish refuse a release with an error, and that
// --skip-checks publishes it with a warning.
func TestChecksGuardBuildAndPublish(t *testing.T) {
	inBuiltDemo(t, "infrastructure-components.yaml", "image: registry.example.com/demo/controller:v0.1.0", "image: controller:v0.1.0")
	got := execute(t, "publish", "out/release", "--to", "repository")
	if got.status != exitFindings || !strings.Contains(got.stderr, "image-canonical") || !strings.Contains(got.stderr, "nothing was done") {
		t.Errorf("publish: status %d: %s", got.status, got.stderr)
	}
	got = execute(t, "publish", "out/release", "--to", "repository", "--plan")
	if got.status != exitFindings || !strings.Contains(got.stderr, "image-canonical") || !strings.Contains(got.stdout, "create") {
		t.Errorf("publish --plan: status %d: %s%s", got.status, got.stdout, got.stderr)
	}
	if _, err := os.Stat("repository"); err == nil {
		t.Error("publish refused the release, but created the repository")
	}
	got = execute(t, "publish", "out/release", "--to", "repository", "--skip-checks")
	if got.status != exitFine || !strings.Contains(got.stderr, "THE CHECKS ARE SKIPPED") {
		t.Errorf("publish --skip-checks: status %d: %s", got.status, got.stderr)
	}

	if err := os.WriteFile(filepath.Join("templates", "cluster-template-broken.yaml"), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: \"${NAMESPACE}\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got = execute(t, "build", "--version", "v0.1.1")
	if got.status != exitFindings || !strings.Contains(got.stderr, "template-namespace-object") {
		t.Errorf("build: status %d: %s", got.status, got.stderr)
	}
	if _, err := os.Stat(filepath.Join("out", "release", "infrastructure-demo", "v0.1.1")); err == nil {
		t.Error("build refused the release, but wrote it")
	}
	succeed(t, "build", "--version", "v0.1.1", "--skip-checks")
}

func TestTemplatesCommand(t *testing.T) {
	inBuiltDemo(t, "metadata.yaml", "", "")
	const version = "out/release/infrastructure-demo/v0.1.0"
	if got := succeed(t, "templates", "variables", version, "--flavor", "default"); !strings.Contains(got, "CLUSTER_NAME") || strings.Contains(got, "cluster-template-dev.yaml") {
		t.Errorf("the variables of the default flavor are\n%s", got)
	}
	var byFile map[string][]struct{ Name string }
	if err := json.Unmarshal([]byte(succeed(t, "templates", "variables", version, "--format", "json")), &byFile); err != nil || len(byFile) != 3 {
		t.Errorf("%d templates as JSON, want 3: %v", len(byFile), err)
	}
	if err := os.WriteFile("values.yaml", []byte("CLUSTER_NAME: from-file\nKUBERNETES_VERSION: v1.36.3\nCONTROL_PLANE_MACHINE_COUNT: 3\nWORKER_MACHINE_COUNT: 1000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CLUSTER_NAME", "from-environment")
	t.Setenv("NAMESPACE", "from-environment")
	rendered := succeed(t, "templates", "render", version, "--env", "--values", "values.yaml", "--set", "KUBERNETES_VERSION=v1.35.0")
	for _, want := range []string{"name: from-file", "namespace: from-environment", "v1.35.0"} {
		if !strings.Contains(rendered, want) {
			t.Errorf("rendered without %q:\n%s", want, rendered)
		}
	}
	requireFailure(t, execute(t, "templates", "render", version, "--flavor", "none"), exitUsage, "it has cluster-template.yaml")
	requireFailure(t, execute(t, "templates", "render", version, "--set", "NAME"), exitUsage, "write NAME=VALUE")
	requireFailure(t, execute(t, "templates", "render", version, "--values", "missing.yaml"), exitFailed, "missing.yaml")
}

func TestListNamesEveryCheck(t *testing.T) {
	list := succeed(t, "check", "--list")
	for _, c := range catalog.All() {
		if !strings.Contains(list, "  "+c.ID+": ") {
			t.Errorf("the list lacks %s", c.ID)
		}
	}
}

func TestContractCommand(t *testing.T) {
	inBuiltDemo(t, "metadata.yaml", "", "")
	for _, format := range []string{"text", "markdown", "json"} {
		if got := succeed(t, "contract", "out/release", "--format", format); !strings.Contains(got, "InfraMachine") {
			t.Errorf("%s has no table of InfraMachine:\n%s", format, got)
		}
	}
	requireFailure(t, execute(t, "contract", "out/release", "--format", "html"), exitUsage, "--format")
	requireFailure(t, execute(t, "contract", "nowhere"), exitFailed, "nowhere")
}
