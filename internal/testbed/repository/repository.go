// Package repository makes a local repository of clusterctl with Cluster API's own providers, made of
// the sources of its Go module, and what clusterctl needs beside them. It reaches no network.
package repository

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Provider is a provider of Cluster API's own.
type Provider struct {
	// Label is the folder in the repository, e.g. bootstrap-kubeadm.
	Label string
	// Name and Type as clusterctl.yaml has them.
	Name, Type string
	// Tree is the folder of its kustomization in the module.
	Tree string
	// Image that its manager is released as.
	Image string
	// Tool is the pinned tool that the manager is built as.
	Tool string
}

// Providers are those that a management cluster has beside an infrastructure provider.
var Providers = []Provider{
	{"cluster-api", "cluster-api", "CoreProvider", "core/config/default", "registry.k8s.io/cluster-api/cluster-api-controller", "clusterctl/core"},
	{"bootstrap-kubeadm", "kubeadm", "BootstrapProvider", "bootstrap/kubeadm/config/default", "registry.k8s.io/cluster-api/kubeadm-bootstrap-controller", "clusterctl/bootstrap/kubeadm"},
	{"control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", "controlplane/kubeadm/config/default", "registry.k8s.io/cluster-api/kubeadm-control-plane-controller", "clusterctl/controlplane/kubeadm"},
}

// stagingRegistry is where the manifests in the sources have the images, before a release.
const stagingRegistry = "gcr.io/k8s-staging-cluster-api/"

// Options say what to write.
type Options struct {
	// Dir of the repository. It is made.
	Dir string
	// Module is the folder of the sources of Cluster API, and Version the version of them.
	Module, Version string
	// Kustomize is the program.
	Kustomize string
	// CertManager is the manifest that is installed as cert-manager.
	CertManager []byte
	// Entries are more providers, as clusterctl.yaml lists them.
	Entries []Entry
	// Variables are set in clusterctl.yaml.
	Variables map[string]string
}

// Entry is a provider as clusterctl.yaml lists it.
type Entry struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// URL is the path of the components file.
	URL string `json:"url"`
}

// certManagerVersion is any: clusterctl only wants one to compare with.
const certManagerVersion = "v1.99.0"

// Write makes the repository and returns the path of its clusterctl.yaml.
func Write(ctx context.Context, options Options) (string, error) {
	entries := options.Entries
	for _, provider := range Providers {
		file, err := write(ctx, options, provider)
		if err != nil {
			return "", fmt.Errorf("making the components of %s: %w", provider.Label, err)
		}
		entries = append(entries, Entry{Name: provider.Name, Type: provider.Type, URL: file})
	}
	certManager := filepath.Join(options.Dir, "cert-manager", certManagerVersion, "cert-manager.yaml")
	if err := writeFile(certManager, options.CertManager); err != nil {
		return "", err
	}
	config := map[string]any{
		"providers":    entries,
		"cert-manager": map[string]string{"url": certManager, "version": certManagerVersion},
	}
	for name, value := range options.Variables {
		config[name] = value
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}
	file := filepath.Join(options.Dir, "clusterctl.yaml")
	return file, writeFile(file, content)
}

// write builds one provider, as Cluster API's own release does: the kustomization with the images of
// the release, and its metadata.yaml.
func write(ctx context.Context, options Options, provider Provider) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, options.Kustomize, "build", filepath.Join(options.Module, provider.Tree))
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	staged := stagingRegistry + provider.Image[strings.LastIndex(provider.Image, "/")+1:] + ":main"
	if count := strings.Count(stdout.String(), "image: "+staged+"\n"); count != 1 {
		return "", fmt.Errorf("the image %s should be there once, and is there %d times", staged, count)
	}
	components := strings.Replace(stdout.String(), staged, provider.Image+":"+options.Version, 1)
	// Nothing is pulled, and clusterctl doesn't mind; it is as in Cluster API's release.
	components = strings.ReplaceAll(components, "imagePullPolicy: Always", "imagePullPolicy: IfNotPresent")

	metadata, err := os.ReadFile(filepath.Join(options.Module, "metadata.yaml"))
	if err != nil {
		return "", err
	}
	folder := filepath.Join(options.Dir, provider.Label, options.Version)
	if err := writeFile(filepath.Join(folder, "metadata.yaml"), metadata); err != nil {
		return "", err
	}
	components = strings.TrimSpace(components) + "\n"
	file := filepath.Join(folder, componentsName(provider))
	return file, writeFile(file, []byte(components))
}

func componentsName(provider Provider) string {
	if kind, _, found := strings.Cut(provider.Label, "-kubeadm"); found {
		return kind + "-components.yaml"
	}
	return "core-components.yaml"
}

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
