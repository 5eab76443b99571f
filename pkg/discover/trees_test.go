package discover_test

import (
	"fmt"
	"strings"
)

// resources returns a kustomization with these resources.
func resources(paths ...string) string {
	return "resources:\n- " + strings.Join(paths, "\n- ") + "\n"
}

// labelled returns a kustomization of manager.yaml whose objects have a provider label.
func labelled(label string) string {
	return resources("manager.yaml") + "labels:\n- pairs: {cluster.x-k8s.io/provider: " + label + "}\n"
}

// manager returns a Deployment with a container called manager.
func manager(image string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: system}
spec:
  selector: {matchLabels: {control-plane: controller-manager}}
  template:
    metadata: {labels: {control-plane: controller-manager}}
    spec:
      containers:
      - name: manager
        image: %s
`, image)
}

// crd returns a CRD in an API group.
func crd(group, kind string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.%s}
spec:
  group: %s
  names: {kind: %s, plural: %s}
  scope: Namespaced
  versions: []
`, plural, group, group, kind, plural)
}

const (
	image       = "registry.example.com/demo/controller:dev"
	metadata    = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 0, minor: 1, contract: v1beta2}\n"
	cluster     = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata:\n  name: ${CLUSTER_NAME}\n"
	class       = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: ClusterClass\nmetadata:\n  name: prod\n"
	demoInfra   = "infrastructure-demo"
	infraGroup  = "infrastructure.cluster.x-k8s.io"
	defaultPath = "config/default/"
)

// demo is a tree with one labelled provider.
var demo = map[string]string{
	defaultPath + "kustomization.yaml": labelled(demoInfra),
	defaultPath + "manager.yaml":       manager(image),
	"metadata.yaml":                    metadata,
}
