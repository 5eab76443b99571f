package api

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// templateStatus returns the status that an autoscaler reads, by the field names of the contract and not by the
// provider's types.
func templateStatus(w *world, g Gomega, t *testing.T, name string) any {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(infrav1.GroupVersion.WithKind("LibvirtMachineTemplate"))
	g.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, object)).To(Succeed())
	return object.Object["status"]
}

func TestTemplatesTellAutoscalers(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	for spec, want := range map[string]string{
		minimalMachine: `{capacity: {cpu: "2", memory: 4Gi}, nodeInfo: {architecture: amd64, operatingSystem: linux}}`,
		`{image: {volume: v}, cpus: 64, memory: 1536Mi, cpu: {architecture: arm64},
			hostDevices: [{name: gpu, vendorID: 10de, productID: "20b5"}]}`: `{capacity: {cpu: "64", memory: 1536Mi}, nodeInfo: {architecture: arm64, operatingSystem: linux}}`,
	} {
		g := NewWithT(t)
		object := newObject("LibvirtMachineTemplate", unique("capacity"), `{template: {spec: `+spec+`}}`)
		g.Expect(w.client.Create(t.Context(), object)).To(Succeed())
		g.Eventually(func(g Gomega) {
			g.Expect(templateStatus(w, g, t, object.GetName())).To(Equal(parse(want)))
		}).WithTimeout(soon).Should(Succeed())

		// The written values can be parsed as quantities.
		template := &infrav1.LibvirtMachineTemplate{}
		g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(object), template)).To(Succeed())
		g.Expect(template.Status.Capacity).To(HaveLen(2))
		g.Expect(template.Status.Capacity[corev1.ResourceMemory].Equal(template.Spec.Template.Spec.Memory)).To(BeTrue())
		g.Expect(template.Status.Capacity[corev1.ResourceCPU].Equal(*resource.NewQuantity(int64(template.Spec.Template.Spec.CPUs), resource.DecimalSI))).To(BeTrue())
	}
}

func TestPausedTemplatesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w, g := theWorld(t), NewWithT(t)
	owner := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: unique("paused")},
		Spec: clusterv1.ClusterSpec{Paused: ptr.To(true), InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "none"}}}
	g.Expect(w.client.Create(t.Context(), owner)).To(Succeed())

	create := func(change func(*infrav1.LibvirtMachineTemplate)) *infrav1.LibvirtMachineTemplate {
		template := &infrav1.LibvirtMachineTemplate{}
		object := minimalObjects(unique("template"))["LibvirtMachineTemplate"]
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, template)).To(Succeed())
		change(template)
		g.Expect(w.client.Create(t.Context(), template)).To(Succeed())
		return template
	}
	status := func(template *infrav1.LibvirtMachineTemplate) infrav1.LibvirtMachineTemplateStatus {
		g.Expect(w.client.Get(t.Context(), client.ObjectKeyFromObject(template), template)).To(Succeed())
		return template.Status
	}
	annotated := create(func(template *infrav1.LibvirtMachineTemplate) {
		template.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	owned := create(func(template *infrav1.LibvirtMachineTemplate) {
		template.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: owner.Name, UID: owner.UID}}
	})
	last := create(func(*infrav1.LibvirtMachineTemplate) {})
	g.Eventually(func() infrav1.LibvirtMachineTemplateStatus { return status(last) }).WithTimeout(soon).ShouldNot(BeZero())
	g.Expect(status(annotated)).To(BeZero())
	g.Expect(status(owned)).To(BeZero())

	before := client.MergeFrom(owner.DeepCopy())
	owner.Spec.Paused = nil
	g.Expect(w.client.Patch(t.Context(), owner, before)).To(Succeed())
	before = client.MergeFrom(annotated.DeepCopy())
	annotated.Annotations = nil
	g.Expect(w.client.Patch(t.Context(), annotated, before)).To(Succeed())
	g.Eventually(func() bool {
		return len(status(owned).Capacity) == 2 && len(status(annotated).Capacity) == 2
	}).WithTimeout(soon).Should(BeTrue())
}
