package release

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodConfig = `apiVersion: clusterctl-release/v1alpha1
kind: ReleaseConfig
providers:
- name: demo
  type: InfrastructureProvider
  kustomize: config/default
  images:
  - name: controller
    newName: ghcr.io/example/demo
  templates:
  - path: templates/cluster-template*.yaml
  - kustomize: templates/ha
    as: cluster-template-ha.yaml
  clusterClasses:
  - path: templates/class.yaml
    as: clusterclass-demo.yaml
  sampleValues:
  - name: small
    values:
      WORKER_MACHINE_COUNT: "1"
`

func TestParse(t *testing.T) {
	config, err := Parse("clusterctl-release.yaml", []byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	p := config.Providers[0]
	if got, want := p.Provider().Label(), "infrastructure-demo"; got != want {
		t.Errorf("label = %q, want %q", got, want)
	}
	if got, want := config.MetadataPath(p), "metadata.yaml"; got != want {
		t.Errorf("metadata path = %q, want %q", got, want)
	}
	if got, want := p.Templates[1].As, "cluster-template-ha.yaml"; got != want {
		t.Errorf("name of the second template = %q, want %q", got, want)
	}
	if got, want := p.SampleValues[0].Values["WORKER_MACHINE_COUNT"], "1"; got != want {
		t.Errorf("sample value = %q, want %q", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	replace := func(old, with string) string {
		changed := strings.Replace(goodConfig, old, with, 1)
		if changed == goodConfig {
			t.Fatalf("the good file has no %q", old)
		}
		return changed
	}
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"unknown field", replace("  kustomize: config", "  title: x\n  kustomize: config"), []string{"f.yaml:6:3: providers[0].title: the field does not exist"}},
		{"two faults", replace("- name: controller", "- nome: controller"), []string{"f.yaml:8:5: providers[0].images[0]: lacks name", "f.yaml:8:5: providers[0].images[0].nome: the field does not exist"}},
		{"number for a text", replace(`"1"`, "1"), []string{"f.yaml:20:29: providers[0].sampleValues[0].values.WORKER_MACHINE_COUNT: is of type number and should be of type string: put it in quotes"}},
		{"type", replace("InfrastructureProvider", "Infrastructure"), []string{"f.yaml:5:9: providers[0].type: value must be one of 'CoreProvider'"}},
		{"name", replace("name: demo", "name: Demo"), []string{"f.yaml:4:9: providers[0].name: 'Demo' does not match pattern"}},
		{"both path and kustomize", replace("    as: cluster-template-ha.yaml", "    path: x\n    as: cluster-template-ha.yaml"), []string{"f.yaml:12:5: providers[0].templates[1]: needs either path"}},
		{"kustomize without as", replace("    as: cluster-template-ha.yaml\n", ""), []string{"f.yaml:12:5: providers[0].templates[1]: needs 'as'"}},
		{"template name", replace("as: cluster-template-ha.yaml", "as: ha.yaml"), []string{`f.yaml:13:9: providers[0].templates[1].as: "ha.yaml" isn't a name for a cluster template`}},
		{"class name", replace("as: clusterclass-demo.yaml", "as: demo.yaml"), []string{`f.yaml:16:9: providers[0].clusterClasses[0].as: "demo.yaml" isn't a name for a ClusterClass`}},
		{"path out of the tree", replace("config/default", "../config"), []string{`f.yaml:6:14: providers[0].kustomize: "../config" is outside of the tree`}},
		{"absolute path", replace("config/default", "/config"), []string{`f.yaml:6:14: providers[0].kustomize: "/config" is outside of the tree`}},
		{"the core provider's name", replace("name: demo", "name: cluster-api"), []string{"f.yaml:4:9: providers[0].name: provider \"cluster-api\" of type InfrastructureProvider"}},
		{"the same provider twice", goodConfig + "- name: demo\n  type: InfrastructureProvider\n  kustomize: b\n", []string{"f.yaml:21:9: providers[1].name: providers[0] is already infrastructure-demo"}},
		{"duplicate key", replace("  kustomize: config", "  name: demo\n  kustomize: config"), []string{`line 6: mapping key "name" already defined at line 4`}},
		{"no YAML", "a: [", []string{"f.yaml: line 1"}},
		{"a second document", goodConfig + "---\na: b\n", []string{"more than one YAML document"}},
		{"empty", "", []string{"the file is empty"}},
		{"a list", "- a\n", []string{"f.yaml:1:1: is of type array and should be of type object"}},
		{"digest and tag", replace("    newName: ghcr.io/example/demo", "    newTag: v1\n    digest: sha256:"+strings.Repeat("0", 64)), []string{"f.yaml:8:5: providers[0].images[0]: has both newTag and digest"}},
		{"bad pattern", replace("cluster-template*.yaml", "[.yaml"), []string{"providers[0].templates[0].path: \"templates/[.yaml\" isn't a pattern"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(tc.text))
			if err == nil {
				t.Fatal("error = nil, want an error")
			}
			var typed *ConfigError
			if !errors.As(err, &typed) {
				t.Errorf("error is a %T, want a *ConfigError", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), ConfigFile))
	if !errors.Is(err, ErrNoConfig) || !strings.Contains(err.Error(), "release init") {
		t.Errorf("error = %v, want ErrNoConfig with advice to run release init", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(goodConfig))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("providers: [{}, {name: 1}]\n? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Parse("f.yaml", data)
		if (config == nil) == (err == nil) {
			t.Fatalf("config = %v, error = %v, want exactly one of them", config, err)
		}
		if err == nil && len(config.Providers) == 0 {
			t.Fatal("Parse accepted a file without a provider")
		}
	})
}

func TestParseLabel(t *testing.T) {
	for label, want := range map[string]string{
		"cluster-api":              "cluster-api CoreProvider core-components.yaml",
		"bootstrap-kubeadm":        "kubeadm BootstrapProvider bootstrap-components.yaml",
		"control-plane-kubeadm":    "kubeadm ControlPlaneProvider control-plane-components.yaml",
		"infrastructure-libvirt":   "libvirt InfrastructureProvider infrastructure-components.yaml",
		"ipam-in-cluster":          "in-cluster IPAMProvider ipam-components.yaml",
		"runtime-extension-test":   "test RuntimeExtensionProvider runtime-extension-components.yaml",
		"addon-helm":               "helm AddonProvider addon-components.yaml",
		"infrastructure-rke2-rke2": "rke2-rke2 InfrastructureProvider infrastructure-components.yaml",
	} {
		p, err := ParseLabel(label)
		if err != nil {
			t.Errorf("%s: %v", label, err)
			continue
		}
		if got := p.Name + " " + string(p.Type) + " " + p.ComponentsFile(); got != want {
			t.Errorf("ParseLabel(%q) = %q, want %q", label, got, want)
		}
		if p.Label() != label {
			t.Errorf("Label() = %q, want %q", p.Label(), label)
		}
	}
	for _, label := range []string{"", "helm", "infrastructure-", "infrastructure-Docker", "cert-manager"} {
		if _, err := ParseLabel(label); err == nil {
			t.Errorf("ParseLabel(%q) returned no error", label)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for _, good := range []string{"v0.1.0", "v1.2.3-rc.0", "v0.0.0", "v1.0.0-alpha.1+build.5"} {
		if _, err := ParseVersion(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{"0.1.0": "write v0.1.0", "v1": "isn't a semantic version", "": "isn't a semantic version", "v1.2.3.4": "isn't a semantic version", "latest": "isn't a semantic version", "v01.2.3": "isn't a semantic version"} {
		if _, err := ParseVersion(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseVersion(%q): error = %v, want %q", bad, err, want)
		}
	}
}

func TestRead(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("infrastructure-demo/v0.1.0/metadata.yaml", "m")
	write("infrastructure-demo/v0.1.0/infrastructure-components.yaml", "c")
	write("infrastructure-demo/v0.2.0/metadata.yaml", "m2")
	write("infrastructure-demo/.staging/metadata.yaml", "half")
	write("cert-manager/v1.0.0/cert-manager.yaml", "x")
	write("addon-helm/v1.0.0/metadata.yaml", "h")
	write("clusterctl.yaml", "")
	for path, want := range map[string]string{
		"":                           "addon-helm v1.0.0, infrastructure-demo v0.1.0, infrastructure-demo v0.2.0",
		"infrastructure-demo":        "infrastructure-demo v0.1.0, infrastructure-demo v0.2.0",
		"infrastructure-demo/v0.1.0": "infrastructure-demo v0.1.0",
	} {
		releases, err := Read(filepath.Join(root, path))
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		names := make([]string, 0, len(releases))
		for _, r := range releases {
			names = append(names, r.String())
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("Read(%q) = %q, want %q", path, got, want)
		}
	}
	if _, err := Read(filepath.Join(root, "cert-manager")); !errors.Is(err, ErrNoRelease) {
		t.Errorf("folder without releases: error = %v, want ErrNoRelease", err)
	}
	write("infrastructure-demo/v0.1.0/sub/x", "x")
	if _, err := Read(root); err == nil || !strings.Contains(err.Error(), "no folders below the version") {
		t.Errorf("folder in a version folder: error = %v, want one that refuses it", err)
	}
}
