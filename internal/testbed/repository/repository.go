// Package repository creates a local repository of clusterctl with the providers that a management cluster needs in
// addition to an infrastructure provider, from the sources of their Go modules, and with cert-manager. It uses no
// network.
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

// The Go modules of providers.
const (
	ClusterAPI    = "sigs.k8s.io/cluster-api"
	IPAMInCluster = "sigs.k8s.io/cluster-api-ipam-provider-in-cluster"
)

// Provider is a provider from the sources of a Go module.
type Provider struct {
	// Label is the folder in the repository, e.g. bootstrap-kubeadm.
	Label string
	// Name and Type in clusterctl.yaml.
	Name, Type string
	// Components is the name of the file with its components in a release.
	Components string
	// Module is the Go module of its sources.
	Module string
	// Tree is the folder of its kustomization in the module.
	Tree string
	// Staged is the image of its manager in the sources, before a release.
	Staged string
	// Image is the image of its manager in a release.
	Image string
	// Tool is the pinned tool with the manager.
	Tool string
}

// Providers are the providers that a management cluster needs in addition to an infrastructure provider.
var Providers = []Provider{
	{
		Label: "cluster-api", Name: "cluster-api", Type: "CoreProvider", Components: "core-components.yaml",
		Module: ClusterAPI, Tree: "core/config/default", Staged: "gcr.io/k8s-staging-cluster-api/cluster-api-controller:main",
		Image: "registry.k8s.io/cluster-api/cluster-api-controller", Tool: "clusterctl/core",
	},
	{
		Label: "bootstrap-kubeadm", Name: "kubeadm", Type: "BootstrapProvider", Components: "bootstrap-components.yaml",
		Module: ClusterAPI, Tree: "bootstrap/kubeadm/config/default", Staged: "gcr.io/k8s-staging-cluster-api/kubeadm-bootstrap-controller:main",
		Image: "registry.k8s.io/cluster-api/kubeadm-bootstrap-controller", Tool: "clusterctl/bootstrap/kubeadm",
	},
	{
		Label: "control-plane-kubeadm", Name: "kubeadm", Type: "ControlPlaneProvider", Components: "control-plane-components.yaml",
		Module: ClusterAPI, Tree: "controlplane/kubeadm/config/default", Staged: "gcr.io/k8s-staging-cluster-api/kubeadm-control-plane-controller:main",
		Image: "registry.k8s.io/cluster-api/kubeadm-control-plane-controller", Tool: "clusterctl/controlplane/kubeadm",
	},
	{
		Label: "ipam-in-cluster", Name: "in-cluster", Type: "IPAMProvider", Components: "ipam-components.yaml",
		Module: IPAMInCluster, Tree: "config/default", Staged: "gcr.io/k8s-staging-capi-ipam-ic/cluster-api-ipam-in-cluster-controller:dev",
		Image: "registry.k8s.io/capi-ipam-ic/cluster-api-ipam-in-cluster-controller", Tool: "ipam-in-cluster",
	},
}

// Source is the location of a Go module's sources.
type Source struct {
	// Dir is the folder of the sources, and Version their version.
	Dir, Version string
}

// Options are the options of Write.
type Options struct {
	// Dir is the folder of the repository. Write creates it.
	Dir string
	// Sources of the modules of Providers, by their paths.
	Sources map[string]Source
	// Kustomize is the path of the program.
	Kustomize string
	// CertManager is the manifest of cert-manager.
	CertManager []byte
	// Entries are additional providers for clusterctl.yaml.
	Entries []Entry
	// Variables are variables for clusterctl.yaml.
	Variables map[string]string
}

// Entry is a provider in clusterctl.yaml.
type Entry struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// URL is the path of the components file.
	URL string `json:"url"`
}

// certManagerVersion is any version: clusterctl only compares it.
const certManagerVersion = "v1.99.0"

// Write creates the repository and returns the path of its clusterctl.yaml.
func Write(ctx context.Context, options Options) (string, error) {
	entries := options.Entries
	for _, provider := range Providers {
		file, err := write(ctx, options, provider)
		if err != nil {
			return "", fmt.Errorf("building the components of %s: %w", provider.Label, err)
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

// write builds one provider like its release: the kustomization with the image of the release, and the module's
// metadata.yaml.
func write(ctx context.Context, options Options, provider Provider) (string, error) {
	source, known := options.Sources[provider.Module]
	if !known {
		return "", fmt.Errorf("there are no sources of %s", provider.Module)
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, options.Kustomize, "build", filepath.Join(source.Dir, provider.Tree))
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if count := strings.Count(stdout.String(), "image: "+provider.Staged+"\n"); count != 1 {
		return "", fmt.Errorf("the components must have the image %s once, and have it %d times", provider.Staged, count)
	}
	components := strings.Replace(stdout.String(), provider.Staged, provider.Image+":"+source.Version, 1)
	// As in the releases. Nothing is pulled.
	components = strings.ReplaceAll(components, "imagePullPolicy: Always", "imagePullPolicy: IfNotPresent")

	metadata, err := os.ReadFile(filepath.Join(source.Dir, "metadata.yaml"))
	if err != nil {
		return "", err
	}
	folder := filepath.Join(options.Dir, provider.Label, source.Version)
	if err := writeFile(filepath.Join(folder, "metadata.yaml"), metadata); err != nil {
		return "", err
	}
	components = strings.TrimSpace(components) + "\n"
	file := filepath.Join(folder, provider.Components)
	return file, writeFile(file, []byte(components))
}

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
