package test

import (
	"context"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// secondStarted starts another management cluster with the provider, as the target of the move.
func secondStarted(ctx context.Context, g *WithT, w *world) {
	bed, err := testbed.Start(ctx, testbed.Options{Scheme: newScheme(g), NetworkOf: w.Testbed})
	g.Expect(err).ToNot(HaveOccurred())
	w.second = bed
	g.Expect(bed.Init(ctx, "CAPLV_COLLECT_ORPHANS=false")).To(Succeed())
	g.Expect(bed.JoinWorkloads(ctx, w.player)).To(Succeed())
}

// moved: clusterctl move moves a cluster to another management cluster with its hosts and their credentials, and with
// its claimed addresses. It waits for an image that is being transferred to a host. Running machines aren't changed,
// and all objects are the same afterwards. The machine of the image starts in the target.
func moved(ctx context.Context, g *WithT, w *world) {
	before, claims := w.demo.machines(ctx, g, nil), w.demo.claims(ctx, g)
	g.Expect(claims).To(HaveLen(2))
	const late = "late"
	hurry := w.transferring(ctx, g, late)
	move := func() error {
		_, err := w.Clusterctl(ctx, "move", "--namespace="+w.demo.key.Namespace, "--to-kubeconfig="+w.second.Kubeconfig)
		return err
	}
	g.Expect(move()).To(MatchError(ContainSubstring(late + " is still provisioning the node")))
	w.pretendNode(ctx, g, late)
	ended := make(chan error, 1)
	go func() { ended <- move() }()
	w.waitsToMove(ctx, g, late, ended)
	hurry()
	g.Expect(<-ended).To(Succeed())

	var machines clusterv1.MachineList
	g.Expect(w.Client.List(ctx, &machines, client.InNamespace(w.demo.key.Namespace))).To(Succeed())
	g.Expect(machines.Items).To(BeEmpty())
	g.Expect(w.Client.Get(ctx, w.demo.key, &clusterv1.Cluster{})).To(MatchError(apierrors.IsNotFound, "not found"))
	var left ipamv1.IPAddressList
	g.Expect(w.Client.List(ctx, &left, client.InNamespace(w.demo.key.Namespace))).To(Succeed())
	g.Expect(left.Items).To(BeEmpty())
	w.demo.client = w.second.Client
	hostsMoved(ctx, g, w)

	// Each machine is complete again, with its provider ID, on its host, with a guest that has started once.
	eventually(g, func(g Gomega) {
		after := w.demo.machines(ctx, g, nil)
		g.Expect(names(after)).To(ConsistOf(append(names(before), late)))
		places := placesOf(after)
		delete(places, late)
		g.Expect(places).To(Equal(placesOf(before)))
		for _, m := range after {
			g.Expect(m.infra.Status.Conditions).To(ContainElement(isCondition(infrav1.ReadyCondition, "True")), m.machine.Name)
			// A simulated control plane has no pods, which kubeadm's conditions need.
			if _, is := m.machine.Labels[clusterv1.MachineControlPlaneLabel]; !is {
				g.Expect(m.machine.Status.Conditions).To(ContainElement(isCondition(clusterv1.MachineReadyCondition, "True")), m.machine.Name)
			}
		}
		w.demo.exactly(ctx, g)
		g.Expect(w.demo.claims(ctx, g)).To(Equal(claims))
		w.demoClaimed(ctx, g)
	})
}

// transferring creates a machine of demo whose image is transferred slowly until hurry is called.
func (w *world) transferring(ctx context.Context, g *WithT, name string) (hurry func()) {
	url, sum, hurry, err := w.SlowImage()
	g.Expect(err).ToNot(HaveOccurred())
	w.demo.createMachine(ctx, g, name, func(spec *infrav1.LibvirtMachineSpec) { spec.Image.URL, spec.Image.Checksum = url, sum })
	eventually(g, func(g Gomega) {
		var infra infrav1.LibvirtMachine
		g.Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: w.demo.key.Namespace, Name: name}, &infra)).To(Succeed())
		g.Expect(infra.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
	})
	return hurry
}

// pretendNode sets the node of a machine, without which clusterctl doesn't start a move. The remaining objects for
// which it would wait are load balancers, which have no Machine.
func (w *world) pretendNode(ctx context.Context, g *WithT, name string) {
	eventually(g, func(g Gomega) {
		var object clusterv1.Machine
		g.Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: w.demo.key.Namespace, Name: name}, &object)).To(Succeed())
		before := object.DeepCopy()
		object.Status.NodeRef.Name = name
		g.Expect(w.Client.Status().Patch(ctx, &object, client.MergeFrom(before))).To(Succeed())
	})
}

// waitsToMove checks that clusterctl has paused demo, the first step of a move, and doesn't continue while a machine
// blocks it. ended receives the result of a move that ends, which it must not.
func (w *world) waitsToMove(ctx context.Context, g *WithT, name string, ended <-chan error) {
	goesOn := func() {
		select {
		case err := <-ended:
			StopTrying("clusterctl doesn't wait").Wrap(err).Now()
		default:
		}
	}
	eventually(g, func(g Gomega) {
		goesOn()
		var object clusterv1.Cluster
		g.Expect(w.Client.Get(ctx, w.demo.key, &object)).To(Succeed())
		g.Expect(object.Spec.Paused).To(HaveValue(BeTrue()))
	})
	// Longer than clusterctl's interval of checking.
	g.Consistently(func(g Gomega) {
		goesOn()
		var infra infrav1.LibvirtMachine
		g.Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: w.demo.key.Namespace, Name: name}, &infra)).To(Succeed())
		g.Expect(infra.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
		g.Expect(w.second.Client.Get(ctx, w.demo.key, &clusterv1.Cluster{})).To(MatchError(apierrors.IsNotFound, "not found"))
	}).WithTimeout(8 * time.Second).WithPolling(time.Second).Should(Succeed())
}

// hostsMoved checks that the hosts and their credentials are in the second management cluster, and that the hosts are
// Ready there.
func hostsMoved(ctx context.Context, g *WithT, w *world) {
	w.hostsReadyIn(ctx, g, w.second.Client)
	var identity infrav1.LibvirtClusterIdentity
	g.Expect(w.second.Client.Get(ctx, client.ObjectKey{Name: testbed.Identity}, &identity)).To(Succeed())
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: identity.Spec.SecretRef.Namespace, Name: identity.Spec.SecretRef.Name}
	g.Expect(w.second.Client.Get(ctx, key, &secret)).To(Succeed())
	for name, content := range w.registered.Credentials() {
		// A matcher would print keys.
		g.Expect(string(secret.Data[name]) == string(content)).To(BeTrue(), "%s of the Secret %s", name, key)
	}
}

// placesOf returns the hosts and provider IDs of machines, by their names.
func placesOf(machines []machine) map[string][]string {
	places := map[string][]string{}
	for _, m := range machines {
		places[m.machine.Name] = []string{m.infra.Spec.HostName, m.infra.Spec.ProviderID, m.report.Address}
	}
	return places
}
