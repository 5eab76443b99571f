package webhooks

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/feature"
)

func TestLibvirtMachinePool(t *testing.T) {
	pool := &infrav1.LibvirtMachinePool{ObjectMeta: named("pool"), Spec: infrav1.LibvirtMachinePoolSpec{
		Template: templateResource(),
		Strategy: infrav1.MachinePoolStrategy{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
	}}
	strategy := func(surge, unavailable intstr.IntOrString) func(*infrav1.LibvirtMachinePool) {
		return func(p *infrav1.LibvirtMachinePool) {
			p.Spec.Strategy = infrav1.MachinePoolStrategy{MaxSurge: &surge, MaxUnavailable: &unavailable}
		}
	}

	testCreations(t, libvirtMachinePoolValidator(), pool, []change[*infrav1.LibvirtMachinePool]{
		{name: "unchanged", change: func(*infrav1.LibvirtMachinePool) {}},
		{name: "no strategy", change: func(p *infrav1.LibvirtMachinePool) { p.Spec.Strategy = infrav1.MachinePoolStrategy{} }},
		{name: "percentages", change: strategy(intstr.FromString("25%"), intstr.FromString("10%"))},
		{name: "no machine may be replaced", change: strategy(intstr.FromInt32(0), intstr.FromInt32(0)),
			refused: "spec.strategy: Invalid value: \"maxSurge and maxUnavailable are 0\": no machine could be replaced: raise one of them"},
		{name: "no machine may be replaced, in percent", change: strategy(intstr.FromString("0%"), intstr.FromInt32(0)), refused: "no machine could be replaced"},
		{name: "negative", change: strategy(intstr.FromInt32(-1), intstr.FromInt32(1)), refused: "spec.strategy.maxSurge: Invalid value: \"-1\": must not be negative"},
		{name: "not a number", change: strategy(intstr.FromInt32(1), intstr.FromString("some")),
			refused: "spec.strategy.maxUnavailable: Invalid value: \"some\": must be a number such as 1, or a percentage such as 25%"},
		{name: "hostName in the template", change: func(p *infrav1.LibvirtMachinePool) { p.Spec.Template.Spec.HostName = "host-1" },
			refused: "spec.template.spec.hostName: Forbidden"},
		{name: "a provider ID twice", change: func(p *infrav1.LibvirtMachinePool) {
			p.Spec.ProviderIDList = []string{someProviderID, otherProviderID, someProviderID}
		}, refused: "spec.providerIDList[2]: Duplicate value"},
	})

	pool.Spec.ProviderID = "libvirt:///default/pool"
	testChanges(t, libvirtMachinePoolValidator(), pool, []change[*infrav1.LibvirtMachinePool]{
		{name: "a change of the template", change: func(p *infrav1.LibvirtMachinePool) { p.Spec.Template.Spec.CPUs = 8 }},
		{name: "providerIDList", change: func(p *infrav1.LibvirtMachinePool) { p.Spec.ProviderIDList = []string{someProviderID} }},
		{name: "providerID", change: func(p *infrav1.LibvirtMachinePool) { p.Spec.ProviderID = "x" }, refused: "spec.providerID: Forbidden: is immutable once set"},
	})
}

func TestMachinePoolsCanBeTurnedOff(t *testing.T) {
	g := NewWithT(t)
	g.Expect(feature.MutableGates.Set("MachinePool=false")).To(Succeed())
	t.Cleanup(func() { g.Expect(feature.MutableGates.Set("MachinePool=true")).To(Succeed()) })
	const message = "start the manager with --feature-gates=MachinePool=true"

	pool := &infrav1.LibvirtMachinePool{ObjectMeta: named("pool"), Spec: infrav1.LibvirtMachinePoolSpec{Template: templateResource()}}
	_, err := libvirtMachinePoolValidator().ValidateCreate(requestContext(false), pool)
	g.Expect(err).To(MatchError(ContainSubstring(message)))

	template := &infrav1.LibvirtMachinePoolTemplate{ObjectMeta: named("template")}
	template.Spec.Template.Spec = pool.Spec
	_, err = libvirtMachinePoolTemplateValidator().ValidateCreate(requestContext(false), template)
	g.Expect(err).To(MatchError(ContainSubstring(message)))

	changed := pool.DeepCopy()
	changed.Spec.ProviderIDList = []string{someProviderID}
	_, err = libvirtMachinePoolValidator().ValidateUpdate(requestContext(false), pool, changed)
	g.Expect(err).ToNot(HaveOccurred())
}
