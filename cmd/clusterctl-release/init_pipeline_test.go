package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// pipelineFiles has the files of each pipeline.
var pipelineFiles = map[string][]string{
	"github": {".github/workflows/clusterctl-release.yaml"},
	"gitlab": {".gitlab/clusterctl-release.yml"},
}

// requirePipeline fails the test unless a tree has a pipeline with valid commands and make accepts its targets.
func requirePipeline(t *testing.T, dir, name string) {
	t.Helper()
	for _, file := range pipelineFiles[name] {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		requireYAML(t, string(text))
		if n := requireCommands(t, string(text)); name == "gitlab" && n != 3 {
			t.Errorf("%s has only %d commands of the tool", file, n)
		}
	}
	command := exec.CommandContext(t.Context(), "make", "-n", "clusterctl-release-publish", "VERSION=v1.2.3", "PLACE=out/repository")
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v: %s", err, out)
	}
	if n := requireCommands(t, string(out)); n != 2 || !strings.Contains(string(out), `clusterctl-release build --version "v1.2.3"`) {
		t.Errorf("make runs %s, want two commands", out)
	}
}

// requireYAML fails the test unless a text is a YAML mapping with keys.
func requireYAML(t *testing.T, text string) {
	t.Helper()
	var parsed map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil || len(parsed) == 0 {
		t.Errorf("%v:\n%s", err, text)
	}
}

// TestInitPipelineTrees writes pipelines into real providers' trees.
func TestInitPipelineTrees(t *testing.T) {
	root := filepath.Join(pinned.Corpus(t), "source")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "off") // make may call go while it reads makefiles
	for _, entry := range entries {
		for name := range pipelineFiles {
			t.Run(entry.Name()+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, entry.Name()))); err != nil {
					t.Fatal(err)
				}
				out := succeed(t, "init", dir, "--force", "--pipeline", name)
				requirePipeline(t, dir, name)
				config, err := release.Load(filepath.Join(dir, release.ConfigFile))
				if err != nil {
					t.Fatal(err)
				}
				for _, provider := range config.Providers {
					for _, image := range provider.Images {
						if !strings.Contains(out, "push the image "+image.Name+" ") {
							t.Errorf("the image %s is not in the remaining steps:\n%s", image.Name, out)
						}
					}
				}
			})
		}
	}
}

// TestInitPipeline checks that existing files keep their content and get nothing twice.
func TestInitPipeline(t *testing.T) {
	dir := inDemo(t)
	before := listing(t, ".")
	const makefile = "all:\n\techo all"
	treetest.Write(t, dir, map[string]string{"Makefile": makefile, ".gitlab-ci.yml": "build: {script: make}\n"})
	out := succeed(t, "init", "--pipeline", "gitlab")
	if !strings.Contains(out, "add to .gitlab-ci.yml: include: [{local: .gitlab/clusterctl-release.yml}]") || !strings.Contains(out, "push a tag vX.Y.Z") {
		t.Errorf("the remaining steps are\n%s", out)
	}
	after := listing(t, ".")
	if after["Makefile"] != makefile+"\n\ninclude clusterctl-release.mk\n" || after["clusterctl-release.yaml"] != before["clusterctl-release.yaml"] {
		t.Errorf("Makefile is %q", after["Makefile"])
	}
	requirePipeline(t, dir, "gitlab")

	requireFailure(t, execute(t, "init", "--pipeline", "gitlab"), exitFailed, "clusterctl-release.yml already exists", "--force")
	treetest.Write(t, dir, map[string]string{".github/workflows/clusterctl-release.yaml": "mine"})
	if err := os.Remove("clusterctl-release.yaml"); err != nil {
		t.Fatal(err)
	}
	delete(after, "clusterctl-release.yaml")
	after[".github/workflows/clusterctl-release.yaml"] = "mine"
	requireFailure(t, execute(t, "init", "--pipeline", "github"), exitFailed, "clusterctl-release.yaml already exists", "--force")
	requireFailure(t, execute(t, "init", "--pipeline", "jenkins"), exitUsage, "--pipeline jenkins", "github, gitlab")
	requireFailure(t, execute(t, "init", "--pipeline", "github", "--output", "-"), exitUsage, "output", "pipeline")
	if got := listing(t, "."); !reflect.DeepEqual(got, after) {
		t.Errorf("a refused init changed the tree: %v", got)
	}
	succeed(t, "init", "--pipeline", "github", "--force")
	requirePipeline(t, dir, "github")
	if got := listing(t, ".")["Makefile"]; got != after["Makefile"] {
		t.Errorf("Makefile is %q", got)
	}
}
