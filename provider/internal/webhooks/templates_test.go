package webhooks

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func TestLibvirtMachineTemplate(t *testing.T) {
	template := &infrav1.LibvirtMachineTemplate{ObjectMeta: named("template"),
		Spec: infrav1.LibvirtMachineTemplateSpec{Template: templateResource()}}

	testCreations(t, libvirtMachineTemplateValidator(), template, []change[*infrav1.LibvirtMachineTemplate]{
		{name: "unchanged", change: func(*infrav1.LibvirtMachineTemplate) {}},
		{name: "providerID", change: func(m *infrav1.LibvirtMachineTemplate) { m.Spec.Template.Spec.ProviderID = someProviderID },
			refused: "spec.template.spec.providerID: Forbidden: belongs to one machine"},
		{name: "hostName", change: func(m *infrav1.LibvirtMachineTemplate) { m.Spec.Template.Spec.HostName = "host-1" },
			refused: "spec.template.spec.hostName: Forbidden: belongs to one machine"},
		{name: "macAddress", change: func(m *infrav1.LibvirtMachineTemplate) {
			m.Spec.Template.Spec.Interfaces[0].MACAddress = "52:54:00:00:00:01"
		}, refused: "spec.template.spec.interfaces[0].macAddress: Forbidden: belongs to one machine"},
		{name: "an invalid label", change: func(m *infrav1.LibvirtMachineTemplate) {
			m.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "not/a/value"}
		}, refused: "spec.template.metadata.labels"},
	})

	testChanges(t, libvirtMachineTemplateValidator(), template, []change[*infrav1.LibvirtMachineTemplate]{
		{name: "metadata of the machines", change: func(m *infrav1.LibvirtMachineTemplate) {
			m.Spec.Template.ObjectMeta = clusterv1.ObjectMeta{Labels: map[string]string{"a": "b"}}
		}},
		{name: "cpus", change: func(m *infrav1.LibvirtMachineTemplate) { m.Spec.Template.Spec.CPUs = 8 },
			refused: "spec.template.spec: Forbidden: is immutable: create a new template with the change, and refer to that one"},
	})
}

func TestLibvirtClusterTemplate(t *testing.T) {
	template := &infrav1.LibvirtClusterTemplate{ObjectMeta: named("template")}

	testCreations(t, libvirtClusterTemplateValidator(), template, []change[*infrav1.LibvirtClusterTemplate]{
		{name: "unchanged", change: func(*infrav1.LibvirtClusterTemplate) {}},
		{name: "an endpoint with a scheme", change: func(c *infrav1.LibvirtClusterTemplate) {
			c.Spec.Template.Spec.ControlPlaneEndpoint.Host = "https://192.0.2.10"
		}, refused: "spec.template.spec.controlPlaneEndpoint.host: Invalid value"},
	})
	testChanges(t, libvirtClusterTemplateValidator(), template, []change[*infrav1.LibvirtClusterTemplate]{
		{name: "the endpoint", change: func(c *infrav1.LibvirtClusterTemplate) { c.Spec.Template.Spec.ControlPlaneEndpoint.Host = "192.0.2.10" },
			refused: "spec.template.spec: Forbidden: is immutable"},
	})
}

func TestLibvirtMachinePoolTemplate(t *testing.T) {
	template := &infrav1.LibvirtMachinePoolTemplate{ObjectMeta: named("template")}
	template.Spec.Template.Spec.Template = templateResource()

	testCreations(t, libvirtMachinePoolTemplateValidator(), template, []change[*infrav1.LibvirtMachinePoolTemplate]{
		{name: "unchanged", change: func(*infrav1.LibvirtMachinePoolTemplate) {}},
		{name: "providerID", change: func(p *infrav1.LibvirtMachinePoolTemplate) { p.Spec.Template.Spec.ProviderID = "libvirt:///pool" },
			refused: "spec.template.spec.providerID: Forbidden: belongs to one pool"},
		{name: "providerIDList", change: func(p *infrav1.LibvirtMachinePoolTemplate) {
			p.Spec.Template.Spec.ProviderIDList = []string{someProviderID}
		}, refused: "spec.template.spec.providerIDList: Forbidden: belongs to one pool"},
		{name: "hostName of the machines", change: func(p *infrav1.LibvirtMachinePoolTemplate) {
			p.Spec.Template.Spec.Template.Spec.HostName = "host-1"
		}, refused: "spec.template.spec.template.spec.hostName: Forbidden"},
	})
	testChanges(t, libvirtMachinePoolTemplateValidator(), template, []change[*infrav1.LibvirtMachinePoolTemplate]{
		{name: "cpus", change: func(p *infrav1.LibvirtMachinePoolTemplate) { p.Spec.Template.Spec.Template.Spec.CPUs = 8 },
			refused: "spec.template.spec: Forbidden: is immutable"},
	})
}

func TestTopologyDryRunSkipsImmutability(t *testing.T) {
	machines := &infrav1.LibvirtMachineTemplate{ObjectMeta: named("template"),
		Spec: infrav1.LibvirtMachineTemplateSpec{Template: templateResource()}}
	otherMachines := machines.DeepCopy()
	otherMachines.Spec.Template.Spec.CPUs = 8
	testTopologyDryRun(t, libvirtMachineTemplateValidator(), machines, otherMachines)

	clusters := &infrav1.LibvirtClusterTemplate{ObjectMeta: named("template")}
	otherClusters := clusters.DeepCopy()
	otherClusters.Spec.Template.Spec.ControlPlaneEndpoint.Host = "192.0.2.10"
	testTopologyDryRun(t, libvirtClusterTemplateValidator(), clusters, otherClusters)

	pools := &infrav1.LibvirtMachinePoolTemplate{ObjectMeta: named("template")}
	pools.Spec.Template.Spec.Template = templateResource()
	otherPools := pools.DeepCopy()
	otherPools.Spec.Template.Spec.Template.Spec.CPUs = 8
	testTopologyDryRun(t, libvirtMachinePoolTemplateValidator(), pools, otherPools)
}

func testTopologyDryRun[T client.Object](t *testing.T, v validator[T], before, after T) {
	t.Helper()
	annotated := after.DeepCopyObject().(T)
	annotated.SetAnnotations(map[string]string{clusterv1.TopologyDryRunAnnotation: ""})

	for _, test := range []struct {
		name    string
		ctx     context.Context
		after   T
		refused bool
	}{
		{"dry run of the topology controller", requestContext(true), annotated, false},
		{"dry run of another writer", requestContext(true), after, true},
		{"annotation without dry run", requestContext(false), annotated, true},
		{"neither", requestContext(false), after, true},
	} {
		t.Run(kindOf[T]().Name()+" "+test.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := v.ValidateUpdate(test.ctx, before, test.after)
			if test.refused {
				g.Expect(err).To(MatchError(ContainSubstring("is immutable")))
			} else {
				g.Expect(err).ToNot(HaveOccurred())
			}
		})
	}
}
