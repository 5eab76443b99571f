package libvirtmachine

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// change changes an object of the world.
func change[T client.Object](w *world, object T, name string, how func(T)) {
	w.t.Helper()
	w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, object)).To(Succeed())
	how(object)
	withStatus := object.DeepCopyObject().(client.Object)
	w.Expect(w.api.Update(w.t.Context(), object)).To(Succeed())
	withStatus.SetResourceVersion(object.GetResourceVersion())
	_ = w.api.Status().Update(w.t.Context(), withStatus) // fails for kinds without a status
}

// changeHost changes a LibvirtHost.
func (w *world) changeHost(name string, how func(*infrav1.LibvirtHost)) {
	w.t.Helper()
	host := &infrav1.LibvirtHost{}
	w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, host)).To(Succeed())
	how(host)
	w.Expect(w.api.Update(w.t.Context(), host)).To(Succeed())
}

// message waits for a condition and returns its message.
func (w *world) message(m *manager, condition, reason string) string {
	w.t.Helper()
	w.until(m, w.hasCondition(condition, reason))
	return conditions.GetMessage(w.infra(), condition)
}

// TestPrerequisites: a condition has each prerequisite that is missing, no object is created in the meantime,
// and the machine continues when the prerequisite is met.
func TestPrerequisites(t *testing.T) {
	for _, tc := range []struct {
		name, condition, reason, message string
		spec                             func(*infrav1.LibvirtMachine)
		before, after                    func(w *world)
		// foreign are the foreign objects on the hosts.
		foreign []string
		// stays is true if objects of the machine may already exist on the host.
		stays bool
	}{
		{name: "cluster infrastructure", condition: infrav1.HostBoundCondition, reason: infrav1.WaitingForClusterInfrastructureReason, message: "infrastructureProvisioned",
			before: func(w *world) {
				change(w, &clusterv1.Cluster{}, "blue", func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = nil })
			},
			after: func(w *world) {
				change(w, &clusterv1.Cluster{}, "blue", func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
			}},
		{name: "bootstrap data", condition: infrav1.HostBoundCondition, reason: infrav1.WaitingForBootstrapDataReason, message: "dataSecretName",
			before: func(w *world) {
				change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = nil })
			},
			after: func(w *world) {
				change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("blue-1") })
			}},
		{name: "a host", condition: infrav1.HostBoundCondition, reason: infrav1.NoHostFitsReason, message: "no host fits (1 of 2 Ready and selected): b: lacks network green; a: in maintenance",
			spec: func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].Network = "green" },
			before: func(w *world) {
				w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} })
			},
			after: func(w *world) {
				w.changeHost("b", func(h *infrav1.LibvirtHost) {
					h.Spec.Networks = append(h.Spec.Networks, infrav1.HostNetwork{Name: "green", LibvirtNetwork: "green"})
				})
			}},
		{name: "a host of its failure domain", condition: infrav1.HostBoundCondition, reason: infrav1.NoHostFitsReason,
			message: "a: in failure domain rack-a, not rack-c; b: in failure domain rack-b, not rack-c",
			before: func(w *world) {
				change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "rack-c" })
			},
			after: func(w *world) { w.changeHost("b", func(h *infrav1.LibvirtHost) { h.Spec.FailureDomain = "rack-c" }) }},
		{name: "a host that its cluster selects", condition: infrav1.HostBoundCondition, reason: infrav1.NoHostFitsReason, message: "hostSelector doesn't select it",
			before: func(w *world) {
				change(w, &infrav1.LibvirtCluster{}, "blue", func(c *infrav1.LibvirtCluster) {
					c.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"for": "blue"}}
				})
			},
			after: func(w *world) {
				w.changeHost("b", func(h *infrav1.LibvirtHost) { h.Labels = map[string]string{"for": "blue"} })
			}},
		{name: "a host that its namespace may use", condition: infrav1.HostBoundCondition, reason: infrav1.NamespaceNotAllowedReason,
			message: "LibvirtHosts exist, but namespace team may not use them",
			before: func(w *world) {
				for _, name := range []string{"a", "b"} {
					w.changeHost(name, func(h *infrav1.LibvirtHost) { h.Spec.IdentityRef = &infrav1.ClusterIdentityReference{Name: "none"} })
				}
			},
			after: func(w *world) { w.changeHost("b", func(h *infrav1.LibvirtHost) { h.Spec.IdentityRef = nil }) }},
		{name: "a MAC address", condition: infrav1.HostBoundCondition, reason: infrav1.MACAddressTakenReason,
			message: "spec.interfaces[0].macAddress: 52:54:00:00:00:01 is in use outside of namespace team",
			spec:    func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].MACAddress = "52:54:00:00:00:01" },
			before: func(w *world) {
				w.Expect(w.api.Create(w.t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "old", UID: "uid-2"},
					Spec: infrav1.LibvirtMachineSpec{HostName: "a", ProviderID: infrav1.ProviderIDPrefix + uuidOfOthers,
						Interfaces: []infrav1.InterfaceSpec{{MACAddress: "52:54:00:00:00:01"}}}})).To(Succeed())
				w.domainOf("a", uuidOfOthers, hypervisor.Owner{Cluster: "c", Namespace: "other", Name: "old"})
			},
			after: func(w *world) {
				w.Expect(w.api.Delete(w.t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "old"}})).To(Succeed())
				w.mac = "52:54:00:00:00:01"
			}, foreign: []string{"a: domain ShutOff"}},
		{name: "a MAC address that a domain of others has", condition: infrav1.HostBoundCondition, reason: infrav1.MACAddressTakenReason,
			message: "spec.interfaces[0].macAddress: 52:54:00:00:00:01 is in use outside of namespace team",
			spec:    func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].MACAddress = "52:54:00:00:00:01" },
			before:  func(w *world) { w.setForeignDomain("b", "printer", "52:54:00:00:00:01", true) },
			after: func(w *world) {
				w.setForeignDomain("b", "printer", "52:54:00:00:00:01", false)
				w.mac = "52:54:00:00:00:01"
			}, foreign: []string{"b: domain Running"}},
		{name: "the image's volume", condition: infrav1.ImageReadyCondition, reason: infrav1.ImageVolumeNotFoundReason, message: "has no image default/golden", stays: true,
			spec: func(infra *infrav1.LibvirtMachine) {
				infra.Spec.Image = infrav1.ImageSpec{Volume: "golden", Format: infrav1.ImageFormatRaw}
			},
			before: func(w *world) { // the machine is bound, and then the volume is deleted
				w.ledger = &placement.Ledger{}
				w.golden()
				m := w.newManager(0)
				w.until(m, func() bool { return w.infra().Spec.HostName != "" })
				by, _ := w.hosts[w.infra().Spec.HostName].Connect(w.t.Context())
				w.Expect(by.DeleteVolume(w.t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "golden"})).To(Succeed())
			},
			after: func(w *world) { w.golden() }},
		{name: "the Secret", condition: infrav1.InstanceReadyCondition, reason: infrav1.WaitingForBootstrapDataReason, message: "The Secret later with the bootstrap data doesn't exist", stays: true,
			before: func(w *world) {
				change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = ptr.To("later") })
			},
			after: func(w *world) {
				w.Expect(w.api.Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "later"}, Data: map[string][]byte{"value": []byte(secret)}})).To(Succeed())
			}},
		{name: "bootstrap data of its format", condition: infrav1.InstanceReadyCondition, reason: infrav1.WaitingForBootstrapDataReason,
			message: "The bootstrap data is of format ignition, and spec.bootstrapFormat is cloud-config", stays: true,
			before: func(w *world) {
				change(w, &corev1.Secret{}, "blue-1", func(s *corev1.Secret) { s.Data["format"] = []byte("ignition") })
			},
			after: func(w *world) {
				change(w, &corev1.Secret{}, "blue-1", func(s *corev1.Secret) { delete(s.Data, "format") })
			}},
		{name: "bootstrap data that isn't empty", condition: infrav1.InstanceReadyCondition, reason: infrav1.WaitingForBootstrapDataReason, message: "has no bootstrap data under the key value", stays: true,
			before: func(w *world) {
				change(w, &corev1.Secret{}, "blue-1", func(s *corev1.Secret) { delete(s.Data, "value") })
			},
			after: func(w *world) {
				change(w, &corev1.Secret{}, "blue-1", func(s *corev1.Secret) { s.Data["value"] = []byte(secret) })
			}},
		{name: "a root disk that is large enough", condition: infrav1.DisksReadyCondition, reason: infrav1.DiskCreationFailedReason, message: "spec.rootDisk.size is 1Gi, but the disk in the image has 2Gi", stays: true,
			spec:   func(infra *infrav1.LibvirtMachine) { infra.Spec.RootDisk.Size = resource.MustParse("1Gi") },
			before: func(*world) {},
			after: func(w *world) {
				change(w, &infrav1.LibvirtMachine{}, key.Name, func(m *infrav1.LibvirtMachine) { m.Spec.RootDisk.Size = resource.MustParse("2Gi") })
			}},
		{name: "a valid spec", condition: infrav1.InstanceReadyCondition, reason: infrav1.InstanceCreationFailedReason, message: "spec: memory is 4097Mi, and must be a multiple of hugepages.pageSize", stays: true,
			spec: func(infra *infrav1.LibvirtMachine) {
				infra.Spec.Hugepages, infra.Spec.Memory = &infrav1.HugepagesSpec{PageSize: infrav1.Hugepages2Mi}, resource.MustParse("4097Mi")
			},
			before: func(w *world) {
				for _, host := range w.hosts { // enough memory
					facts := hypervisor.Facts{Architecture: "amd64", CPUs: 16, MemoryBytes: 64 << 30, HugepageBytes: map[infrav1.HugepageSize]int64{infrav1.Hugepages2Mi: 32 << 30},
						Features: []string{infrav1.HostFeatureUEFI, infrav1.HostFeatureKVM, string(infrav1.HostFeatureHugepagesPrefix + infrav1.Hugepages2Mi)}}
					host.SetFacts(facts)
				}
			},
			after: func(w *world) {
				change(w, &infrav1.LibvirtMachine{}, key.Name, func(m *infrav1.LibvirtMachine) { m.Spec.Memory = resource.MustParse("4098Mi") })
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.spec, "a", "b")
			tc.before(w)
			m := w.newManager(0)
			w.Expect(w.message(m, tc.condition, tc.reason)).To(ContainSubstring(tc.message))
			w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeFalse())
			w.Expect(conditions.GetMessage(w.infra(), infrav1.ReadyCondition)).To(ContainSubstring(tc.message), "in Ready too")
			before := w.infra()
			_, err := m.reconcile()
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(w.infra()).To(Equal(before), "a waiting machine writes nothing")
			if !tc.stays {
				w.Expect(w.infra().Spec.HostName).To(BeEmpty())
				w.Expect(w.inventory()).To(ConsistOf(tc.foreign))
			}
			tc.after(w)
			w.until(m, w.isProvisioned)
			w.Expect(w.output()).ToNot(ContainSubstring(secret))
		})
	}
}

// foreign is the UUID of a foreign domain.
const foreign = "11111111-1111-4111-8111-111111111111"

// setForeignDomain starts a foreign domain on a host, or shuts it off.
func (w *world) setForeignDomain(host, name, mac string, runs bool) {
	w.t.Helper()
	by, err := w.hosts[host].Connect(w.t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(by.DefineDomain(w.t.Context(), hypervisor.Definition{UUID: foreign, Name: name, XML: "<domain><name>" + name + "</name><uuid>" + foreign +
		"</uuid><memory>1</memory><devices><interface type='network'><mac address='" + mac + "'/></interface></devices></domain>"})).To(Succeed())
	set := by.StopDomain
	if runs {
		set = by.StartDomain
	}
	w.Expect(set(w.t.Context(), foreign)).To(Succeed())
}

// golden puts an image into the pools of all hosts.
func (w *world) golden() {
	for _, host := range w.hosts {
		by, err := host.Connect(w.t.Context())
		w.Expect(err).ToNot(HaveOccurred())
		_, err = by.CreateVolume(w.t.Context(), hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: "golden"}, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 30})
		w.Expect(err).To(Or(Succeed(), MatchError(hypervisor.ErrAlreadyExists)))
	}
}

func TestPausing(t *testing.T) {
	for name, pause := range map[string]func(w *world, paused bool){
		"the cluster": func(w *world, paused bool) {
			change(w, &clusterv1.Cluster{}, "blue", func(c *clusterv1.Cluster) { c.Spec.Paused = &paused })
		},
		"the machine": func(w *world, paused bool) {
			change(w, &infrav1.LibvirtMachine{}, key.Name, func(m *infrav1.LibvirtMachine) {
				m.Annotations = nil
				if paused {
					m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "a")
			pause(w, true)
			m := w.newManager(0)
			w.until(m, w.hasCondition(infrav1.PausedCondition, infrav1.PausedReason))
			for range 3 {
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			w.Expect(w.infra().Spec.HostName).To(BeEmpty())
			pause(w, false)
			w.until(m, w.isProvisioned)
			w.Expect(conditions.IsFalse(w.infra(), infrav1.PausedCondition)).To(BeTrue())
			pause(w, true)
			w.until(m, w.hasCondition(infrav1.PausedCondition, infrav1.PausedReason))
			w.delete()
			for range 3 {
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			w.Expect(w.inventory()).To(ContainElement("a: domain Running"))
			pause(w, false)
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(BeEmpty())
		})
	}
}

func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*infrav1.LibvirtMachine){
		"without the watch filter's label": func(m *infrav1.LibvirtMachine) { delete(m.Labels, clusterv1.WatchLabel) },
		"managed externally": func(m *infrav1.LibvirtMachine) {
			m.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "x"}
		},
		"without an owner":                     func(m *infrav1.LibvirtMachine) { m.OwnerReferences = nil },
		"with an owner that doesn't exist yet": func(m *infrav1.LibvirtMachine) { m.OwnerReferences[0].Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(m *infrav1.LibvirtMachine) { m.Labels[clusterv1.WatchLabel] = "blue"; change(m) }, "a")
			m := w.newManager(0)
			m.WatchFilterValue, m.Scheduler.WatchFilterValue = "blue", "blue"
			before := w.infra()
			result, err := m.reconcile()
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(result).To(BeZero())
			w.Expect(w.infra()).To(Equal(before))
		})
	}
}

// TestProvisionedForGood: the state of a provisioned machine is reported. The machine stays provisioned, and isn't
// repaired.
func TestProvisionedForGood(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		status       metav1.ConditionStatus
		state        infrav1.InstanceState
		happen       func(w *world, uuid string)
	}{
		{name: "removed by hand", reason: infrav1.InstanceNotFoundReason, status: metav1.ConditionFalse, state: infrav1.InstanceNotFound,
			happen: func(w *world, uuid string) { w.hosts["a"].RemoveDomain(uuid) }},
		{name: "shut off", reason: infrav1.InstanceNotRunningReason, status: metav1.ConditionFalse, state: infrav1.InstanceShutOff,
			happen: func(w *world, uuid string) { w.hosts["a"].SetState(uuid, hypervisor.StateShutOff) }},
		{name: "crashed", reason: infrav1.InstanceNotRunningReason, status: metav1.ConditionFalse, state: infrav1.InstanceCrashed,
			happen: func(w *world, uuid string) { w.hosts["a"].SetState(uuid, hypervisor.StateCrashed) }},
		{name: "paused", reason: infrav1.InstanceNotRunningReason, status: metav1.ConditionFalse, state: infrav1.InstancePaused,
			happen: func(w *world, uuid string) { w.hosts["a"].SetState(uuid, hypervisor.StatePaused) }},
		{name: "host unreachable", reason: infrav1.HostUnreachableReason, status: metav1.ConditionUnknown, state: infrav1.InstanceUnknown,
			happen: func(w *world, _ string) { w.hosts["a"].SetReachable(false) }},
		{name: "host deleted", reason: infrav1.HostNotFoundReason, status: metav1.ConditionUnknown, state: infrav1.InstanceUnknown,
			happen: func(w *world, _ string) {
				w.Expect(w.api.Delete(context.Background(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(m *infrav1.LibvirtMachine) { m.Spec.RunPolicy = infrav1.RunManual }, "a", "b")
			w.hosts["b"].SetReachable(false)
			m := w.until(w.newManager(0), w.isProvisioned)
			addresses := w.infra().Status.Addresses
			w.output()
			tc.happen(w, w.uuid())
			w.until(m, w.hasCondition(infrav1.InstanceReadyCondition, tc.reason))
			w.hosts["a"].ForgetCalls()
			for range 3 {
				_, err := m.reconcile()
				w.Expect(err).ToNot(HaveOccurred())
			}
			infra := w.infra()
			w.Expect(conditions.Get(infra, infrav1.InstanceReadyCondition).Status).To(Equal(tc.status))
			w.Expect(conditions.Get(infra, infrav1.ReadyCondition).Status).ToNot(Equal(metav1.ConditionTrue))
			w.Expect(infra.Status.InstanceState).To(Equal(tc.state))
			w.Expect(*infra.Status.Initialization.Provisioned).To(BeTrue())
			w.Expect(infra.Status.Addresses).To(Equal(addresses))
			w.Expect(w.output()).To(ContainSubstring("Warning " + tc.reason))
			for _, call := range w.hosts["a"].Calls() {
				w.Expect(string(call.Operation)).ToNot(Or(HavePrefix("Define"), HavePrefix("Start"), HavePrefix("Create")), "%v", call)
			}
		})
	}
}

// TestSeedOfALostMachine: the bootstrap data, with its secrets, is deleted from the host if the domain is lost before
// its node has joined, although the LibvirtMachine stays.
func TestSeedOfALostMachine(t *testing.T) {
	for _, format := range []infrav1.BootstrapFormat{infrav1.BootstrapFormatCloudConfig, infrav1.BootstrapFormatIgnition} {
		t.Run(string(format), func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.BootstrapFormat = format }, "a")
			m := w.until(w.newManager(0), w.isProvisioned)
			w.Expect(w.inventory()).To(ContainElement("a: volume uuid-seed"))
			w.hosts["a"].RemoveDomain(w.uuid())

			// A failed deletion is retried, and the condition still reports the lost domain.
			w.hosts["a"].Inject(fake.Fault{Operation: fake.DeleteVolume, Times: 1, Effect: fake.Fail, Reason: hypervisor.ErrOther})
			_, err := m.reconcile()
			w.Expect(err).To(HaveOccurred())
			w.Expect(conditions.GetReason(w.infra(), infrav1.InstanceReadyCondition)).To(Equal(infrav1.InstanceNotFoundReason))
			w.Expect(conditions.IsFalse(w.infra(), infrav1.SeedRemovedCondition)).To(BeTrue())

			w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
			w.Expect(conditions.GetReason(w.infra(), infrav1.InstanceReadyCondition)).To(Equal(infrav1.InstanceNotFoundReason))
			w.Expect(w.inventory()).To(Equal([]string{"a: volume uuid-root"}))
			w.hosts["a"].ForgetCalls()
			before := w.infra()
			_, err = m.reconcile()
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(w.infra()).To(Equal(before))
			for _, call := range w.hosts["a"].Calls() {
				w.Expect(call.Operation).ToNot(Equal(fake.DeleteVolume), "once is enough")
			}
		})
	}
}

// TestMove: `clusterctl move` keeps specs, and drops statuses and UIDs.
func TestMove(t *testing.T) {
	for name, missing := range map[string]bool{"the domain exists": false, "the domain is missing": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "a")
			m := w.until(w.newManager(0), w.isProvisioned)
			uuid := w.uuid()
			change(w, &clusterv1.Machine{}, key.Name, func(machine *clusterv1.Machine) { machine.Spec.ProviderID = infrav1.ProviderIDPrefix + uuid })
			infra := w.infra()
			infra.Status = infrav1.LibvirtMachineStatus{}
			w.Expect(w.api.Status().Update(t.Context(), infra)).To(Succeed())
			if missing {
				w.hosts["a"].RemoveDomain(uuid)
			}
			w.hosts["a"].ForgetCalls()
			w.until(m, w.isProvisioned)
			if missing {
				w.Expect(conditions.GetReason(w.infra(), infrav1.InstanceReadyCondition)).To(Equal(infrav1.InstanceNotFoundReason))
			} else {
				w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue(), "%v", w.infra().Status.Conditions)
			}
			for _, call := range w.hosts["a"].Calls() {
				w.Expect(string(call.Operation)).ToNot(Or(HavePrefix("Define"), HavePrefix("Start"), HavePrefix("Create")), "%v", call)
			}
			w.delete()
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(BeEmpty())
		})
	}
}

// TestOldCache: the cache has the machine before it was provisioned, and its domain is missing.
func TestOldCache(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
	old := w.infra()
	w.until(m, w.isProvisioned)
	w.hosts["a"].RemoveDomain(w.uuid())
	machine := &clusterv1.Machine{}
	w.Expect(w.api.Get(t.Context(), key, machine)).To(Succeed())
	s := &scope{Reconciler: m.Reconciler, infra: old, machine: machine, cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}}
	_, err := m.Reconciler.reconcile(t.Context(), s)
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(w.inventory()).ToNot(ContainElement(ContainSubstring("domain")))
}

// TestHostIsGoneForGood: a host is given up only after a user has set the annotation to the host's name.
func TestHostIsGoneForGood(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	w.hosts["a"].SetReachable(false)
	w.delete()
	message := w.message(m, infrav1.ReadyCondition, infrav1.DeletingReason)
	w.Expect(message).To(And(ContainSubstring("Waiting for host a: "), ContainSubstring(infrav1.HostLostAnnotation+": a")))
	annotate := func(value string) {
		change(w, &infrav1.LibvirtMachine{}, key.Name, func(m *infrav1.LibvirtMachine) { m.Annotations = map[string]string{infrav1.HostLostAnnotation: value} })
	}
	annotate("true")
	for range 3 {
		_, err := m.reconcile()
		w.Expect(err).ToNot(HaveOccurred())
	}
	w.Expect(w.infra()).ToNot(BeNil())
	w.Expect(w.api.Delete(t.Context(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "a"}})).To(Succeed())
	w.until(m, func() bool {
		return strings.Contains(conditions.GetMessage(w.infra(), infrav1.ReadyCondition), "Waiting for LibvirtHost a, which doesn't exist")
	})
	w.output()
	uuid := w.uuid()
	annotate("a")
	w.until(m, w.isDeleted)
	w.Expect(w.output()).To(And(ContainSubstring("Warning HostLost Gave up host a"), ContainSubstring(uuid)))
}

// TestDomainsOfOthers: a copy of a LibvirtMachine with the same provider ID doesn't affect the original.
func TestDomainsOfOthers(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	original := w.infra()
	before := w.inventory()
	copied := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "copy", UID: "uid-3", Labels: original.Labels,
		OwnerReferences: original.OwnerReferences, Finalizers: original.Finalizers}, Spec: original.Spec}
	w.Expect(w.api.Create(t.Context(), copied)).To(Succeed())
	cluster := &clusterv1.Cluster{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "blue"}, cluster)).To(Succeed())
	reconcile := func() {
		s := &scope{Reconciler: m.Reconciler, infra: copied, machine: &clusterv1.Machine{}, cluster: cluster}
		_, err := m.Reconciler.reconcile(t.Context(), s)
		w.Expect(err).ToNot(HaveOccurred())
	}
	reconcile()
	w.Expect(conditions.GetMessage(copied, infrav1.HostBoundCondition)).To(And(ContainSubstring("LibvirtMachine team/blue-1 has "), ContainSubstring("comes from spec.providerID")))
	w.Expect(ptr.Deref(copied.Status.Initialization.Provisioned, false)).To(BeFalse())
	w.Expect(w.api.Delete(t.Context(), copied)).To(Succeed())
	w.Expect(w.api.Get(t.Context(), client.ObjectKeyFromObject(copied), copied)).To(Succeed())
	reconcile()
	w.Expect(client.IgnoreNotFound(w.api.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))).To(Succeed())
	w.Expect(w.inventory()).To(Equal(before))
	w.Expect(w.output()).To(ContainSubstring("Warning NotOurs"))

	w = newWorld(t, bindTo("a"), "a")
	w.domainOf("a", uuidOfOthers, hypervisor.Owner{Cluster: "c", Namespace: "secretive", Name: "m"})
	w.Expect(w.message(w.newManager(0), infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason)).To(
		HaveSuffix("belongs to a LibvirtMachine of another namespace and isn't changed"), "a machine that isn't known here")
}

func TestSeedInUse(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	seed := hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("seed")}
	w.hosts["a"].HoldDisk(w.uuid(), seed, true)
	w.joinNode()
	w.Expect(w.message(m, infrav1.SeedRemovedCondition, infrav1.SeedInUseReason)).To(ContainSubstring("hasn't released"))
	w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue(), "the machine works")
	w.hosts["a"].HoldDisk(w.uuid(), seed, false)
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.Expect(w.inventory()).To(Equal([]string{"a: domain Running", "a: volume uuid-root"}))
}

// TestPoolsOfTheHostChange: the volumes of a machine are found after its host's pools have changed.
func TestPoolsOfTheHostChange(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.hosts["a"].SetPool(hypervisor.Pool{Name: "fast", Active: true, CapacityBytes: 1 << 40, AvailableBytes: 1 << 40})
	m := w.until(w.newManager(0), w.isProvisioned)
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.StoragePools.Disks = []string{"fast", "default"} })
	w.joinNode()
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.Expect(w.inventory()).To(Equal([]string{"a: domain Running", "a: volume uuid-root"}))
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}

// TestAddresses checks which of the found addresses are addresses of the machine.
func TestAddresses(t *testing.T) {
	const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"
	first, second := domainxml.MACAddress(uuid, 0), "52:54:00:00:00:02"
	s := &scope{uuid: uuid, infra: &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: infrav1.LibvirtMachineSpec{Interfaces: []infrav1.InterfaceSpec{{Network: "a"}, {Network: "b", MACAddress: second}}}},
		cluster: &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.100"}}}}
	for name, tc := range map[string]struct {
		found []string // MAC, space, address
		want  []string
	}{
		"none":                              {},
		"only others":                       {found: []string{"0a:58:0a:f4:00:01 10.244.0.1", first + " fe80::1", first + " 127.0.0.1"}},
		"the control plane's":               {found: []string{first + " 192.0.2.100", first + " 192.0.2.8"}, want: []string{"192.0.2.8"}},
		"the first interface first":         {found: []string{second + " 192.0.2.1", first + " 2001:db8::1", first + " 192.0.2.9"}, want: []string{"192.0.2.9", "2001:db8::1", "192.0.2.1"}},
		"each once":                         {found: []string{first + " 192.0.2.9", first + " 192.0.2.9"}, want: []string{"192.0.2.9"}},
		"an interface with an address only": {found: []string{second + " 192.0.2.1"}, want: []string{"192.0.2.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var found []hypervisor.InterfaceAddress
			for _, one := range tc.found {
				mac, address, _ := strings.Cut(one, " ")
				found = append(found, hypervisor.InterfaceAddress{MAC: mac, Address: netip.MustParseAddr(address)})
			}
			var want clusterv1.MachineAddresses
			for i, address := range tc.want {
				if i == 0 {
					want = append(want, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "m"})
				}
				want = append(want, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
			}
			NewWithT(t).Expect(s.nodeAddresses(s.usable(found))).To(Equal(want))
		})
	}
}

// TestAddressesChange: the addresses are updated, and come from the guest agent if there are no leases.
func TestAddressesChange(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.silent = true
	m := w.until(w.newManager(0), w.hasCondition(infrav1.AddressesReadyCondition, infrav1.WaitingForAddressesReason))
	w.Expect(w.isProvisioned()).To(BeFalse())
	uuid := w.uuid()
	address := func(text string) hypervisor.InterfaceAddress {
		return hypervisor.InterfaceAddress{MAC: domainxml.MACAddress(uuid, 0), Address: netip.MustParseAddr(text)}
	}
	w.hosts["a"].SetAddresses(uuid, hypervisor.SourceAgent, address("192.0.2.20"))
	w.until(m, w.isProvisioned)
	is := func(text string) func() bool {
		return func() bool { return w.infra().Status.Addresses[1].Address == text }
	}
	w.until(m, is("192.0.2.20"))
	w.hosts["a"].SetAddresses(uuid, hypervisor.SourceLease, address("192.0.2.21"))
	w.until(m, is("192.0.2.21"))
	w.hosts["a"].SetAddresses(uuid, hypervisor.SourceLease)
	w.hosts["a"].Inject(fake.Fault{Operation: fake.DomainAddresses, Times: 2, Effect: fake.Fail, Reason: hypervisor.ErrUnsupported})
	_, err := m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(is("192.0.2.21")()).To(BeTrue(), "known addresses stay")
}

// TestGuestAgentFails: with a failing guest agent, the secrets are still deleted from the host.
func TestGuestAgentFails(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), w.isProvisioned)
	w.hosts["a"].Inject(fake.Fault{Operation: fake.DomainAddresses, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrOther})
	w.joinNode()
	w.until(m, w.hasCondition(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason))
	w.Expect(conditions.GetReason(w.infra(), infrav1.AddressesReadyCondition)).To(Equal(infrav1.InternalErrorReason))
	w.Expect(w.inventory()).ToNot(ContainElement(ContainSubstring("seed")))
	w.Expect(w.infra().Status.Addresses).ToNot(BeEmpty(), "known addresses stay")
	_, err := m.reconcile()
	w.Expect(err).To(MatchError(hypervisor.ErrOther), "it is retried")
}

// TestMachinesSpread: machines of one owner are placed on different hosts, and an unreachable host doesn't block
// placement.
func TestMachinesSpread(t *testing.T) {
	w := newWorld(t, func(m *infrav1.LibvirtMachine) { m.Labels[clusterv1.MachineDeploymentNameLabel] = "workers" }, "a", "b", "c")
	w.hosts["c"].SetReachable(false)
	m := w.newManager(0)
	w.Expect(w.api.Create(t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "sibling", UID: "uid-4",
		Labels: w.infra().Labels}, Spec: infrav1.LibvirtMachineSpec{HostName: "a", ProviderID: infrav1.ProviderIDPrefix + uuidOfOthers}})).To(Succeed())
	w.domainOf("a", uuidOfOthers, hypervisor.Owner{Cluster: "blue", Namespace: key.Namespace, Name: "sibling"})
	w.until(m, w.isProvisioned)
	w.Expect(w.infra().Spec.HostName).To(Equal("b"))
}
