package test

import (
	"context"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// daemonKilled: libvirtd of each host is killed with signal 9 and started again. The guests continue to run, and the
// provider connects again.
func daemonKilled(ctx context.Context, g *WithT, w *world) {
	d := &deployment{cluster: w.demo, key: client.ObjectKey{Namespace: w.demo.key.Namespace, Name: w.demo.key.Name + "-md-0"}}
	before := d.available(ctx, g, 2)
	for _, host := range w.hosts {
		host.KillDaemon()
	}
	eventually(g, func(g Gomega) {
		for name := range w.hosts {
			var host infrav1.LibvirtHost
			g.Expect(w.Client.Get(ctx, client.ObjectKey{Name: name}, &host)).To(Succeed())
			g.Expect(host.Status.Conditions).To(ContainElement(And(
				HaveField("Type", infrav1.ReachableCondition), HaveField("Status", Not(BeEquivalentTo("True"))))), host.Name)
		}
	})
	for _, host := range w.hosts {
		g.Expect(host.StartDaemon(ctx)).To(Succeed())
	}
	w.hostsReady(ctx, g)
	d.scale(ctx, g, 3)
	var after []string
	for _, m := range d.workers(ctx, g) {
		after = append(after, m.infra.Spec.ProviderID)
	}
	for _, m := range before {
		g.Expect(after).To(ContainElement(m.infra.Spec.ProviderID))
	}
}
