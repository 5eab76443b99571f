package world

import (
	"context"
	"fmt"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubeadmCRDs returns the folders with the CRDs of Cluster API's kubeadm providers. ClusterClasses refer to these
// kinds; their controllers don't run here.
func kubeadmCRDs(clusterAPI string) []string {
	return []string{filepath.Join(clusterAPI, "bootstrap/kubeadm/config/crd/bases"), filepath.Join(clusterAPI, "controlplane/kubeadm/config/crd/bases")}
}

// labelKubeadmCRDs sets the contract label on these CRDs, as the kustomization of the kubeadm providers does.
func (w *World) labelKubeadmCRDs() error {
	for _, name := range []string{"kubeadmconfigs.bootstrap", "kubeadmconfigtemplates.bootstrap", "kubeadmcontrolplanes.controlplane", "kubeadmcontrolplanetemplates.controlplane"} {
		crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name + ".cluster.x-k8s.io"}}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"cluster.x-k8s.io/v1beta2":"v1beta2"}}}`))
		if err := w.Client.Patch(context.Background(), crd, patch); err != nil {
			return fmt.Errorf("labelling CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}
