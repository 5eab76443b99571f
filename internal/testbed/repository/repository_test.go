package repository_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/repository"
)

// kustomize is a program that prints the content of the tree. Other tests of the testbed run the real one.
const kustomize = "#!/bin/sh\n[ \"$1\" = build ] && exec cat \"$2/components.yaml\"\n"

// sources creates modules with the trees of the providers, and the program that builds them. change may edit the
// components of each.
func sources(t *testing.T, change func(repository.Provider, string) string) repository.Options {
	t.Helper()
	g := NewWithT(t)
	options := repository.Options{
		Dir: filepath.Join(t.TempDir(), "repository"),
		Sources: map[string]repository.Source{
			repository.ClusterAPI: {Dir: t.TempDir(), Version: "v1.2.3"}, repository.IPAMInCluster: {Dir: t.TempDir(), Version: "v4.5.6"},
		},
		Kustomize: filepath.Join(t.TempDir(), "kustomize"), CertManager: []byte("kind: Namespace\n"),
		Entries:   []repository.Entry{{Name: "libvirt", Type: "InfrastructureProvider", URL: "/release/infrastructure-components.yaml"}},
		Variables: map[string]string{"CHECKSUM": "12"},
	}
	g.Expect(os.WriteFile(options.Kustomize, []byte(kustomize), 0o755)).To(Succeed())
	for module, source := range options.Sources {
		g.Expect(os.WriteFile(filepath.Join(source.Dir, "metadata.yaml"), []byte("module: "+module+"\n"), 0o644)).To(Succeed())
	}
	for _, provider := range repository.Providers {
		components := fmt.Sprintf("image: %s\nimagePullPolicy: Always\n", provider.Staged)
		file := filepath.Join(options.Sources[provider.Module].Dir, provider.Tree, "components.yaml")
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte(change(provider, components)), 0o644)).To(Succeed())
	}
	return options
}

// TestWrite checks that every provider in clusterctl.yaml exists, with the images of the release.
func TestWrite(t *testing.T) {
	g := NewWithT(t)
	options := sources(t, func(_ repository.Provider, components string) string { return components })
	file, err := repository.Write(context.Background(), options)
	g.Expect(err).ToNot(HaveOccurred())
	content, err := os.ReadFile(file)
	g.Expect(err).ToNot(HaveOccurred())
	var config struct {
		Providers   []repository.Entry `json:"providers"`
		CertManager map[string]string  `json:"cert-manager"`
		Checksum    string             `json:"CHECKSUM"`
	}
	g.Expect(yaml.Unmarshal(content, &config)).To(Succeed())
	g.Expect(config.Checksum).To(Equal("12"), "variables are strings")
	g.Expect(os.ReadFile(config.CertManager["url"])).To(BeEquivalentTo("kind: Namespace\n"))
	g.Expect(config.Providers).To(HaveLen(1 + len(repository.Providers)))
	g.Expect(config.Providers[0]).To(Equal(options.Entries[0]))
	for i, provider := range repository.Providers {
		entry := config.Providers[i+1]
		g.Expect([]string{entry.Name, entry.Type}).To(Equal([]string{provider.Name, provider.Type}))
		version := options.Sources[provider.Module].Version
		// clusterctl derives the label and the version of a local repository from its path.
		g.Expect(filepath.Dir(entry.URL)).To(Equal(filepath.Join(options.Dir, provider.Label, version)))
		g.Expect(os.ReadFile(entry.URL)).To(BeEquivalentTo("image: " + provider.Image + ":" + version + "\nimagePullPolicy: IfNotPresent\n"))
		g.Expect(os.ReadFile(filepath.Join(filepath.Dir(entry.URL), "metadata.yaml"))).To(BeEquivalentTo("module: " + provider.Module + "\n"))
	}
}

// TestWriteFails checks that errors name the problem and the provider.
func TestWriteFails(t *testing.T) {
	bootstrap := "bootstrap-kubeadm"
	only := func(change func(string) string) func(repository.Provider, string) string {
		return func(provider repository.Provider, components string) string {
			if provider.Label == bootstrap {
				return change(components)
			}
			return components
		}
	}
	same := func(_ repository.Provider, components string) string { return components }
	tests := []struct {
		name   string
		change func(repository.Provider, string) string
		spoil  func(repository.Options) error
		want   []string
	}{
		{"no image", only(func(string) string { return "kind: Namespace\n" }), nil, []string{bootstrap, "0 times"}},
		{"two images", only(func(components string) string { return components + components }), nil, []string{bootstrap, "2 times"}},
		{"an image of another name", only(func(components string) string { return strings.Replace(components, ":main", ":v1", 1) }), nil, []string{bootstrap, "0 times"}},
		{"no tree", same, func(o repository.Options) error {
			return os.RemoveAll(filepath.Join(o.Sources[repository.ClusterAPI].Dir, "bootstrap"))
		}, []string{bootstrap, "No such file"}},
		{"no metadata", same, func(o repository.Options) error {
			return os.Remove(filepath.Join(o.Sources[repository.ClusterAPI].Dir, "metadata.yaml"))
		}, []string{"metadata.yaml"}},
		{"no sources", same, func(o repository.Options) error {
			delete(o.Sources, repository.IPAMInCluster)
			return nil
		}, []string{"ipam-in-cluster", repository.IPAMInCluster}},
		{"no kustomize", same, func(o repository.Options) error { return os.Remove(o.Kustomize) }, []string{"kustomize"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			options := sources(t, test.change)
			if test.spoil != nil {
				g.Expect(test.spoil(options)).To(Succeed())
			}
			_, err := repository.Write(context.Background(), options)
			for _, want := range test.want {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
		})
	}
}
