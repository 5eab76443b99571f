// Package test drives the provider as its users do: installed by clusterctl from its own release, with
// Cluster API's managers, libvirt hosts and guests, all of them real and in a sandbox.
package test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/workload"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// patience is how long anything may take. Nothing is measured with it: it is far more than is needed.
const patience = 10 * time.Minute

func TestMain(m *testing.M) {
	prepare := func() error { return errors.Join(testbed.Prepare(), testbed.PrepareGuest()) }
	os.Exit(sandbox.Main(prepare, m.Run))
}

// world is a management cluster with the provider, and three hosts in two failure domains.
type world struct {
	*testbed.Testbed
	hosts  map[string]*libvirthost.Host
	player *workload.Player
}

func newWorld(ctx context.Context, t *testing.T, g *WithT) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	variables, err := testbed.GuestVariables()
	g.Expect(err).ToNot(HaveOccurred())
	bed, err := testbed.Start(ctx, testbed.Options{Scheme: scheme, Variables: variables})
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(bed.Logs())
		}
		g.Expect(bed.Stop()).To(Succeed())
	})
	g.Expect(bed.Init(ctx)).To(Succeed())
	w := &world{Testbed: bed, hosts: map[string]*libvirthost.Host{}}
	g.Expect(bed.ServeGuest(ctx)).To(Succeed())
	hosts, err := bed.StartHosts(ctx, testbed.DefaultHosts)
	g.Expect(err).ToNot(HaveOccurred())
	for i, spec := range testbed.DefaultHosts {
		w.hosts[spec.Name] = hosts[i]
	}
	w.player, err = bed.PlayWorkloads(ctx, hosts)
	g.Expect(err).ToNot(HaveOccurred())
	return w
}

// eventually waits until something that it asks for again and again is so.
func eventually(g *WithT, ask func(g Gomega)) {
	g.Eventually(ask).WithTimeout(patience).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// generate returns the manifest of a cluster from the provider's template.
func (w *world) generate(ctx context.Context, g *WithT, name string, workers int) string {
	manifest, err := w.Clusterctl(ctx, "generate", "cluster", name, "--infrastructure=libvirt", "--target-namespace=default",
		"--kubernetes-version=v1.36.3", "--control-plane-machine-count=1", "--worker-machine-count="+itoa(workers))
	g.Expect(err).ToNot(HaveOccurred())
	return manifest
}

// machine is a machine with all that it is made of.
type machine struct {
	machine clusterv1.Machine
	infra   infrav1.LibvirtMachine
	report  report.Report
}

// machines are those of a cluster that aren't being deleted, by their names. It fails as long as one
// of them isn't as the contract and the template want it.
func (w *world) machines(ctx context.Context, g Gomega, cluster string, labels client.MatchingLabels) []machine {
	selected := client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}
	for key, value := range labels {
		selected[key] = value
	}
	var list clusterv1.MachineList
	g.Expect(w.Client.List(ctx, &list, client.InNamespace("default"), selected)).To(Succeed())
	var found []machine
	for _, item := range list.Items {
		if item.DeletionTimestamp.IsZero() {
			found = append(found, w.whole(ctx, g, item))
		}
	}
	return found
}

// whole reads all of a machine and holds it against what Cluster API and the guest say of it.
func (w *world) whole(ctx context.Context, g Gomega, object clusterv1.Machine) machine {
	m := machine{machine: object}
	key := client.ObjectKey{Namespace: object.Namespace, Name: object.Spec.InfrastructureRef.Name}
	g.Expect(w.Client.Get(ctx, key, &m.infra)).To(Succeed())
	g.Expect(m.machine.Spec.ProviderID).To(HavePrefix("libvirt:///"), "the providerID of Machine %s", object.Name)
	g.Expect(m.machine.Spec.ProviderID).To(Equal(m.infra.Spec.ProviderID))
	g.Expect(m.machine.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()), object.Name)
	g.Expect(m.machine.Status.Conditions).To(ContainElement(And(
		HaveField("Type", clusterv1.MachineInfrastructureReadyCondition), HaveField("Status", BeEquivalentTo("True")))), object.Name)

	var host infrav1.LibvirtHost
	g.Expect(w.Client.Get(ctx, client.ObjectKey{Name: m.infra.Spec.HostName}, &host)).To(Succeed())
	g.Expect(m.infra.Status.FailureDomain).To(Equal(host.Spec.FailureDomain))
	g.Expect(m.machine.Status.FailureDomain).To(Equal(host.Spec.FailureDomain), object.Name)

	m.report = w.reportOf(g, m)
	g.Expect(m.machine.Status.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: m.report.Address}))
	g.Expect(m.report.MetaData.LocalHostname).To(Equal(object.Name))

	var bootstrap corev1.Secret
	g.Expect(object.Spec.Bootstrap.DataSecretName).ToNot(BeNil())
	g.Expect(w.Client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: *object.Spec.Bootstrap.DataSecretName}, &bootstrap)).To(Succeed())
	g.Expect(m.report.UserDataSHA256).To(Equal(sha256Of(bootstrap.Data["value"])), "the user-data that the guest of %s has", object.Name)
	g.Expect(m.machine.Status.NodeRef.Name).To(Equal(object.Name))
	return m
}

// reportOf is what the guest of a machine has told on the host that the machine is bound to, and on
// no other.
func (w *world) reportOf(g Gomega, m machine) report.Report {
	var found []report.Report
	for name, host := range w.hosts {
		reports, _ := host.Reports()
		for _, one := range reports {
			if "libvirt:///"+one.MetaData.InstanceID == m.infra.Spec.ProviderID {
				g.Expect(name).To(Equal(m.infra.Spec.HostName))
				g.Expect(one.SystemUUID).To(Equal(one.MetaData.InstanceID))
				found = append(found, one)
			}
		}
	}
	g.Expect(found).To(HaveLen(1), "reports of the guest of %s", m.machine.Name)
	return found[0]
}
