package test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const clusterName = "demo"

var (
	clusterKey    = client.ObjectKey{Namespace: "default", Name: clusterName}
	deploymentKey = client.ObjectKey{Namespace: "default", Name: clusterName + "-md-0"}
	workers       = client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deploymentKey.Name}
)

// TestCluster is the life of a cluster from the provider's template, from its hosts to its end.
func TestCluster(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	w := newWorld(ctx, t, g)

	steps := []struct {
		name string
		run  func(context.Context, *WithT, *world)
	}{
		{"hosts are ready", hostsReady},
		{"a cluster is made", clusterMade},
		{"workers are spread over hosts and failure domains", workersSpread},
		{"scale up", func(ctx context.Context, g *WithT, w *world) { w.scale(ctx, g, 4) }},
		{"scale down", func(ctx context.Context, g *WithT, w *world) { w.scale(ctx, g, 2) }},
		{"nothing moves while paused", paused},
		{"a new template is rolled out", rolledOut},
		{"libvirtd is killed and started again", daemonKilled},
		{"deletion leaves nothing", deleted},
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { step.run(ctx, NewWithT(t), w) }) {
			t.FailNow()
		}
	}
}

func hostsReady(ctx context.Context, g *WithT, w *world) {
	eventually(g, func(g Gomega) {
		var hosts infrav1.LibvirtHostList
		g.Expect(w.Client.List(ctx, &hosts)).To(Succeed())
		g.Expect(hosts.Items).To(HaveLen(len(w.hosts)))
		for _, host := range hosts.Items {
			g.Expect(host.Status.Conditions).To(ContainElement(And(
				HaveField("Type", infrav1.ReadyCondition), HaveField("Status", BeEquivalentTo("True")))), host.Name)
		}
	})
}

func clusterMade(ctx context.Context, g *WithT, w *world) {
	g.Expect(w.Apply(ctx, w.generate(ctx, g, clusterName, 3))).To(Succeed())
	eventually(g, func(g Gomega) {
		var cluster clusterv1.Cluster
		g.Expect(w.Client.Get(ctx, clusterKey, &cluster)).To(Succeed())
		g.Expect(cluster.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
		g.Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: testbed.EndpointIP(10).String(), Port: 6443}))
		var domains []string
		for _, domain := range cluster.Status.FailureDomains {
			domains = append(domains, domain.Name)
		}
		g.Expect(domains).To(ConsistOf("a", "b"))
	})
	eventually(g, func(g Gomega) {
		g.Expect(w.machines(ctx, g, clusterName, client.MatchingLabels{clusterv1.MachineControlPlaneLabel: ""})).To(HaveLen(1))
	})
}

func workersSpread(ctx context.Context, g *WithT, w *world) {
	machines := w.available(ctx, g, 3)
	var hosts, domains []string
	for _, m := range machines {
		hosts = append(hosts, m.infra.Spec.HostName)
		domains = append(domains, m.machine.Status.FailureDomain)
	}
	g.Expect(hosts).To(ConsistOf("host-a1", "host-a2", "host-b1"))
	g.Expect(domains).To(ConsistOf("a", "a", "b"))
	eventually(g, func(g Gomega) { w.exactly(ctx, g) })
}

// available waits until the MachineDeployment has its machines, each of them whole and available.
func (w *world) available(ctx context.Context, g *WithT, count int) (machines []machine) {
	eventually(g, func(g Gomega) { machines = w.availableNow(ctx, g, count) })
	return machines
}

func (w *world) availableNow(ctx context.Context, g Gomega, count int) []machine {
	var deployment clusterv1.MachineDeployment
	g.Expect(w.Client.Get(ctx, deploymentKey, &deployment)).To(Succeed())
	g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
	g.Expect(deployment.Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(count)))
	g.Expect(deployment.Status.AvailableReplicas).To(HaveValue(BeEquivalentTo(count)))
	g.Expect(deployment.Status.Replicas).To(HaveValue(BeEquivalentTo(count)))
	machines := w.machines(ctx, g, clusterName, workers)
	g.Expect(machines).To(HaveLen(count))
	return machines
}

// exactly: hosts have the domains of the machines that are there, and no others, each once.
func (w *world) exactly(ctx context.Context, g Gomega) {
	var list infrav1.LibvirtMachineList
	g.Expect(w.Client.List(ctx, &list)).To(Succeed())
	want, got := map[string][]string{}, map[string][]string{}
	for _, item := range list.Items {
		want[item.Spec.HostName] = append(want[item.Spec.HostName], item.Spec.ProviderID)
	}
	for name, host := range w.hosts {
		uuids, err := host.Domains()
		g.Expect(err).ToNot(HaveOccurred())
		for _, uuid := range uuids {
			got[name] = append(got[name], "libvirt:///"+uuid)
		}
	}
	for _, sets := range []map[string][]string{want, got} {
		for _, set := range sets {
			slices.Sort(set)
		}
	}
	g.Expect(got).To(Equal(want))
}

// patch changes an object as it is at the moment.
func patch[T client.Object](ctx context.Context, g *WithT, w *world, key client.ObjectKey, object T, change func(T)) {
	g.Expect(w.Client.Get(ctx, key, object)).To(Succeed())
	before := object.DeepCopyObject().(client.Object)
	change(object)
	g.Expect(w.Client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
}

func (w *world) setReplicas(ctx context.Context, g *WithT, count int32) {
	patch(ctx, g, w, deploymentKey, &clusterv1.MachineDeployment{}, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = &count })
}

func (w *world) scale(ctx context.Context, g *WithT, count int32) {
	w.setReplicas(ctx, g, count)
	w.available(ctx, g, int(count))
	eventually(g, func(g Gomega) { w.exactly(ctx, g) })
}

// paused: with the Cluster paused no domain is made for a LibvirtMachine and none is destroyed, and
// all of it goes on when it is resumed.
func paused(ctx context.Context, g *WithT, w *world) {
	setPaused := func(is bool) {
		patch(ctx, g, w, clusterKey, &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = &is })
		eventually(g, func(g Gomega) {
			want := map[bool]string{true: "True", false: "False"}[is]
			var machines infrav1.LibvirtMachineList
			g.Expect(w.Client.List(ctx, &machines)).To(Succeed())
			for _, m := range machines.Items {
				g.Expect(m.Status.Conditions).To(ContainElement(And(
					HaveField("Type", infrav1.PausedCondition), HaveField("Status", BeEquivalentTo(want)))), m.Name)
			}
		})
	}
	setPaused(true)
	doomed := w.machines(ctx, g, clusterName, workers)[0]
	g.Expect(w.Client.Delete(ctx, &doomed.infra)).To(Succeed())
	g.Consistently(func(g Gomega) { g.Expect(w.domains(g, doomed)).To(ConsistOf(doomed.infra.Spec.ProviderID)) }).
		WithTimeout(5 * time.Second).WithPolling(500 * time.Millisecond).Should(Succeed())
	g.Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(&doomed.infra), &infrav1.LibvirtMachine{})).To(Succeed())

	setPaused(false)
	eventually(g, func(g Gomega) {
		g.Expect(w.Client.Get(ctx, client.ObjectKeyFromObject(&doomed.infra), &infrav1.LibvirtMachine{})).To(MatchError(apierrors.IsNotFound, "not found"))
		g.Expect(w.domains(g, doomed)).To(BeEmpty())
	})
	// Its Machine stays without infrastructure: replacing it is the owner's decision, and here the user's.
	g.Expect(client.IgnoreNotFound(w.Client.Delete(ctx, &doomed.machine))).To(Succeed())
	w.available(ctx, g, 2)
}

// domains are the provider IDs of the domains of a machine, on all hosts.
func (w *world) domains(g Gomega, m machine) []string {
	var found []string
	for _, host := range w.hosts {
		uuids, err := host.Domains()
		g.Expect(err).ToNot(HaveOccurred())
		for _, uuid := range uuids {
			if id := "libvirt:///" + uuid; id == m.infra.Spec.ProviderID {
				found = append(found, id)
			}
		}
	}
	return found
}

// rolledOut: a MachineDeployment with another template replaces its machines by such as that wants.
func rolledOut(ctx context.Context, g *WithT, w *world) {
	old := w.available(ctx, g, 2)
	var template infrav1.LibvirtMachineTemplate
	g.Expect(w.Client.Get(ctx, deploymentKey, &template)).To(Succeed())
	next := &infrav1.LibvirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: deploymentKey.Namespace, Name: deploymentKey.Name + "-next"}, Spec: template.Spec}
	next.Spec.Template.Spec.Memory = resource.MustParse("288Mi")
	g.Expect(w.Client.Create(ctx, next)).To(Succeed())
	patch(ctx, g, w, deploymentKey, &clusterv1.MachineDeployment{}, func(d *clusterv1.MachineDeployment) {
		d.Spec.Template.Spec.InfrastructureRef.Name = next.Name
	})
	eventually(g, func(g Gomega) {
		for _, m := range w.availableNow(ctx, g, 2) {
			g.Expect(m.infra.Spec.Memory.String()).To(Equal("288Mi"))
		}
	})
	for _, m := range old {
		eventually(g, func(g Gomega) { g.Expect(w.domains(g, m)).To(BeEmpty()) })
	}
	eventually(g, func(g Gomega) { w.exactly(ctx, g) })
}

// daemonKilled: libvirtd of each host is killed with signal 9 and started again, which the guests
// don't notice, and the provider finds its way back.
func daemonKilled(ctx context.Context, g *WithT, w *world) {
	before := w.available(ctx, g, 2)
	for _, host := range w.hosts {
		host.KillDaemon()
	}
	eventually(g, func(g Gomega) {
		var hosts infrav1.LibvirtHostList
		g.Expect(w.Client.List(ctx, &hosts)).To(Succeed())
		for _, host := range hosts.Items {
			g.Expect(host.Status.Conditions).To(ContainElement(And(
				HaveField("Type", infrav1.ReachableCondition), HaveField("Status", Not(BeEquivalentTo("True"))))), host.Name)
		}
	})
	for _, host := range w.hosts {
		g.Expect(host.StartDaemon(ctx)).To(Succeed())
	}
	hostsReady(ctx, g, w)
	w.scale(ctx, g, 3)
	var after []string
	for _, m := range w.machines(ctx, g, clusterName, workers) {
		after = append(after, m.infra.Spec.ProviderID)
	}
	for _, m := range before {
		g.Expect(after).To(ContainElement(m.infra.Spec.ProviderID))
	}
}

// deleted: a deleted Cluster takes everything along, and hosts have nothing left but the images that
// they keep for the next machine.
func deleted(ctx context.Context, g *WithT, w *world) {
	g.Expect(w.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: clusterKey.Name}})).To(Succeed())
	eventually(g, func(g Gomega) {
		g.Expect(w.Client.Get(ctx, clusterKey, &clusterv1.Cluster{})).To(MatchError(apierrors.IsNotFound, "not found"))
		var machines infrav1.LibvirtMachineList
		g.Expect(w.Client.List(ctx, &machines)).To(Succeed())
		g.Expect(machines.Items).To(BeEmpty())
		for name, host := range w.hosts {
			left, err := host.Left()
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(left).To(Or(BeEmpty(), HaveEach(HavePrefix("volume caplv-image-"))), name)
		}
	})
}

func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func itoa(number int) string { return strconv.Itoa(number) }
