package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// inScaffold copies the demo tree without its release file and with an image that clusterctl accepts, and
// makes the copy the working folder.
func inScaffold(t *testing.T) string {
	t.Helper()
	dir := inDemo(t)
	if err := os.Remove("clusterctl-release.yaml"); err != nil {
		t.Fatal(err)
	}
	manager, err := os.ReadFile("config/manager/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	treetest.Write(t, dir, map[string]string{
		"config/manager/manager.yaml": strings.Replace(string(manager), "controller:latest", "registry.example.com/demo/controller:dev", 1),
	})
	return dir
}

// TestRoundTrip writes a release file for a tree, builds and publishes a release, and fetches it.
func TestRoundTrip(t *testing.T) {
	inScaffold(t)
	printed := succeed(t, "init", "--output", "-")
	wrote := succeed(t, "init")
	for _, want := range []string{"wrote clusterctl-release.yaml\n", "infrastructure-demo from config/default"} {
		if !strings.Contains(wrote, want) {
			t.Errorf("init does not print %q: %s", want, wrote)
		}
	}
	if data, err := os.ReadFile("clusterctl-release.yaml"); err != nil || string(data) != printed {
		t.Errorf("init wrote another text than it prints: %v\n%s", err, data)
	}

	if out := succeed(t, "build", "--version", "v0.1.0"); !strings.Contains(out, "built infrastructure-demo v0.1.0 in out/release/infrastructure-demo/v0.1.0\n") {
		t.Errorf("build prints %q", out)
	}
	built := listing(t, "out/release/infrastructure-demo/v0.1.0")
	if len(built) != 6 {
		t.Errorf("built %d files, want 6: %v", len(built), built)
	}

	plan := succeed(t, "publish", "out/release", "--to", "repository", "--plan")
	if !strings.Contains(plan, "create     infrastructure-demo v0.1.0, 6 files") || !strings.Contains(plan, "add demo (InfrastructureProvider)") {
		t.Errorf("the plan is %q", plan)
	}
	if created := listing(t, "repository"); created != nil {
		t.Errorf("a plan created %v", created)
	}
	published := succeed(t, "publish", "out/release", "--to", "repository")
	for _, want := range []string{"published infrastructure-demo v0.1.0 in ", "clusterctl.yaml", "to use it:\n", "generate provider --infrastructure demo:v0.1.0", "--flavor topology"} {
		if !strings.Contains(published, want) {
			t.Errorf("publish does not print %q: %s", want, published)
		}
	}
	repository := listing(t, "repository")
	if again := succeed(t, "publish", "out/release", "--to", "repository"); !strings.HasPrefix(again, "unchanged infrastructure-demo v0.1.0") {
		t.Errorf("publishing again prints %q", again)
	}
	if plan := succeed(t, "publish", "out/release", "--to", "repository", "--plan"); !strings.Contains(plan, "unchanged  infrastructure-demo v0.1.0") {
		t.Errorf("the plan of publishing again is %q", plan)
	}
	if after := listing(t, "repository"); !reflect.DeepEqual(repository, after) {
		t.Error("publishing again changed the repository")
	}

	for _, from := range []string{
		"repository",
		"repository/infrastructure-demo",
		"repository/infrastructure-demo/v0.1.0",
		"repository/infrastructure-demo/latest/infrastructure-components.yaml",
	} {
		copied := t.TempDir()
		if out := succeed(t, "fetch", from, "--output", copied); !strings.Contains(out, "fetched infrastructure-demo v0.1.0 in ") {
			t.Errorf("fetch %s prints %q", from, out)
		}
		if got := listing(t, copied+"/infrastructure-demo/v0.1.0"); !reflect.DeepEqual(built, got) {
			t.Errorf("fetched %v from %s, want the files of the build", got, from)
		}
	}
}

// TestPublishOtherBytes checks that only pre-releases and 0.0.0 can be replaced.
func TestPublishOtherBytes(t *testing.T) {
	dir := inDemo(t)
	for _, version := range []string{"v0.1.0", "v0.1.1-rc.0"} {
		succeed(t, "build", "--version", version)
	}
	succeed(t, "publish", "out/release", "--to", "repository")
	before := listing(t, "repository")
	treetest.Write(t, dir, map[string]string{"NOTES.md": "other words"})
	if err := os.Remove("templates/cluster-template-topology.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v0.1.0", "v0.1.1-rc.0"} {
		succeed(t, "build", "--version", version)
	}
	final, candidate := "out/release/infrastructure-demo/v0.1.0", "out/release/infrastructure-demo/v0.1.1-rc.0"
	differs := []string{"NOTES.md differs", "cluster-template-topology.yaml is only in the published one"}
	never := append(differs, "infrastructure-demo v0.1.0 is published already", "a published version is never changed: publish a new version")
	requireFailure(t, execute(t, "publish", final, "--to", "repository"), exitFailed, never...)
	requireFailure(t, execute(t, "publish", final, "--to", "repository", "--replace"), exitFailed, never...)
	requireFailure(t, execute(t, "publish", candidate, "--to", "repository"), exitFailed,
		append(differs, "infrastructure-demo v0.1.1-rc.0 is published already", "--replace")...)
	// If one release is refused, none is published.
	requireFailure(t, execute(t, "publish", candidate, final, "--to", "repository", "--replace"), exitFailed, never...)
	if after := listing(t, "repository"); !reflect.DeepEqual(before, after) {
		t.Error("a refused release changed the repository")
	}
	plan := execute(t, "publish", final, "--to", "repository", "--plan")
	if plan.status != exitFailed || !strings.Contains(plan.stdout, "refused") || !strings.Contains(plan.stdout, "NOTES.md differs") {
		t.Errorf("the plan of a refused release: status %d: %s", plan.status, plan.stdout)
	}

	if out := succeed(t, "publish", candidate, "--to", "repository", "--replace"); !strings.HasPrefix(out, "replaced infrastructure-demo v0.1.1-rc.0") {
		t.Errorf("replacing prints %q", out)
	}
	if got := listing(t, "repository/infrastructure-demo/v0.1.1-rc.0"); !reflect.DeepEqual(got, listing(t, candidate)) {
		t.Error("the candidate was not completely replaced")
	}
}

// TestBuildAgain checks that a build replaces all earlier output, and that notes are written to standard error.
func TestBuildAgain(t *testing.T) {
	dir := inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	first := listing(t, "out")
	succeed(t, "build", "--version", "v0.1.0")
	if again := listing(t, "out"); !reflect.DeepEqual(first, again) {
		t.Error("a second build of the same tree wrote other bytes")
	}
	treetest.Write(t, dir, map[string]string{"clusterctl-release.yaml": config("  kustomize: config/default\n  namespace: elsewhere\n" + demoImages)})
	got := execute(t, "build", "--version", "v0.1.0")
	if got.status != exitFine || !strings.Contains(got.stderr, "note: infrastructure-demo: ") || !strings.Contains(got.stderr, "elsewhere") {
		t.Errorf("status %d, notes: %q", got.status, got.stderr)
	}
	if files := listing(t, "out/release/infrastructure-demo/v0.1.0"); len(files) != 2 {
		t.Errorf("files of the earlier build still exist: %v", files)
	}
	// The working folder may be outside of the tree.
	t.Chdir(t.TempDir())
	succeed(t, "build", "--version", "v0.1.0", "--config", dir+"/clusterctl-release.yaml")
	if here := listing(t, "out/release/infrastructure-demo/v0.1.0"); len(here) != 2 {
		t.Errorf("built from elsewhere: %v", here)
	}
}

// TestMetadata creates a file, adds a series, and shows both.
func TestMetadata(t *testing.T) {
	inDemo(t)
	if err := os.Remove("metadata.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ line, want string }{
		{"metadata add --version v0.1.0 --contract v1beta2", "created metadata.yaml with the series of v0.1.0, contract v1beta2"},
		{"metadata add --version v0.2.0-rc.0 --contract v1beta2", "added the series of v0.2.0-rc.0, contract v1beta2, to metadata.yaml"},
		{"metadata add --version v0.2.7 --contract v1beta2", "metadata.yaml already has the series of v0.2.7"},
		{"metadata check", "metadata.yaml: 2 series, no problems"},
		{"metadata show", "v1beta2"},
		{"build --version v0.2.0", "built infrastructure-demo v0.2.0"},
	} {
		if out := succeed(t, strings.Fields(step.line)...); !strings.Contains(out, step.want) {
			t.Errorf("%s prints %q, want %q", step.line, out, step.want)
		}
	}
	before := listing(t, ".")
	requireFailure(t, execute(t, "metadata", "add", "--version", "v0.2.0", "--contract", "v1beta1"), exitFailed, "metadata.yaml", "0.2", "v1beta2")
	if after := listing(t, "."); !reflect.DeepEqual(before, after) {
		t.Error("a refused series changed a file")
	}
}

// TestMetadataCheckNamesChecks checks that metadata check prints IDs of existing checks.
func TestMetadataCheckNamesChecks(t *testing.T) {
	inDemo(t)
	for text, wanted := range map[string][]string{
		"a: [":                          {"metadata-parse"},
		"apiVersion: v1\nkind: Other\n": {"metadata-api-version", "metadata-kind", "series-present"},
		"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nextra: 1\nreleaseSeries:\n- {major: 0, minor: 1, contract: v1alpha4}\n- {major: 0, minor: 1, contract: v1beta1}\n": {
			"metadata-parse", "metadata-kind", "contract-known", "series-duplicate",
		},
	} {
		if err := os.WriteFile("metadata.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := execute(t, "metadata", "check")
		if r.status != exitFindings {
			t.Errorf("status %d, want %d: %s", r.status, exitFindings, r.stderr)
		}
		for _, match := range regexp.MustCompile(`(?m)\[([^\]]*)\]$`).FindAllStringSubmatch(r.stdout, -1) {
			succeed(t, "check", "--explain", match[1])
			wanted = slices.DeleteFunc(wanted, func(id string) bool { return id == match[1] })
		}
		if len(wanted) > 0 {
			t.Errorf("metadata check does not print %v:\n%s", wanted, r.stdout)
		}
	}
	succeed(t, "check", "--explain", "suppression-unused")
	for _, text := range []string{"v1alpha4", "v2"} {
		requireFailure(t, execute(t, "metadata", "add", "--version", "v9.0.0", "--contract", text, "--file", "new.yaml"), exitUsage, "use one of v1beta1, v1beta2")
	}
}
