package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inTwoReleases builds two releases of the demo provider, edits a file of the second one, and returns the
// folders of both.
func inTwoReleases(t *testing.T, file, old, with string) (before, after string) {
	t.Helper()
	inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	succeed(t, "build", "--version", "v0.1.1")
	before, after = filepath.Join("out", "release", "infrastructure-demo", "v0.1.0"), filepath.Join("out", "release", "infrastructure-demo", "v0.1.1")
	path := filepath.Join(after, file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return before, after
}

func TestDiff(t *testing.T) {
	before, after := inTwoReleases(t, "infrastructure-components.yaml", "maxLength: 64", "maxLength: 63")
	for _, tc := range []struct {
		line string
		want []string
	}{
		{"diff " + before + " " + before, []string{"infrastructure-demo, v0.1.0 to v0.1.0", "no differences"}},
		{"diff " + before + " " + after, []string{"infrastructure-demo, v0.1.0 to v0.1.1", "spec.size", "maxLength 63", "Images", ":v0.1.1"}},
		{"diff " + after + " " + before, []string{"v0.1.1 to v0.1.0"}},
		{"diff " + before + " " + after + " --format markdown", []string{"## infrastructure-demo: changes from v0.1.0 to v0.1.1", "### Upgrade notes", "**Breaking:**", "`spec.size`: `maxLength 63`, was `maxLength 64`"}},
	} {
		t.Run(tc.line, func(t *testing.T) {
			out := succeed(t, strings.Fields(tc.line)...)
			for _, text := range tc.want {
				if !strings.Contains(out, text) {
					t.Errorf("the output does not have %q:\n%s", text, out)
				}
			}
		})
	}
	var decoded struct {
		Differences []struct {
			Empty bool
			Kinds []struct {
				Fields []struct{ Change, Narrows string }
			}
		}
	}
	if err := json.Unmarshal([]byte(succeed(t, "diff", before, after, "--format", "json")), &decoded); err != nil {
		t.Fatal(err)
	}
	if d := decoded.Differences; len(d) != 1 || d[0].Empty || len(d[0].Kinds) != 1 || d[0].Kinds[0].Fields[0].Change != "limit" || d[0].Kinds[0].Fields[0].Narrows != "yes" {
		t.Errorf("the JSON report is %+v", decoded)
	}
}

func TestDiffRefuses(t *testing.T) {
	before, after := inTwoReleases(t, "metadata.yaml", "releaseSeries:", "series:")
	for line, want := range map[string]string{
		"diff":           "accepts 2 arg(s)",
		"diff " + before: "accepts 2 arg(s)",
		"diff " + before + " " + before + " --format x": "use text, markdown, json",
		"diff out/release " + before:                    "name one version's folder",
	} {
		t.Run(line, func(t *testing.T) { requireFailure(t, execute(t, strings.Fields(line)...), exitUsage, want) })
	}
	requireFailure(t, execute(t, "diff", before, "nowhere"), exitFailed, "nowhere")
	requireFailure(t, execute(t, "diff", before, after), exitFailed, "metadata.yaml")
	if out := succeed(t, "diff", after, before); !strings.Contains(out, "Not compared") || !strings.Contains(out, "Images") {
		t.Errorf("with unreadable metadata of the older release, the output is\n%s", out)
	}
}

// TestCheckPrevious checks that problems of an upgrade are found only with the previous release.
func TestCheckPrevious(t *testing.T) {
	before, after := inTwoReleases(t, "infrastructure-components.yaml", "maxLength: 64", "maxLength: 63")
	got := execute(t, "check", after, "--previous", before, "--fail-on", "warning")
	if got.status != exitFindings || !strings.Contains(got.stdout, "crd-validation-narrowed") {
		t.Errorf("status %d:\n%s", got.status, got.stdout)
	}
	if out := succeed(t, "check", after); strings.Contains(out, "crd-validation-narrowed") {
		t.Errorf("an upgrade is checked without the previous release:\n%s", out)
	}
	config, err := os.ReadFile("clusterctl-release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	suppress := append(config, "  suppress:\n  - {check: crd-validation-narrowed, reason: nobody has set it}\n"...)
	if err := os.WriteFile("clusterctl-release.yaml", suppress, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, "check", after, "--previous", before, "--fail-on", "warning"); !strings.Contains(out, "nobody has set it") {
		t.Errorf("the finding is not suppressed:\n%s", out)
	}
	if out := succeed(t, "check", after); strings.Contains(out, "suppression-unused") {
		t.Errorf("the suppression of a check that did not run is reported as unused:\n%s", out)
	}
}
