package metadata_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

func TestContractOf(t *testing.T) {
	// crd returns a CRD in a group, with the labels of these contracts.
	crd := func(group string, contracts ...string) unstructured.Unstructured {
		o := unstructured.Unstructured{Object: map[string]any{"kind": "CustomResourceDefinition", "spec": map[string]any{"group": group}}}
		labels := map[string]string{"cluster.x-k8s.io/provider": "infrastructure-demo"}
		for _, contract := range contracts {
			labels["cluster.x-k8s.io/"+contract] = "v1alpha1"
		}
		o.SetLabels(labels)
		return o
	}
	const group = "infrastructure.cluster.x-k8s.io"
	for name, tc := range map[string]struct {
		objects []unstructured.Unstructured
		want    string
	}{
		"one contract":         {[]unstructured.Unstructured{crd(group, "v1beta1"), crd(group)}, "v1beta1"},
		"the newest of two":    {[]unstructured.Unstructured{crd(group, "v1beta1", "v1beta2")}, "v1beta2"},
		"the one of most CRDs": {[]unstructured.Unstructured{crd(group, "v1beta1", "v1beta2"), crd(group, "v1beta1")}, "v1beta1"},
		"core Cluster API":     {[]unstructured.Unstructured{crd("ipam.cluster.x-k8s.io"), crd("cluster.x-k8s.io")}, "v1beta2"},
		"none":                 {[]unstructured.Unstructured{crd(group), {Object: map[string]any{"kind": "Deployment"}}}, ""},
	} {
		if got := metadata.ContractOf(tc.objects); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
