package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// installNetwork has Cluster API install the network of pods in all clusters of a namespace.
func installNetwork(proxy framework.ClusterProxy, namespace string) {
	root, err := pinned.FindRoot()
	Expect(err).ToNot(HaveOccurred())
	manifest, err := os.ReadFile(filepath.Join(root, "hack", "nodeimage", "flannel.yaml"))
	Expect(err).ToNot(HaveOccurred())
	const name = "flannel"
	ctx, c := context.Background(), proxy.GetClient()
	Expect(c.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"flannel.yaml": string(manifest)},
	})).To(Succeed())
	Expect(c.Create(ctx, &addonsv1.ClusterResourceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: addonsv1.ClusterResourceSetSpec{
			// Every cluster: none has the label.
			ClusterSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "no-network", Operator: metav1.LabelSelectorOpDoesNotExist}}},
			Resources:       []addonsv1.ResourceRef{{Kind: string(addonsv1.ConfigMapClusterResourceSetResourceKind), Name: name}},
		},
	})).To(Succeed())
}
