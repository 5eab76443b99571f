package test

import (
	"context"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// secondStarted starts another management cluster with the provider, for what is moved.
func secondStarted(ctx context.Context, g *WithT, w *world) {
	bed, err := testbed.Start(ctx, testbed.Options{Scheme: newScheme(g), Beside: w.Testbed})
	g.Expect(err).ToNot(HaveOccurred())
	w.second = bed
	g.Expect(bed.Init(ctx, "CAPLV_COLLECT_ORPHANS=false")).To(Succeed())
	g.Expect(bed.JoinWorkloads(ctx, w.player)).To(Succeed())
}

// moved: clusterctl move takes a cluster to another management cluster with its hosts and their
// credentials, and with the addresses that were claimed. Nothing happens to what runs, and all of it is
// as it was there.
func moved(ctx context.Context, g *WithT, w *world) {
	before, claims := w.demo.machines(ctx, g, nil), w.demo.claims(ctx, g)
	g.Expect(claims).To(HaveLen(2))
	_, err := w.Clusterctl(ctx, "move", "--namespace="+w.demo.key.Namespace, "--to-kubeconfig="+w.second.Kubeconfig)
	g.Expect(err).ToNot(HaveOccurred())

	var machines clusterv1.MachineList
	g.Expect(w.Client.List(ctx, &machines, client.InNamespace(w.demo.key.Namespace))).To(Succeed())
	g.Expect(machines.Items).To(BeEmpty())
	g.Expect(w.Client.Get(ctx, w.demo.key, &clusterv1.Cluster{})).To(MatchError(apierrors.IsNotFound, "not found"))
	var left ipamv1.IPAddressList
	g.Expect(w.Client.List(ctx, &left, client.InNamespace(w.demo.key.Namespace))).To(Succeed())
	g.Expect(left.Items).To(BeEmpty())
	w.demo.client = w.second.Client
	hostsMoved(ctx, g, w)

	// Each is whole again, with its provider ID, on its host, with a guest that has started once.
	eventually(g, func(g Gomega) {
		after := w.demo.machines(ctx, g, nil)
		g.Expect(placesOf(after)).To(Equal(placesOf(before)))
		for _, m := range after {
			g.Expect(m.infra.Status.Conditions).To(ContainElement(isCondition(infrav1.ReadyCondition, "True")), m.machine.Name)
			// A control plane here has no pods, which those of kubeadm are judged by.
			if _, is := m.machine.Labels[clusterv1.MachineControlPlaneLabel]; !is {
				g.Expect(m.machine.Status.Conditions).To(ContainElement(isCondition(clusterv1.MachineReadyCondition, "True")), m.machine.Name)
			}
		}
		w.demo.exactly(ctx, g)
		g.Expect(w.demo.claims(ctx, g)).To(Equal(claims))
		w.demoClaimed(ctx, g)
	})
}

// hostsMoved: the hosts and their credentials are in the second management cluster, which finds the
// hosts ready.
func hostsMoved(ctx context.Context, g *WithT, w *world) {
	w.hostsReadyIn(ctx, g, w.second.Client)
	var identity infrav1.LibvirtClusterIdentity
	g.Expect(w.second.Client.Get(ctx, client.ObjectKey{Name: testbed.Identity}, &identity)).To(Succeed())
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: identity.Spec.SecretRef.Namespace, Name: identity.Spec.SecretRef.Name}
	g.Expect(w.second.Client.Get(ctx, key, &secret)).To(Succeed())
	for name, content := range w.registered.Credentials() {
		// Not compared by a matcher, which would print keys.
		g.Expect(string(secret.Data[name]) == string(content)).To(BeTrue(), "%s of the Secret %s", name, key)
	}
}

// placesOf are where machines are, by their names.
func placesOf(machines []machine) map[string][]string {
	places := map[string][]string{}
	for _, m := range machines {
		places[m.machine.Name] = []string{m.infra.Spec.HostName, m.infra.Spec.ProviderID, m.report.Address}
	}
	return places
}
