package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// kubernetes is the name of the module in hack/tools that pins a version.
func kubernetes(version string) string { return "kubernetes-" + version }

// pinnedVersions returns the versions of Kubernetes that modules in hack/tools pin. root is the folder of the project.
func pinnedVersions(root string) ([]string, error) {
	const modules = "hack/tools/kubernetes-"
	paths, err := filepath.Glob(filepath.Join(root, modules+"*"))
	for i, path := range paths {
		paths[i] = strings.TrimPrefix(path, filepath.Join(root, modules))
	}
	return paths, err
}

const kubeProxy = "kube-proxy"

// kubernetesPrograms are the programs of that module.
var kubernetesPrograms = []string{"kube-apiserver", "kube-controller-manager", kubeProxy, "kube-scheduler", "kubeadm", "kubectl", "kubelet"}

// nodePrograms are the paths of programs on a node, by their names in hack/tools.
var nodePrograms = map[string]string{
	"kubeadm":                            "usr/bin/kubeadm",
	"kubectl":                            "usr/bin/kubectl",
	"kubelet":                            "usr/bin/kubelet",
	"containerd/containerd":              "usr/bin/containerd",
	"containerd/containerd-shim-runc-v2": "usr/bin/containerd-shim-runc-v2",
	"containerd/ctr":                     "usr/bin/ctr",
	"runc":                               "usr/bin/runc",
	"cni/bridge":                         "opt/cni/bin/bridge",
	"cni/host-local":                     "opt/cni/bin/host-local",
	"cni/loopback":                       "opt/cni/bin/loopback",
	"cni/portmap":                        "opt/cni/bin/portmap",
}

// programsOf returns the names in hack/tools of all programs in the image of a version: those of the version, and
// kube-proxy of all versions. While a cluster is upgraded, nodes of both versions run the one that its DaemonSet has.
func programsOf(version string, versions []string) []string {
	var programs []string
	for _, name := range kubernetesPrograms {
		programs = append(programs, kubernetes(version)+"/"+name)
	}
	for _, other := range versions {
		if other != version {
			programs = append(programs, kubernetes(other)+"/"+kubeProxy)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodePrograms)) {
		if !slices.Contains(kubernetesPrograms, name) {
			programs = append(programs, name)
		}
	}
	return append(programs, "etcd", "coredns", "flannel")
}
