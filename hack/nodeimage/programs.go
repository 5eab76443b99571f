package main

import (
	"maps"
	"slices"
)

// kubernetes is the name of the module in hack/tools that pins a version.
func kubernetes(version string) string { return "kubernetes-" + version }

// kubernetesPrograms are the programs of that module.
var kubernetesPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm", "kubectl", "kubelet"}

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

// programsOf returns the names in hack/tools of all programs in the image.
func programsOf(version string) []string {
	var programs []string
	for _, name := range kubernetesPrograms {
		programs = append(programs, kubernetes(version)+"/"+name)
	}
	for _, name := range slices.Sorted(maps.Keys(nodePrograms)) {
		if !slices.Contains(kubernetesPrograms, name) {
			programs = append(programs, name)
		}
	}
	return append(programs, "etcd", "coredns", "flannel")
}
