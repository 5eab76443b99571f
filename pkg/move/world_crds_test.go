package move_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// coreCRDs returns the CRDs of Cluster API, its kubeadm providers and clusterctl, with clusterctl's
// labels and only the version that a move reads.
func coreCRDs(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the sources of Cluster API: %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, folder := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm", "cmd/clusterctl"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), folder, "config/crd/bases/*.yaml"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no CRDs in %s of Cluster API: %w", folder, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(data, crd); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
			for i := range crd.Spec.Versions {
				withoutDescriptions(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
			}
			crd.Labels = map[string]string{"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/v1beta2": "v1beta2"}
			crds = append(crds, crd)
		}
	}
	return crds, nil
}

// withoutDescriptions removes the descriptions, because clusterctl reads all CRDs for each move.
func withoutDescriptions(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description = ""
	for name, property := range schema.Properties {
		withoutDescriptions(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		withoutDescriptions(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		withoutDescriptions(schema.AdditionalProperties.Schema)
	}
}

// demoCRDs returns the CRDs of the demo provider, and one that clusterctl did not install.
func demoCRDs() []*apiextensionsv1.CustomResourceDefinition {
	anything := true
	define := func(group, kind string, scope apiextensionsv1.ResourceScope, labels ...string) *apiextensionsv1.CustomResourceDefinition {
		plural := strings.ToLower(kind) + "s"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Labels: map[string]string{}}}
		for _, label := range labels {
			crd.Labels[label] = ""
		}
		version := "v1beta1"
		if group == "images.example.com" {
			version = "v1"
		}
		crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
		}
		for _, name := range []string{"v1alpha1", version} {
			crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Name: name, Served: true, Storage: name == version,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}},
			})
		}
		return crd
	}
	const group, label = "infrastructure.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io"
	crds := []*apiextensionsv1.CustomResourceDefinition{
		define(group, "DemoIdentity", apiextensionsv1.ClusterScoped, label, hierarchyLabel),
		define(group, "DemoHost", apiextensionsv1.ClusterScoped, label),
		define(group, "DemoShared", apiextensionsv1.NamespaceScoped, label, moveLabel),
		define(group, "DemoPool", apiextensionsv1.NamespaceScoped, label, hierarchyLabel),
		define("images.example.com", "Image", apiextensionsv1.NamespaceScoped),
	}
	for _, kind := range []string{"DemoCluster", "DemoClusterTemplate", "DemoMachine", "DemoMachineTemplate", "DemoMachinePool", "DemoPort"} {
		crds = append(crds, define(group, kind, apiextensionsv1.NamespaceScoped, label))
	}
	return crds
}
