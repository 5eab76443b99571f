package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

var (
	suggestedCommand = regexp.MustCompile("(?:`|: )clusterctl release ([^`\n]+?)(?:`|\n|$)")
	suggestedMake    = regexp.MustCompile("`make ([^`]+)`")
	suggestedEntry   = regexp.MustCompile(`'(path|kustomize): ([^']+)' and 'as: ([^']+)' under (\w+)`)
	suggestedFile    = regexp.MustCompile(`(\S+) has such a Deployment: write a kustomization.yaml into its folder with the line '([^']+)'`)
	suggestedImage   = regexp.MustCompile(`--image (\S+)=REFERENCE`)
)

// suggestions follows the suggestions in messages, each of them once.
type suggestions struct {
	followed  []string
	buildArgs []string
}

// follow follows the new suggestions in a text and reports whether there were any.
func (s *suggestions) follow(t *testing.T, text string) bool {
	t.Helper()
	before := len(s.followed)
	each := func(pattern *regexp.Regexp, do func(parts []string)) {
		for _, parts := range pattern.FindAllStringSubmatch(text, -1) {
			done := false
			for _, other := range s.followed {
				done = done || other == parts[0]
			}
			if !done {
				s.followed = append(s.followed, parts[0])
				do(parts)
			}
		}
	}
	each(suggestedCommand, func(parts []string) {
		if parts[1] != "build" { // the first line of the release file names this command
			succeed(t, strings.Fields(parts[1])...)
		}
	})
	each(suggestedMake, func(parts []string) {
		if out, err := exec.CommandContext(t.Context(), "make", parts[1]).CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", parts[1], err, out)
		}
	})
	each(suggestedFile, func(parts []string) {
		treetest.Write(t, ".", map[string]string{filepath.Join(filepath.Dir(parts[1]), "kustomization.yaml"): parts[2] + "\n"})
	})
	each(suggestedEntry, func(parts []string) { addEntry(t, parts[4], map[string]any{parts[1]: parts[2], "as": parts[3]}) })
	each(suggestedImage, func(parts []string) {
		s.buildArgs = append(s.buildArgs, "--image", parts[1]+"=registry.example.com/demo/controller")
	})
	return len(s.followed) > before
}

// addEntry adds an entry to a list of the release file's first provider.
func addEntry(t *testing.T, field string, entry map[string]any) {
	t.Helper()
	data, err := os.ReadFile("clusterctl-release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	provider := config["providers"].([]any)[0].(map[string]any)
	list, _ := provider[field].([]any)
	provider[field] = append(list, entry)
	if data, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("clusterctl-release.yaml", data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSuggestions follows the suggestions in the output of init and then in the errors of builds until
// there is a release. No suggestion may fail.
func TestSuggestions(t *testing.T) {
	for _, tc := range []struct {
		name string
		// prepare changes the demo tree without a release file.
		prepare func(t *testing.T)
		// version is the version of the build; "" is v0.7.0.
		version string
		// want has parts of the expected suggestions.
		want []string
	}{
		{name: "no metadata, and the contract of the CRDs", version: "v0.1.0", want: []string{"metadata add --version v0.1.0 --contract v1beta1"}, prepare: func(t *testing.T) {
			carryV1beta1(t)
			remove(t, "metadata.yaml")
		}},
		{name: "no series, and the contract of the CRDs", want: []string{"metadata add --version v0.7.0 --contract v1beta2"}, prepare: func(t *testing.T) {
			replace(t, "metadata.yaml", "v1beta2", "v1beta1")
		}},
		{name: "an image without a registry", want: []string{"--image controller=REFERENCE", "metadata add"}, prepare: func(t *testing.T) {
			replace(t, "config/manager/manager.yaml", "registry.example.com/demo/controller:dev", "controller:latest")
		}},
		{name: "a file that make generates", want: []string{"make generate", "metadata add"}, prepare: func(t *testing.T) {
			rename(t, "config/crd/demomachines.yaml", "hack/demomachines.yaml")
			treetest.Write(t, ".", map[string]string{"Makefile": "generate:\n\tcp hack/demomachines.yaml config/crd/\n"})
		}},
		{name: "files under other names", want: []string{"as: clusterclass-demo.yaml", "as: cluster-template-topology.yaml"}, prepare: func(t *testing.T) {
			rename(t, "templates/clusterclass-demo.yaml", "templates/my-class.yaml")
			rename(t, "templates/cluster-template-topology.yaml", "templates/cluster-topology.yaml")
		}},
		{name: "a class under the name of a template", want: []string{"as: clusterclass-demo.yaml"}, prepare: func(t *testing.T) {
			rename(t, "templates/clusterclass-demo.yaml", "templates/cluster-template-class.yaml")
		}},
		{name: "a kustomization that the build releases too", want: []string{"kustomize: config/rbac' and 'as: rbac.yaml' under files"}, prepare: func(t *testing.T) {
			treetest.Write(t, ".", map[string]string{"Makefile": "release:\n\tkustomize build config/default > out/infrastructure-components.yaml\n\tkustomize build config/rbac > out/rbac.yaml\n"})
		}},
		{name: "no kustomization", want: []string{"deploy/install.yaml has such a Deployment"}, prepare: func(t *testing.T) {
			succeed(t, "init")
			succeed(t, "build", "--version", "v0.1.0", "--output", "made")
			rename(t, "made/infrastructure-demo/v0.1.0/infrastructure-components.yaml", "deploy/install.yaml")
			for _, name := range []string{"made", "config", "clusterctl-release.yaml", "templates/flavors"} {
				remove(t, name)
			}
		}},
		{name: "two providers with metadata of their own", want: []string{"--file metadata.yaml", "--file second/metadata.yaml"}, prepare: func(t *testing.T) {
			if err := os.CopyFS("second/config", os.DirFS("config")); err != nil {
				t.Fatal(err)
			}
			replace(t, "second/config/default/kustomization.yaml", "infrastructure-demo", "infrastructure-second")
			treetest.Write(t, ".", map[string]string{"second/metadata.yaml": read(t, "metadata.yaml")})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inScaffold(t)
			tc.prepare(t)
			version := tc.version
			if version == "" {
				version = "v0.7.0"
			}
			s := &suggestions{}
			got := execute(t, "init")
			for got.status != exitFine && s.follow(t, got.stderr) {
				got = execute(t, "init")
			}
			if got.status != exitFine {
				t.Fatalf("init: %s", got.stderr)
			}
			s.follow(t, got.stdout+read(t, "clusterctl-release.yaml"))
			build := func() outcome {
				return execute(t, append([]string{"build", "--version", version}, s.buildArgs...)...)
			}
			for got = build(); got.status != exitFine && s.follow(t, got.stderr); {
				got = build()
			}
			if got.status != exitFine {
				t.Errorf("build: %s", got.stderr)
			}
			for _, part := range tc.want {
				if !strings.Contains(strings.Join(s.followed, "\n"), part) {
					t.Errorf("%q was not suggested: %q", part, s.followed)
				}
			}
		})
	}
}

// carryV1beta1 changes the CRDs of the demo tree to carry and implement contract v1beta1.
func carryV1beta1(t *testing.T) {
	t.Helper()
	replace(t, "config/crd/kustomization.yaml", "cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1")
	for _, kind := range []string{"clusters", "machines"} {
		replace(t, "config/crd/demo"+kind+".yaml", "              initialization:\n", "              ready:\n                type: boolean\n              initialization:\n")
	}
}

// replace replaces a text in a file.
func replace(t *testing.T, name, was, now string) {
	t.Helper()
	text := read(t, name)
	if !strings.Contains(text, was) {
		t.Fatalf("%s has no %q", name, was)
	}
	treetest.Write(t, ".", map[string]string{name: strings.ReplaceAll(text, was, now)})
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func rename(t *testing.T, was, now string) {
	t.Helper()
	treetest.Write(t, ".", map[string]string{now: read(t, was)})
	remove(t, was)
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}
