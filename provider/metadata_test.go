package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// TestMetadataMatchesTheCRDs checks the contract versions in the metadata, for clusterctl, and in the CRDs, for
// controllers.
func TestMetadataMatchesTheCRDs(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("metadata.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	metadata := &clusterctlv1.Metadata{}
	g.Expect(yaml.UnmarshalStrict(content, metadata)).To(Succeed())
	g.Expect(metadata.APIVersion).To(Equal(clusterctlv1.GroupVersion.String()))
	g.Expect(metadata.Kind).To(Equal("Metadata"))
	g.Expect(metadata.ReleaseSeries).To(HaveExactElements(
		clusterctlv1.ReleaseSeries{Major: 0, Minor: 1, Contract: clusterv1.GroupVersion.Version}))

	machines, err := os.ReadFile(filepath.Join("config/crd/bases", "infrastructure.cluster.x-k8s.io_libvirtmachines.yaml"))
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(string(machines)).To(ContainSubstring("cluster.x-k8s.io/" + metadata.ReleaseSeries[0].Contract + ": v1alpha1"))
}
