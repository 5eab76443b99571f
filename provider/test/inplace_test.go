package test

import (
	"context"
	"os"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// updatedInPlace: with the update extension a machine of a MachineDeployment gets more CPUs, memory and disk and stays
// the same machine. Its guest shuts down on request and is started once.
func updatedInPlace(ctx context.Context, g *WithT, w *world) {
	c := w.newCluster(ctx, g, "inplace")
	extension := c.extend(ctx, g)
	c.make(ctx, g, 1)
	d := &deployment{cluster: c, key: client.ObjectKey{Namespace: c.key.Namespace, Name: c.key.Name + "-md-0"}}
	before := d.available(ctx, g, 1)[0]
	g.Expect(before.report.Size).To(And(HaveField("CPUs", 1), HaveField("RootDiskBytes", BeEquivalentTo(1<<30)), HaveField("MemoryBytes", BeNumerically("<", 256<<20))))

	patch(ctx, g, c.client, d.key, &clusterv1.MachineDeployment{}, func(o *clusterv1.MachineDeployment) {
		o.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
		o.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(0))
		o.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	})
	d.change(ctx, g, "larger", func(spec *infrav1.LibvirtMachineSpec) {
		spec.CPUs, spec.Memory, spec.RootDisk.Size = 2, resource.MustParse("384Mi"), resource.MustParse("2Gi")
	})
	d.isUpdated(ctx, g, before, 2<<30)
	starts := c.starts(before)
	g.Expect(starts).To(HaveLen(2), "it was restarted once")
	g.Expect(starts[1].Size).To(And(HaveField("CPUs", 2), HaveField("RootDiskBytes", BeEquivalentTo(2<<30)),
		HaveField("MemoryBytes", And(BeNumerically(">", 256<<20), BeNumerically("<", 384<<20)))))
	g.Expect(starts[1].MetaData).To(BeZero(), "it has no seed any more")
	g.Expect(starts[1].MACAddress).To(Equal(before.report.MACAddress))
	g.Expect(c.hosts[before.infra.Spec.HostName].Ends(c.domainName(g, before))).To(Equal([]string{"shutdown"}), "it shuts down by itself and isn't powered off")

	d.change(ctx, g, "larger-disk", func(spec *infrav1.LibvirtMachineSpec) { spec.RootDisk.Size = resource.MustParse("3Gi") })
	d.isUpdated(ctx, g, before, 3<<30)
	g.Expect(c.starts(before)).To(HaveLen(2), "a disk grows while the guest runs")
	g.Expect(c.hosts[before.infra.Spec.HostName].Ends(c.domainName(g, before))).To(HaveLen(1))
	d.exactly(ctx, g)
	c.delete(ctx, g)
	g.Expect(c.client.Delete(ctx, extension)).To(Succeed())
}

// change gives the deployment another template with a changed spec.
func (d *deployment) change(ctx context.Context, g *WithT, name string, how func(*infrav1.LibvirtMachineSpec)) {
	patch(ctx, g, d.client, d.key, &clusterv1.MachineDeployment{}, func(o *clusterv1.MachineDeployment) {
		ref := &o.Spec.Template.Spec.InfrastructureRef
		var template infrav1.LibvirtMachineTemplate
		g.Expect(d.client.Get(ctx, client.ObjectKey{Namespace: d.key.Namespace, Name: ref.Name}, &template)).To(Succeed())
		next := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: d.key.Name + "-" + name}, Spec: template.Spec}
		how(&next.Spec.Template.Spec)
		g.Expect(d.client.Create(ctx, next)).To(Succeed())
		ref.Name = next.Name
	})
}

// isUpdated waits until the deployment's only machine has a root disk of that size and no running update, and checks
// that it is the same machine as before.
func (d *deployment) isUpdated(ctx context.Context, g *WithT, before machine, rootDisk int64) {
	eventually(g, func(g Gomega) {
		after := d.availableNow(ctx, g, 1)[0]
		g.Expect(after.infra.Spec.CPUs).To(BeEquivalentTo(2))
		g.Expect(after.infra.Spec.RootDisk.Size.Value()).To(Equal(rootDisk))
		g.Expect(after.machine.UID).To(Equal(before.machine.UID))
		g.Expect(after.infra.UID).To(Equal(before.infra.UID))
		g.Expect(placesOf([]machine{after})).To(Equal(placesOf([]machine{before})))
		g.Expect(after.infra.Status.Conditions).To(ContainElements(isCondition(infrav1.UpdatedInPlaceCondition, "True"), isCondition(infrav1.ReadyCondition, "True")))
		g.Expect(after.infra.Annotations).ToNot(Or(HaveKey(infrav1.UpdateStartedAnnotation), HaveKey(clusterv1.UpdateInProgressAnnotation)))
		g.Expect(after.machine.Status.Conditions).To(ContainElement(isCondition(clusterv1.MachineUpdatingCondition, "False")))
		g.Expect(d.starts(before)).To(HaveLen(2))
		capacity, err := d.hosts[before.infra.Spec.HostName].Capacity(before.volume("root"))
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(capacity).To(BeEquivalentTo(rootDisk))
	})
}

// extend enables updates in place for the cluster with the manifest that users apply.
func (c *cluster) extend(ctx context.Context, g *WithT) *runtimev1.ExtensionConfig {
	content, err := os.ReadFile("../config/inplaceupdates/extensionconfig.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	config := &runtimev1.ExtensionConfig{}
	g.Expect(yaml.UnmarshalStrict(content, config)).To(Succeed())
	config.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.key.Namespace}}
	g.Expect(c.client.Create(ctx, config)).To(Succeed())
	eventually(g, func(g Gomega) {
		g.Expect(c.client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		g.Expect(config.Status.Conditions).To(ContainElement(isCondition(runtimev1.ExtensionConfigDiscoveredCondition, "True")))
		g.Expect(config.Status.Handlers).To(HaveLen(3))
	})
	return config
}

// starts returns the reports of a machine's guest, one for each start.
func (c *cluster) starts(m machine) (starts []report.Report) {
	reports, _ := c.hosts[m.infra.Spec.HostName].Reports()
	for _, one := range reports {
		if one.SystemUUID == m.uuid() {
			starts = append(starts, one)
		}
	}
	return starts
}

// domainName returns the name of a machine's domain.
func (c *cluster) domainName(g Gomega, m machine) string {
	for _, domain := range c.domains(g, m.infra.Spec.HostName) {
		if domain.UUID == m.uuid() {
			return domain.Name
		}
	}
	return ""
}
