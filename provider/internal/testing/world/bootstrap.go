package world

import (
	"context"
	"time"

	"github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/test/builder"
)

// bootstrapCRDs returns the CRDs of the bootstrap provider that Cluster API has for tests.
func bootstrapCRDs() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{
		builder.GenericBootstrapConfigCRD.DeepCopy(), builder.GenericBootstrapConfigTemplateCRD.DeepCopy(),
	}
}

// Bootstrapped returns a change that gives the machines of a MachineDeployment a bootstrap provider, with the same data
// for each. Cluster API doesn't update machines in place without a bootstrap provider.
func (s *Scene) Bootstrapped() func(*clusterv1.MachineDeployment) {
	s.t.Helper()
	object := func(kind string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(builder.BootstrapGroupVersion.WithKind(kind))
		object.SetNamespace(s.Namespace)
		return object
	}
	template := object(builder.GenericBootstrapConfigTemplateKind)
	template.SetName("bootstrap")
	s.Expect(unstructured.SetNestedMap(template.Object, map[string]any{}, "spec", "template", "spec")).To(gomega.Succeed())
	s.Create(s.BootstrapData("bootstrap"), template)
	go s.provideData(s.t.Context(), object)
	return func(d *clusterv1.MachineDeployment) {
		d.Spec.Template.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: builder.BootstrapGroupVersion.Group, Kind: template.GetKind(), Name: template.GetName()}}
	}
}

// provideData is the bootstrap provider: it writes the name of the data Secret into each configuration.
func (s *Scene) provideData(ctx context.Context, object func(kind string) *unstructured.Unstructured) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(builder.BootstrapGroupVersion.WithKind(builder.GenericBootstrapConfigKind + "List"))
	for ; ctx.Err() == nil; time.Sleep(4 * poll) {
		if err := s.Client.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
			if ctx.Err() == nil {
				ctrl.Log.Error(err, "Listing bootstrap configurations")
			}
			continue
		}
		for i := range list.Items {
			if _, found, _ := unstructured.NestedString(list.Items[i].Object, "status", "dataSecretName"); found {
				continue
			}
			config := object(builder.GenericBootstrapConfigKind)
			config.SetName(list.Items[i].GetName())
			said := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"dataSecretName":"bootstrap","initialization":{"dataSecretCreated":true}}}`))
			if err := s.Client.Status().Patch(ctx, config, said); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				ctrl.Log.Error(err, "Writing the name of the bootstrap data")
			}
		}
	}
}
