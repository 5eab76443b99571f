package test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// cluster is a workload cluster in a namespace of the same name, which has no other cluster.
type cluster struct {
	*world
	// client is a client of the cluster's management cluster.
	client client.Client
	key    client.ObjectKey
	// endpoint is the address of its API server.
	endpoint netip.Addr
	// failureDomains are the failure domains of the hosts that the cluster may use.
	failureDomains []string
	// variables are additional variables of clusterctl, each as NAME=value.
	variables []string
	// guests has all guests that were seen complete, by UUID.
	guests map[string]deletedGuest
}

// newCluster creates the namespace of a cluster.
func (w *world) newCluster(ctx context.Context, g *WithT, name string) *cluster {
	w.mutex.Lock()
	w.clusters++
	endpoint := testbed.EndpointIP(10 + w.clusters)
	w.mutex.Unlock()
	g.Expect(w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return &cluster{world: w, client: w.Client, key: client.ObjectKey{Namespace: name, Name: name}, endpoint: endpoint, failureDomains: []string{"a", "b"}, guests: map[string]deletedGuest{}}
}

// make creates the cluster from one of the provider's templates, with one control plane machine, and waits until that
// machine is complete.
func (c *cluster) make(ctx context.Context, g *WithT, workers int, flags ...string) {
	c.apply(ctx, g, c.generate(ctx, g, workers, flags...), c.failureDomains...)
}

// generate returns the manifest of the cluster from one of the provider's templates, with one control plane machine.
func (c *cluster) generate(ctx context.Context, g *WithT, workers int, flags ...string) string {
	args := append([]string{
		"generate", "cluster", c.key.Name, "--infrastructure=libvirt", "--target-namespace=" + c.key.Namespace,
		"--kubernetes-version=v1.36.3", "--control-plane-machine-count=1", "--worker-machine-count=" + itoa(workers),
	}, flags...)
	manifest, err := c.ClusterctlWith(ctx, append(slices.Clone(c.variables), "CONTROL_PLANE_ENDPOINT_IP="+c.endpoint.String()), args...)
	g.Expect(err).ToNot(HaveOccurred())
	return manifest
}

// apply creates the cluster from a manifest, and waits until it has some failure domains and a complete control plane
// machine.
func (c *cluster) apply(ctx context.Context, g *WithT, manifest string, failureDomains ...string) {
	g.Expect(c.Apply(ctx, manifest)).To(Succeed())
	eventually(g, func(g Gomega) {
		var object clusterv1.Cluster
		g.Expect(c.client.Get(ctx, c.key, &object)).To(Succeed())
		g.Expect(object.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
		g.Expect(object.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: c.endpoint.String(), Port: 6443}))
		var domains []string
		for _, domain := range object.Status.FailureDomains {
			domains = append(domains, domain.Name)
		}
		g.Expect(domains).To(ConsistOf(failureDomains))
	})
	eventually(g, func(g Gomega) {
		g.Expect(c.machines(ctx, g, client.MatchingLabels{clusterv1.MachineControlPlaneLabel: ""})).To(HaveLen(1))
	})
}

// machine is a machine with its objects.
type machine struct {
	machine clusterv1.Machine
	infra   infrav1.LibvirtMachine
	report  report.Report
}

func (m machine) uuid() string { return uuidOf(m.infra.Spec.ProviderID) }

// volume returns the name of a volume of the machine.
func (m machine) volume(what string) string {
	return hypervisor.VolumePrefix(m.uuid(), m.infra.Namespace, m.infra.Name) + what
}

// machines returns the machines of the cluster that aren't being deleted, by their names. It fails as long as one of
// them doesn't match the contract and the template.
func (c *cluster) machines(ctx context.Context, g Gomega, labels client.MatchingLabels) []machine {
	selected := client.MatchingLabels{clusterv1.ClusterNameLabel: c.key.Name}
	for key, value := range labels {
		selected[key] = value
	}
	var list clusterv1.MachineList
	g.Expect(c.client.List(ctx, &list, client.InNamespace(c.key.Namespace), selected)).To(Succeed())
	var found []machine
	for _, item := range list.Items {
		if item.DeletionTimestamp.IsZero() {
			found = append(found, c.complete(ctx, g, item))
		}
	}
	return found
}

// complete reads the objects of a machine and compares them with the reports of Cluster API and the guest.
func (c *cluster) complete(ctx context.Context, g Gomega, object clusterv1.Machine) machine {
	m := c.provisioned(ctx, g, object)
	g.Expect(m.machine.Status.NodeRef.Name).To(Equal(object.Name))
	workload, is := c.player.Client(c.key)
	g.Expect(is).To(BeTrue())
	var node corev1.Node
	g.Expect(workload.Get(ctx, client.ObjectKey{Name: object.Name}, &node)).To(Succeed())
	g.Expect(node.Spec.ProviderID).To(Equal(m.infra.Spec.ProviderID))
	// The guest has read its seed, so that the secrets have been deleted.
	g.Expect(m.infra.Status.Conditions).To(ContainElement(isCondition(infrav1.SeedRemovedCondition, "True")), object.Name)
	g.Expect(c.hosts[m.infra.Spec.HostName].Volumes()).To(And(ContainElement(m.volume("root")), Not(ContainElement(m.volume("seed")))))
	return m
}

// provisioned reads the objects of a machine that may have no node.
func (c *cluster) provisioned(ctx context.Context, g Gomega, object clusterv1.Machine) machine {
	m := machine{machine: object}
	key := client.ObjectKey{Namespace: object.Namespace, Name: object.Spec.InfrastructureRef.Name}
	g.Expect(c.client.Get(ctx, key, &m.infra)).To(Succeed())
	g.Expect(m.machine.Spec.ProviderID).To(HavePrefix("libvirt:///"), "the providerID of Machine %s", object.Name)
	g.Expect(m.machine.Spec.ProviderID).To(Equal(m.infra.Spec.ProviderID))
	g.Expect(m.machine.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()), object.Name)
	g.Expect(m.machine.Status.Conditions).To(ContainElement(isCondition(clusterv1.MachineInfrastructureReadyCondition, "True")), object.Name)

	var host infrav1.LibvirtHost
	g.Expect(c.client.Get(ctx, client.ObjectKey{Name: m.infra.Spec.HostName}, &host)).To(Succeed())
	g.Expect(m.infra.Status.FailureDomain).To(Equal(host.Spec.FailureDomain))
	g.Expect(m.machine.Status.FailureDomain).To(Equal(host.Spec.FailureDomain), object.Name)

	m.report = c.reportOf(g, m)
	g.Expect(m.machine.Status.Addresses).To(ContainElement(clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: m.report.Address}))
	g.Expect(m.report.MetaData.LocalHostname).To(Equal(object.Name))

	var bootstrap corev1.Secret
	g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: c.bootstrapSecret(ctx, g, object)}, &bootstrap)).To(Succeed())
	g.Expect(m.report.UserDataSHA256).To(Equal(sha256Of(bootstrap.Data["value"])), "the user-data of the guest of %s", object.Name)
	c.guests[m.uuid()] = deletedGuest{host: m.infra.Spec.HostName, mac: m.report.MACAddress}
	return m
}

// started waits until a machine is provisioned and its guest has reported.
func (c *cluster) started(ctx context.Context, g *WithT, name string) (m machine) {
	eventually(g, func(g Gomega) {
		var object clusterv1.Machine
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: name}, &object)).To(Succeed())
		m = c.provisioned(ctx, g, object)
	})
	return m
}

// bootstrapSecret returns the name of the Secret with a machine's user-data. The machines of a pool share one Secret.
func (c *cluster) bootstrapSecret(ctx context.Context, g Gomega, object clusterv1.Machine) string {
	name := object.Spec.Bootstrap.DataSecretName
	if pool := object.Labels[clusterv1.MachinePoolNameLabel]; pool != "" {
		var owner clusterv1.MachinePool
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: pool}, &owner)).To(Succeed())
		name = owner.Spec.Template.Spec.Bootstrap.DataSecretName
	}
	g.Expect(name).To(HaveValue(Not(BeEmpty())), "the Secret with the user-data of %s", object.Name)
	return *name
}

// reportOf returns the report of a machine's guest on its host, and checks that no other host has one.
func (c *cluster) reportOf(g Gomega, m machine) report.Report {
	var found []report.Report
	for name, host := range c.hosts {
		reports, _ := host.Reports()
		for _, one := range reports {
			if one.MetaData.InstanceID == m.uuid() {
				g.Expect(name).To(Equal(m.infra.Spec.HostName))
				g.Expect(one.SystemUUID).To(Equal(one.MetaData.InstanceID))
				found = append(found, one)
			}
		}
	}
	g.Expect(found).To(HaveLen(1), "reports of the guest of %s", m.machine.Name)
	return found[0]
}

// exactly checks that hosts have the domains of the machines in the namespace, each once, and no others.
func (c *cluster) exactly(ctx context.Context, g Gomega) {
	var list infrav1.LibvirtMachineList
	g.Expect(c.client.List(ctx, &list, client.InNamespace(c.key.Namespace))).To(Succeed())
	want, got := map[string][]string{}, map[string][]string{}
	for _, item := range list.Items {
		want[item.Spec.HostName] = append(want[item.Spec.HostName], item.Spec.ProviderID)
	}
	for name := range c.hosts {
		for _, domain := range c.domains(g, name) {
			got[name] = append(got[name], providerID(domain.UUID))
		}
	}
	for _, sets := range []map[string][]string{want, got} {
		for _, set := range sets {
			slices.Sort(set)
		}
	}
	g.Expect(got).To(Equal(want))
}

// domains returns the domains of the cluster on a host. Their names begin with the namespace.
func (c *cluster) domains(g Gomega, host string) []libvirthost.Domain {
	domains, err := c.hosts[host].Domains()
	g.Expect(err).ToNot(HaveOccurred())
	return slices.DeleteFunc(domains, func(d libvirthost.Domain) bool { return !strings.HasPrefix(d.Name, c.key.Namespace+".") })
}

// domainsOf returns the provider IDs of the domains of a machine, on all hosts.
func (c *cluster) domainsOf(g Gomega, m machine) []string {
	var found []string
	for name := range c.hosts {
		for _, domain := range c.domains(g, name) {
			if domain.UUID == m.uuid() {
				found = append(found, providerID(domain.UUID))
			}
		}
	}
	return found
}

// delete deletes the Cluster, and checks that its objects are deleted, also on hosts. Leases of guests aren't released:
// they expire.
func (c *cluster) delete(ctx context.Context, g *WithT) {
	g.Expect(c.client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}})).To(Succeed())
	eventually(g, func(g Gomega) {
		g.Expect(c.client.Get(ctx, c.key, &clusterv1.Cluster{})).To(MatchError(apierrors.IsNotFound, "not found"))
		var machines infrav1.LibvirtMachineList
		g.Expect(c.client.List(ctx, &machines, client.InNamespace(c.key.Namespace))).To(Succeed())
		g.Expect(machines.Items).To(BeEmpty())
	})
	for name, host := range c.hosts {
		left, err := host.Left()
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(left).ToNot(ContainElement(ContainSubstring(" "+c.key.Namespace+".")), name)
		for uuid := range c.guests {
			g.Expect(left).ToNot(ContainElement(ContainSubstring(uuid)), name)
		}
	}
	now := time.Now()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, guest := range c.guests {
		c.gone = append(c.gone, deletedGuest{host: guest.host, mac: guest.mac, at: now})
	}
}

func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
