package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// objectsPerCluster is the number of objects of generatedCluster.
const objectsPerCluster = 50

// planOfDumps measures plans of moves from dumps of growing namespaces: the time for one object should stay the same.
// There is no peer, because clusterctl reads only live clusters.
func planOfDumps(ctx context.Context, tool, module, work string, runs int) error {
	fmt.Printf("move-plan of a dump, one list of kubectl in YAML with the CRDs next to it (%d runs each; medians; aim for 10,000: 1 s and 200 MiB)\n", runs)
	for _, objects := range []int{1_000, 3_000, 10_000} {
		folder := filepath.Join(work, fmt.Sprintf("dump-%d", objects))
		size, err := writeDump(folder, module, objects/objectsPerCluster)
		if err != nil {
			return err
		}
		c := comparison{}
		var taken []usage
		for i := range runs + 1 {
			u, err := c.measure(ctx, work, [][]string{{tool, "move-plan", folder, "--format", "json"}})
			if err != nil {
				return err
			}
			if i > 0 { // the first warms the caches
				taken = append(taken, u)
			}
		}
		wall := median(taken, func(u usage) float64 { return u.Wall.Seconds() })
		fmt.Printf("  %6d objects, %5.1f MiB %27s %7.3f s  %6.1f MiB  %5.1f us an object\n", objects, float64(size)/(1<<20), "",
			wall, median(taken, func(u usage) float64 { return u.Peak }), wall*1e6/float64(objects))
	}
	fmt.Println()
	return nil
}

// writeDump writes a namespace with Clusters and Cluster API's CRDs in the format of kubectl, and returns the size of
// the objects' file in bytes.
func writeDump(folder, module string, clusters int) (int, error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return 0, err
	}
	var crds strings.Builder
	for _, part := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		files, err := filepath.Glob(filepath.Join(module, part, "config/crd/bases/*.yaml"))
		if err != nil || len(files) == 0 {
			return 0, fmt.Errorf("no CRDs in %s of Cluster API: %w", part, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return 0, err
			}
			crds.WriteString("---\n" + strings.Replace(strings.TrimPrefix(string(data), "---\n"), "metadata:\n", "metadata:\n  labels:\n    clusterctl.cluster.x-k8s.io: \"\"\n", 1))
		}
	}
	for _, kind := range []string{"DemoCluster", "DemoMachine", "DemoMachineTemplate"} {
		crds.WriteString(demoCRD(kind))
	}
	if err := os.WriteFile(filepath.Join(folder, "crds.yaml"), []byte(crds.String()), 0o600); err != nil {
		return 0, err
	}
	var list strings.Builder
	list.WriteString("apiVersion: v1\nitems:\n")
	for i := range clusters {
		for _, o := range generatedCluster(i) {
			o.write(&list)
		}
	}
	list.WriteString("kind: List\nmetadata:\n  resourceVersion: \"\"\n")
	return list.Len(), os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(list.String()), 0o600)
}

// demoCRD returns the CRD of a kind of the demo provider.
func demoCRD(kind string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  labels:
    clusterctl.cluster.x-k8s.io: ""
  name: %s.infrastructure.cluster.x-k8s.io
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: %s, listKind: %sList, plural: %s, singular: %s}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, plural, kind, kind, plural, strings.ToLower(kind))
}

// generated is an object of a dump.
type generated struct {
	apiVersion, kind, name, uid string
	owner                       *generated
	spec, status                string
}

// generatedCluster returns the objects of a Cluster: three Machines of its control plane, and others of
// two MachineDeployments.
func generatedCluster(number int) []*generated {
	const (
		core      = "cluster.x-k8s.io/v1beta2"
		bootstrap = "bootstrap.cluster.x-k8s.io/v1beta2"
		demo      = "infrastructure.cluster.x-k8s.io/v1beta1"
	)
	var objects []*generated
	add := func(apiVersion, kind, name string, owner *generated) *generated {
		o := &generated{
			apiVersion: apiVersion, kind: kind, name: name, owner: owner,
			uid: fmt.Sprintf("%08x-0000-4000-8000-%012x", number, len(objects)), spec: filler, status: conditions,
		}
		objects = append(objects, o)
		return o
	}
	name := fmt.Sprintf("cluster-%d", number)
	cluster := add(core, "Cluster", name, nil)
	cluster.spec = fmt.Sprintf("    infrastructureRef:\n      apiGroup: infrastructure.cluster.x-k8s.io\n      kind: DemoCluster\n      name: %s\n", name)
	cluster.status += "    initialization:\n      infrastructureProvisioned: true\n"
	add(demo, "DemoCluster", name, cluster)
	plane := add("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", name, cluster)
	add(demo, "DemoMachineTemplate", name+"-control-plane", cluster)
	add("v1", "Secret", name+"-kubeconfig", plane)
	add("v1", "Secret", name+"-ca", plane)
	machine := func(name string, owner *generated) {
		m := add(core, "Machine", name, owner)
		m.status += "    nodeRef:\n      name: " + name + "\n"
		add(demo, "DemoMachine", name, m)
		add("v1", "Secret", name, add(bootstrap, "KubeadmConfig", name, m))
	}
	for i := range 3 {
		machine(fmt.Sprintf("%s-control-plane-%d", name, i), plane)
	}
	for d := range 2 {
		pool := fmt.Sprintf("%s-md-%d", name, d)
		add(demo, "DemoMachineTemplate", pool, cluster)
		add(bootstrap, "KubeadmConfigTemplate", pool, cluster)
		set := add(core, "MachineSet", pool, add(core, "MachineDeployment", pool, cluster))
		for i := range 3 {
			machine(fmt.Sprintf("%s-%d", pool, i), set)
		}
	}
	return objects
}

const (
	// filler makes an object as large as those of real providers.
	filler = `    bootstrap:
      dataSecretName: bootstrap-data
    clusterName: demo
    files:
    - content: |
        #!/bin/bash
        set -euo pipefail
        kind: nothing of the sort
        systemctl restart containerd
      owner: root:root
      path: /usr/local/bin/prepare
      permissions: "0755"
    providerID: demo://zone-a/0123456789abcdef
    version: v1.36.3
`
	conditions = `    conditions:
    - lastTransitionTime: "2026-01-01T00:00:00Z"
      message: ""
      observedGeneration: 3
      reason: Available
      status: "True"
      type: Available
    - lastTransitionTime: "2026-01-01T00:00:00Z"
      message: ""
      observedGeneration: 3
      reason: Initialized
      status: "True"
      type: ControlPlaneInitialized
    - lastTransitionTime: "2026-01-01T00:00:00Z"
      message: |-
        * Machine demo:
          * NodeHealthy: waiting
      observedGeneration: 3
      reason: NotUpToDate
      status: "False"
      type: UpToDate
    observedGeneration: 3
`
)

// write writes the object as an item of a list, as kubectl does.
func (o *generated) write(b *strings.Builder) {
	fmt.Fprintf(b, "- apiVersion: %s\n", o.apiVersion)
	if o.kind == "Secret" {
		b.WriteString("  data:\n    value: " + strings.Repeat("QUJD", 400) + "\n")
	}
	fmt.Fprintf(b, "  kind: %s\n  metadata:\n    annotations:\n      cluster.x-k8s.io/cloned-from-name: demo\n    creationTimestamp: \"2026-01-01T00:00:00Z\"\n", o.kind)
	fmt.Fprintf(b, "    finalizers:\n    - demo.cluster.x-k8s.io\n    generation: 3\n    labels:\n      cluster.x-k8s.io/cluster-name: demo\n    name: %s\n    namespace: team\n", o.name)
	if o.owner != nil {
		fmt.Fprintf(b, "    ownerReferences:\n    - apiVersion: %s\n      blockOwnerDeletion: true\n      controller: true\n      kind: %s\n      name: %s\n      uid: %s\n",
			o.owner.apiVersion, o.owner.kind, o.owner.name, o.owner.uid)
	}
	fmt.Fprintf(b, "    resourceVersion: \"12345\"\n    uid: %s\n", o.uid)
	if o.kind == "Secret" {
		b.WriteString("  type: cluster.x-k8s.io/secret\n")
		return
	}
	fmt.Fprintf(b, "  spec:\n%s  status:\n%s", o.spec, o.status)
}
