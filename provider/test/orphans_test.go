package test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// The UUIDs of the orphans that scenes define, each a domain that was never started.
const (
	strangerUUID = "00000000-0000-4000-8000-0000000000e1"
	nobodyUUID   = "00000000-0000-4000-8000-0000000000e2"
)

// orphansCollected: the manager runs with --collect-orphans. A LibvirtMachine is deleted from the API server only. Its
// domain is reported, stays until its age is reached, and is then deleted with its volumes. A domain whose Cluster is
// in another management cluster stays.
func orphansCollected(ctx context.Context, g *WithT, w *world) {
	c := w.newCluster(ctx, g, "orphans")
	c.createBare(ctx, g)
	c.createMachine(ctx, g, "lost", func(*infrav1.LibvirtMachineSpec) {})
	var lost machine
	eventually(g, func(g Gomega) {
		var object clusterv1.Machine
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: "lost"}, &object)).To(Succeed())
		lost = c.provisioned(ctx, g, object)
	})
	host := lost.infra.Spec.HostName
	w.define(g, host, "stranger", strangerUUID, hypervisor.Owner{Cluster: "blue", Namespace: "elsewhere", Name: "stranger"})
	c.deleteWithoutCleanup(ctx, g, lost)

	eventually(g, func(g Gomega) {
		object, orphans := w.orphansOn(ctx, g, w.Client, host)
		g.Expect(slices.Collect(maps.Keys(orphans))).To(ConsistOf(lost.uuid(), strangerUUID))
		g.Expect(orphans[lost.uuid()]).To(And(
			HaveField("Machine", c.key.Namespace+"/lost"), HaveField("Volumes", HaveValue(BeEquivalentTo(len(w.volumesOf(g, host, lost.uuid()))))),
			HaveField("KeptBecause", HavePrefix("it isn't deleted before "))))
		g.Expect(object.Status.Conditions).To(ContainElement(And(
			isCondition(infrav1.OrphansFoundCondition, "True"), HaveField("Message", HavePrefix("2 missing LibvirtMachines")))))
	})
	g.Expect(w.volumesOf(g, host, lost.uuid())).ToNot(BeEmpty())
	g.Expect(c.domainsOf(g, lost)).To(ConsistOf(lost.infra.Spec.ProviderID))

	w.age(ctx, g, w.Client, host)
	eventually(g, func(g Gomega) {
		g.Expect(c.domainsOf(g, lost)).To(BeEmpty())
		left, err := w.hosts[host].Left()
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(left).ToNot(ContainElement(Or(ContainSubstring(lost.uuid()), ContainSubstring(" "+c.key.Namespace+"."))))
		_, orphans := w.orphansOn(ctx, g, w.Client, host)
		g.Expect(orphans).To(And(HaveLen(1), HaveKeyWithValue(strangerUUID, HaveField("KeptBecause",
			"its Cluster elsewhere/blue isn't in this management cluster: it may have been moved"))))
	})
	w.undefine(g, host, strangerUUID)
	w.hasNoOrphans(ctx, g, w.Client, host)
	w.suspects.expect(lost.uuid(), strangerUUID)
	c.delete(ctx, g)
}

// nothingElseOrphaned checks that of all machines that scenes have created and deleted so far, only the intended ones
// were ever reported as orphans on any host.
func nothingElseOrphaned(_ context.Context, g *WithT, w *world) {
	seen, expected, ended := w.suspects.result()
	g.Expect(ended).To(BeFalse(), "the watch of the hosts has ended early")
	g.Expect(seen).To(ConsistOf(expected))
}

// movedStays: the management cluster from which a Cluster was moved still reconciles the hosts, may delete orphans, and
// doesn't know the machines: it doesn't delete them, whatever their age. The target management cluster runs without
// --collect-orphans and doesn't delete any orphan.
func movedStays(ctx context.Context, g *WithT, w *world) {
	machines := w.demo.machines(ctx, g, nil)
	on := map[string][]string{}
	for _, m := range machines {
		on[m.infra.Spec.HostName] = append(on[m.infra.Spec.HostName], m.uuid())
	}
	for _, host := range slices.Sorted(maps.Keys(on)) {
		eventually(g, func(g Gomega) {
			_, orphans := w.orphansOn(ctx, g, w.Client, host)
			g.Expect(slices.Collect(maps.Keys(orphans))).To(ContainElements(on[host]))
		})
		w.age(ctx, g, w.Client, host)
		eventually(g, func(g Gomega) {
			_, orphans := w.orphansOn(ctx, g, w.Client, host)
			for _, uuid := range on[host] {
				g.Expect(orphans).To(HaveKeyWithValue(uuid, HaveField("KeptBecause", HavePrefix("another management cluster has or had machines on the host"))))
			}
		})
	}
	w.demo.exactly(ctx, g)

	host := machines[0].infra.Spec.HostName
	w.define(g, host, "left-behind", nobodyUUID, hypervisor.Owner{Cluster: w.demo.key.Name, Namespace: w.demo.key.Namespace, Name: "nobody"})
	eventually(g, func(g Gomega) {
		_, orphans := w.orphansOn(ctx, g, w.second.Client, host)
		g.Expect(orphans).To(And(HaveLen(1), HaveKey(nobodyUUID)))
	})
	w.age(ctx, g, w.second.Client, host)
	eventually(g, func(g Gomega) {
		_, orphans := w.orphansOn(ctx, g, w.second.Client, host)
		g.Expect(orphans).To(HaveKeyWithValue(nobodyUUID, HaveField("KeptBecause", "the manager runs without --collect-orphans")))
	})
	w.undefine(g, host, nobodyUUID)
	w.hasNoOrphans(ctx, g, w.second.Client, host)
	w.demo.exactly(ctx, g)
}

// deleteWithoutCleanup deletes a LibvirtMachine from the API server by removing its finalizers. Its objects on the host
// stay.
func (c *cluster) deleteWithoutCleanup(ctx context.Context, g *WithT, m machine) {
	key := client.ObjectKeyFromObject(&m.infra)
	var infra infrav1.LibvirtMachine
	patch(ctx, g, c.client, key, &infra, func(o *infrav1.LibvirtMachine) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, clusterv1.PausedAnnotation, "")
	})
	eventually(g, func(g Gomega) {
		g.Expect(c.client.Get(ctx, key, &infra)).To(Succeed())
		g.Expect(infra.Status.Conditions).To(ContainElement(isCondition(infrav1.PausedCondition, "True")))
	})
	g.Expect(c.client.Delete(ctx, &infra)).To(Succeed())
	patch(ctx, g, c.client, key, &infra, func(o *infrav1.LibvirtMachine) { o.Finalizers = nil })
}

// orphansOn returns the orphans of a host in the status of a management cluster, by UUID.
func (w *world) orphansOn(ctx context.Context, g Gomega, c client.Client, host string) (*infrav1.LibvirtHost, map[string]infrav1.HostOrphan) {
	object := &infrav1.LibvirtHost{}
	g.Expect(c.Get(ctx, client.ObjectKey{Name: host}, object)).To(Succeed())
	orphans := map[string]infrav1.HostOrphan{}
	for _, orphan := range object.Status.Orphans {
		orphans[orphan.UUID] = orphan
	}
	return object, orphans
}

func (w *world) hasNoOrphans(ctx context.Context, g *WithT, c client.Client, host string) {
	eventually(g, func(g Gomega) {
		object, orphans := w.orphansOn(ctx, g, c, host)
		g.Expect(orphans).To(BeEmpty())
		g.Expect(object.Status.Conditions).To(ContainElement(And(
			isCondition(infrav1.OrphansFoundCondition, "False"), HaveField("Reason", infrav1.NoOrphansReason))))
	})
}

// age sets the time since when a management cluster has seen the orphans of a host to two days ago.
func (w *world) age(ctx context.Context, g *WithT, c client.Client, host string) {
	eventually(g, func(g Gomega) {
		object, orphans := w.orphansOn(ctx, g, c, host)
		g.Expect(orphans).ToNot(BeEmpty())
		before := object.DeepCopy()
		for i := range object.Status.Orphans {
			object.Status.Orphans[i].Since = metav1.NewTime(time.Now().Add(-48 * time.Hour).Truncate(time.Second))
		}
		// A concurrent reconcile of the host could overwrite it.
		g.Expect(c.Status().Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	})
}

// volumesOf returns the volumes of a machine on a host.
func (w *world) volumesOf(g Gomega, host, uuid string) []string {
	volumes, err := w.hosts[host].Volumes()
	g.Expect(err).ToNot(HaveOccurred())
	return slices.DeleteFunc(volumes, func(name string) bool { return !strings.HasPrefix(name, uuid+"-") })
}

// define defines a domain with an owner and without disks.
func (w *world) define(g *WithT, host, name, uuid string, owner hypervisor.Owner) {
	metadata, err := owner.Metadata()
	g.Expect(err).ToNot(HaveOccurred())
	w.connected(g, host, func(connection *golibvirt.Libvirt) error {
		_, err := connection.DomainDefineXML(fmt.Sprintf("<domain type='qemu'><name>%s</name><uuid>%s</uuid><metadata>%s</metadata>"+
			"<memory unit='MiB'>16</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>", name, uuid, metadata))
		return err
	})
}

func (w *world) undefine(g *WithT, host, id string) {
	w.connected(g, host, func(connection *golibvirt.Libvirt) error {
		parsed, err := uuid.Parse(id)
		if err != nil {
			return err
		}
		domain, err := connection.DomainLookupByUUID(golibvirt.UUID(parsed))
		if err != nil {
			return err
		}
		return connection.DomainUndefine(domain)
	})
}

// connected calls a function with a connection to a host, without the provider.
func (w *world) connected(g *WithT, host string, do func(*golibvirt.Libvirt) error) {
	connection, err := w.hosts[host].Connect()
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Disconnect() }()
	g.Expect(do(connection)).To(Succeed())
}

// suspects watches the LibvirtHosts, without missing a change, and records all orphans that were ever reported.
type suspects struct {
	mutex          sync.Mutex
	seen, expected map[string]bool
	ended          bool
}

// watchSuspects watches the first management cluster until the context ends.
func (w *world) watchSuspects(ctx context.Context, g *WithT) *suspects {
	s := &suspects{seen: map[string]bool{}, expected: map[string]bool{}}
	c, err := client.NewWithWatch(w.ControlPlane.Config, client.Options{Scheme: w.Client.Scheme()})
	g.Expect(err).ToNot(HaveOccurred())
	news, err := c.Watch(ctx, &infrav1.LibvirtHostList{})
	g.Expect(err).ToNot(HaveOccurred())
	go func() {
		for event := range news.ResultChan() {
			if host, is := event.Object.(*infrav1.LibvirtHost); is {
				s.see(host)
			}
		}
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.ended = true
	}()
	return s
}

func (s *suspects) see(host *infrav1.LibvirtHost) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, orphan := range host.Status.Orphans {
		s.seen[orphan.UUID] = true
	}
}

// expect records the UUIDs of intended orphans.
func (s *suspects) expect(uuids ...string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, uuid := range uuids {
		s.expected[uuid] = true
	}
}

func (s *suspects) result() (seen, expected []string, ended bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Sorted(maps.Keys(s.seen)), slices.Sorted(maps.Keys(s.expected)), s.ended
}
