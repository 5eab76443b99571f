package libvirtmachine

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// The tests in this file are attacks by a user with all permissions in one namespace on users of the same hosts.

const uuidOfVictim = "22222222-2222-4222-8222-222222222222"

// bindTo binds a machine by its spec, with another UUID.
func bindTo(host string) func(*infrav1.LibvirtMachine) {
	return func(infra *infrav1.LibvirtMachine) {
		infra.Spec.HostName, infra.Spec.ProviderID = host, infrav1.ProviderIDPrefix+uuidOfOthers
	}
}

// createVolume creates a volume with content on a host.
func (w *world) createVolume(host, name string) hypervisor.VolumeRef {
	w.t.Helper()
	ref := hypervisor.VolumeRef{Pool: "default", Name: name}
	w.onHost(host, func(connection hypervisor.Hypervisor) error {
		_, err := connection.CreateVolume(w.t.Context(), hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
		return err
	})
	return ref
}

// TestVolumesOfOthersAreNoImages: a disk of another machine can't be used as an image.
func TestVolumesOfOthersAreNoImages(t *testing.T) {
	domain := func(disk string) func(*world) {
		return func(w *world) {
			w.onHost("a", func(connection hypervisor.Hypervisor) error {
				return connection.DefineDomain(w.t.Context(), hypervisor.Definition{UUID: uuidOfVictim, Name: "victim", XML: "<domain><name>victim</name><uuid>" +
					uuidOfVictim + "</uuid><memory>1</memory><devices><disk>" + disk + "</disk></devices></domain>"})
			})
		}
	}
	for name, tc := range map[string]struct {
		volume  string
		prepare func(*world)
	}{
		"a seed":                     {volume: hypervisor.VolumePrefix(uuidOfVictim, "victim", "m") + "seed"},
		"a root disk":                {volume: uuidOfVictim + "-root"},
		"a copy of an image":         {volume: uuidOfVictim + "-root.0123456789ab"},
		"an image of others' URL":    {volume: "caplv-image-sha256-0.qcow2.0123456789ab"},
		"a disk of a domain":         {volume: "windows", prepare: domain("<source pool='default' volume='windows'/>")},
		"a disk of a domain, a file": {volume: "windows", prepare: domain("<source file='/fake/default/windows'/>")},
	} {
		for _, clone := range []infrav1.CloneMethod{infrav1.CloneOverlay, infrav1.CloneFull} {
			t.Run(name+", "+string(clone), func(t *testing.T) {
				image := func(volume string) func(*infrav1.LibvirtMachine) {
					return func(infra *infrav1.LibvirtMachine) {
						infra.Spec.Image = infrav1.ImageSpec{Volume: volume, Format: infrav1.ImageFormatQCOW2}
						infra.Spec.RootDisk.Clone = clone
					}
				}
				w := newWorld(t, image(tc.volume), "a")
				w.createVolume("a", tc.volume)
				w.createVolume("a", "golden")
				if tc.prepare != nil {
					tc.prepare(w)
				}
				before := w.inventory()
				m := w.newManager(0)
				lacks := "a: lacks image volume " + tc.volume
				w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring(lacks))

				// The volume may have become a disk since the machine was placed.
				change(w, &infrav1.LibvirtMachine{}, key.Name, image("golden"))
				w.until(m, func() bool { return w.infra().Spec.HostName != "" })
				change(w, &infrav1.LibvirtMachine{}, key.Name, image(tc.volume))
				w.Expect(w.message(m, infrav1.ImageReadyCondition, infrav1.ImageVolumeNotFoundReason)).To(Equal(
					"Host a has no image default/" + tc.volume + ": the volume doesn't exist, is the disk of a domain, or was created by the provider"))
				w.Expect(w.inventory()).To(Equal(before))
			})
		}
	}
}

// TestHostNamedByHandIsPlacedToo: a machine with spec.hostName is placed by the same rules as others. While it isn't
// placed, it uses no resources.
func TestHostNamedByHandIsPlacedToo(t *testing.T) {
	for name, tc := range map[string]struct {
		spec    func(*infrav1.LibvirtMachineSpec)
		prepare func(*world)
		why     string
	}{
		"more than the host has": {spec: func(s *infrav1.LibvirtMachineSpec) { s.CPUs, s.Memory = 512, resource.MustParse("16Ti") },
			why: "a: no room (CPUs: 512 needed, 16 free, memory: 16384Gi needed, 56Gi free)"},
		"maintenance": {why: "a: in maintenance", prepare: func(w *world) {
			w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} })
		}},
		"hostSelector": {why: "a: the cluster's hostSelector doesn't select it", prepare: func(w *world) {
			change(w, &infrav1.LibvirtCluster{}, "blue", func(c *infrav1.LibvirtCluster) {
				c.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"for": "blue"}}
			})
		}},
		"another failure domain": {why: "a: in failure domain rack-a, not rack-b", prepare: func(w *world) {
			change(w, &clusterv1.Machine{}, key.Name, func(m *clusterv1.Machine) { m.Spec.FailureDomain = "rack-b" })
		}},
		"a status that says that it was bound": {spec: func(s *infrav1.LibvirtMachineSpec) { s.CPUs = 512 }, why: "a: no room", prepare: func(w *world) {
			change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
				infra.Status.FailureDomain = "rack-a"
				conditions.Set(infra, metav1.Condition{Type: infrav1.HostBoundCondition, Status: metav1.ConditionTrue, Reason: infrav1.HostBoundReason})
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
				bindTo("a")(infra)
				if tc.spec != nil {
					tc.spec(&infra.Spec)
				}
			}, "a")
			if tc.prepare != nil {
				tc.prepare(w)
			}
			m := w.newManager(0)
			w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(ContainSubstring(tc.why))
			w.Expect(w.inventory()).To(BeEmpty())
			w.Expect(m.Scheduler.Domains("a")).To(BeEmpty(), "it reserves nothing")
			w.delete()
			w.until(m, w.isDeleted)
		})
	}
}

// TestHostNamedByHandMayFit: a machine that fits on the host in its spec runs there.
func TestHostNamedByHandMayFit(t *testing.T) {
	w := newWorld(t, bindTo("a"), "a", "b")
	m := w.until(w.newManager(0), w.isProvisioned)
	w.Expect(w.inventory()).To(ContainElement("a: domain Running"))
	w.Expect(m.Scheduler.Domains("a")).To(HaveKey(uuidOfOthers))
}

// TestMovedMachinesKeepTheirHost: machines keep their host after a move even if the host doesn't fit any more. They
// aren't placed again.
func TestMovedMachinesKeepTheirHost(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.until(w.newManager(0), w.isProvisioned)
	change(w, &clusterv1.Machine{}, key.Name, func(machine *clusterv1.Machine) { machine.Spec.ProviderID = w.infra().Spec.ProviderID })
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
		infra.Status = infrav1.LibvirtMachineStatus{}
		infra.UID = "after-the-move"
	})
	w.changeHost("a", func(h *infrav1.LibvirtHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} })
	m := w.newManager(0)
	w.until(m, w.isProvisioned)
	w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue())
	w.Expect(m.Scheduler.Load(t.Context())).To(Succeed())
	w.Expect(m.Scheduler.Domains("a")).To(HaveKey(w.uuid()), "its domain exists on the host")
}

// TestTheManagersNetworkIsntRead: users can't read the manager's network by image URLs, and can't learn from messages
// which addresses answer.
func TestTheManagersNetworkIsntRead(t *testing.T) {
	messages := map[string]bool{}
	for _, url := range []string{imageServer().URL + "/healthz", "http://127.0.0.1:1/nobody-listens", "http://169.254.169.254/latest/meta-data"} {
		w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.Image.URL = url }, "a")
		w.images = &images.Options{}
		message := w.message(w.newManager(0), infrav1.ImageReadyCondition, infrav1.ImageTransferFailedReason)
		messages[strings.ReplaceAll(message, url, "URL")] = true
		w.Expect(w.inventory()).To(BeEmpty())
	}
	NewWithT(t).Expect(messages).To(Equal(map[string]bool{"downloading URL failed and is retried: downloads from this source aren't allowed: ask the administrators of the provider": true}))
}

// TestServerResponsesAreNotShown: an allowed server may have content that its users may not see. The message is the
// same for all failures of the server and of its content.
func TestServerResponsesAreNotShown(t *testing.T) {
	messages := map[string]bool{}
	for _, change := range []func(*infrav1.ImageSpec){
		func(image *infrav1.ImageSpec) { image.Checksum = checksum([]byte("another")) },
		func(image *infrav1.ImageSpec) { image.Format = infrav1.ImageFormatRaw },
		func(image *infrav1.ImageSpec) { image.URL = "http://127.0.0.1:1/image" },
	} {
		w := newWorld(t, func(infra *infrav1.LibvirtMachine) { change(&infra.Spec.Image) }, "a")
		message := w.message(w.newManager(0), infrav1.ImageReadyCondition, infrav1.ImageTransferFailedReason)
		messages[strings.ReplaceAll(message, w.infra().Spec.Image.URL, "URL")] = true
	}
	NewWithT(t).Expect(messages).To(HaveLen(1))
}

// TestImageOfAServerWithCredentials: the credentials are in a Secret of the machine's namespace with the type for them.
// Other Secrets aren't sent, and no content of a Secret is shown.
func TestImageOfAServerWithCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "user" || password != secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		whole(w, r)
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		infra.Spec.Image.URL, infra.Spec.Image.SecretRef.Name = server.URL, "images"
	}, "a")
	w.images = &images.Options{Sources: testSources, FirstRetry: time.Millisecond, LastRetry: 5 * time.Millisecond, CleanUpTimeout: time.Second}
	namespace := &corev1.Namespace{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Name: key.Namespace}, namespace)).To(Succeed())
	namespace.UID = "namespace-uid"
	w.Expect(w.api.Update(t.Context(), namespace)).To(Succeed())
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "images"}, Type: infrav1.ImageCredentialsSecretType, Data: map[string][]byte{
		"username": []byte("user"), "password": []byte(secret),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
	w.Expect(w.api.Create(t.Context(), credentials)).To(Succeed())
	m := w.newManager(0)
	expectMessage := func(what string) {
		w.until(m, func() bool {
			return strings.HasSuffix(conditions.GetMessage(w.infra(), infrav1.ImageReadyCondition), what)
		})
	}
	expectMessage("the Secret team/images doesn't exist")

	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "images"}, Type: corev1.SecretTypeOpaque, Data: credentials.Data}
	w.Expect(w.api.Create(t.Context(), own.DeepCopy())).To(Succeed())
	expectMessage("isn't of type infrastructure.cluster.x-k8s.io/image-credentials: Secrets of other types are not sent to servers")

	w.Expect(w.api.Delete(t.Context(), own.DeepCopy())).To(Succeed())
	own.Type = infrav1.ImageCredentialsSecretType
	w.Expect(w.api.Create(t.Context(), own)).To(Succeed())
	w.until(m, w.isProvisioned)
	of := images.Wish{Host: "a", Pool: "default", URL: server.URL, Checksum: checksum(imageContent), Format: infrav1.ImageFormatQCOW2}
	_, err := m.Images.Ensure(t.Context(), of, client.ObjectKey{Namespace: "other", Name: "m"})
	w.Expect(err).To(HaveOccurred(), "other namespaces don't get the image")
	of.Access = &images.Access{Namespace: namespace.UID}
	w.Expect(m.Images.Ensure(t.Context(), of, key)).Error().ToNot(HaveOccurred())
	w.Expect(w.output() + w.log.String()).ToNot(ContainSubstring(secret))
}

// TestQueuedDownloadIsReported: a condition and an event report a download that is queued behind downloads of
// another namespace.
func TestQueuedDownloadIsReported(t *testing.T) {
	requested := make(chan struct{}, 100)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requested <- struct{}{}; <-r.Context().Done() }))
	t.Cleanup(func() { slow.CloseClientConnections(); slow.Close() })
	w := newWorld(t, nil, "a")
	w.images = &images.Options{Sources: testSources, PerHost: 1, InAll: 1}
	m := w.newManager(0)
	attacker := client.ObjectKey{Namespace: "attacker", Name: "m"}
	_, err := m.Images.Ensure(t.Context(), images.Wish{Host: "a", Pool: "default", URL: slow.URL, Checksum: checksum(nil)}, attacker)
	w.Expect(err).To(HaveOccurred())
	<-requested
	w.Expect(w.message(m, infrav1.ImageReadyCondition, infrav1.ImageQueuedReason)).To(ContainSubstring("is queued"))
	w.Expect(w.output()).To(ContainSubstring("Warning " + infrav1.ImageQueuedReason))
	m.Images.Forget(attacker)
	w.until(m, w.isProvisioned)
}

// TestUUIDOfAnother: a user who writes the UUID of another machine into a spec, while no domain has that UUID, gets no
// access to the other machine. UUIDs also determine MAC addresses. After a restart the manager may not know the other
// machine: then the copy gets separate objects, and the manager neither writes to nor deletes the volumes of the
// original. An earlier creation of the copy doesn't prove ownership.
func TestUUIDOfAnother(t *testing.T) {
	for name, known := range map[string]bool{"the manager has placed the other": true, "the manager was restarted": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "a")
			w.hosts["a"].Inject(defineFails)
			seed := func() string {
				return string(w.hosts["a"].Content(hypervisor.VolumeRef{Pool: "default", Name: w.volumeName("seed")}))
			}
			m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" && seed() != "" })
			before, written := w.inventory(), seed()
			w.hosts["a"].ForgetCalls()

			original := w.infra()
			attacker := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "attacker", UID: "attacker", Labels: original.Labels,
				CreationTimestamp: metav1.NewTime(original.CreationTimestamp.AddDate(0, 0, -1)), OwnerReferences: original.OwnerReferences}, Spec: original.Spec}
			w.Expect(w.api.Create(t.Context(), attacker)).To(Succeed())
			if !known {
				m.end()
				m = w.newManager(0)
			}
			reconcile := func() { _, _ = m.reconcileObject(client.ObjectKeyFromObject(attacker)) }
			if known {
				w.Eventually(func() string {
					reconcile()
					w.Expect(w.api.Get(t.Context(), client.ObjectKeyFromObject(attacker), attacker)).To(Succeed())
					return conditions.GetReason(attacker, infrav1.HostBoundCondition)
				}).WithTimeout(patience).Should(Equal(infrav1.MACAddressTakenReason))
				w.Expect(w.inventory()).To(Equal(before))
			} else {
				w.Eventually(func() int { reconcile(); return len(w.inventory()) }).WithTimeout(patience).Should(Equal(2*len(before)), "another root disk and seed")
			}
			w.Expect(seed()).To(Equal(written))

			w.Expect(w.api.Delete(t.Context(), attacker)).To(Succeed())
			w.Eventually(func() error {
				reconcile()
				return w.api.Get(t.Context(), client.ObjectKeyFromObject(attacker), attacker)
			}).WithTimeout(patience).ShouldNot(Succeed())
			w.Expect(w.inventory()).To(Equal(before))
			for _, call := range w.hosts["a"].Calls() {
				w.Expect(call.Object).ToNot(And(HavePrefix("default/"+w.volumeName("")), Not(BeEmpty())), "%s", call.Operation)
			}
			m.Scheduler.Gone(attacker.UID) // as the informer says
			w.hosts["a"].ClearFaults()
			w.until(m, w.isProvisioned)
		})
	}
}

// TestNamespaceQuota: a namespace can't use more of shared hosts than its quota, and messages contain only its own
// usage.
func TestNamespaceQuota(t *testing.T) {
	w := newWorld(t, nil, "a", "b")
	w.restrict("a", "b")
	w.setTenant("blue")
	identity := &infrav1.LibvirtClusterIdentity{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Name: "key-of-blue"}, identity)).To(Succeed())
	identity.Spec.NamespaceQuota = &infrav1.NamespaceQuota{CPUs: ptr.To[int32](3), Memory: ptr.To(resource.MustParse("100Gi")), Storage: ptr.To(resource.MustParse("1Ti"))}
	w.Expect(w.api.Update(t.Context(), identity)).To(Succeed())
	for i, namespace := range []string{"others", key.Namespace} { // the first one doesn't count
		uuid := uuidOfOthers[:35] + string(rune('2'+i))
		other := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other", UID: types.UID(namespace)}, Spec: newSpec()}
		other.Spec.HostName, other.Spec.ProviderID = "b", infrav1.ProviderIDPrefix+uuid
		w.Expect(w.api.Create(t.Context(), other)).To(Succeed())
		w.domainOf("b", uuid, hypervisor.Owner{Cluster: "c", Namespace: namespace, Name: "other"})
	}
	m := w.newManager(0)
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(Equal("no host fits (2 of 2 Ready and selected): " +
		"2 hosts (a, b): exceeds the namespace's quota on the hosts with its identity (CPUs: 3 allowed, 2 used, 2 needed)"))
	identity.Spec.NamespaceQuota.CPUs = ptr.To[int32](4)
	w.Expect(w.api.Update(t.Context(), identity)).To(Succeed())
	w.until(m, w.isProvisioned)
}

// reservedCPUs returns how many CPUs are counted for the machine.
func (m *manager) reservedCPUs() int64 {
	taken, _ := m.Scheduler.Taken(m.world.infra().UID)
	return taken[placement.Resource{Kind: placement.CPU}]
}

// TestUseIsNotHidden: the resources of the domain are counted for a machine, even if a user changes its spec, with and
// without the annotation for updates in place.
func TestUseIsNotHidden(t *testing.T) {
	for name, requested := range map[string]bool{"the spec alone": false, "with the annotation": true} {
		for _, cpus := range []int32{1, 512} {
			t.Run(fmt.Sprintf("%s, %d CPUs", name, cpus), func(t *testing.T) {
				w, m := newWorldWithNode(t, nil)
				w.inPlace, m.InPlaceUpdates = false, false
				write := func(infra *infrav1.LibvirtMachine) { infra.Spec.CPUs = cpus }
				if requested {
					w.requestUpdate(write)
				} else {
					change(w, &infrav1.LibvirtMachine{}, key.Name, write)
				}
				seen := func(m *manager) {
					m.Scheduler.Observe(w.infra())
					w.Expect(m.reservedCPUs()).To(BeEquivalentTo(2))
					_, err := m.reconcile()
					w.Expect(err).ToNot(HaveOccurred())
					w.Expect(m.reservedCPUs()).To(BeEquivalentTo(2))
				}
				seen(m)
				m.end()
				m = w.newManager(0)
				w.Expect(m.Scheduler.Load(t.Context())).To(Succeed())
				seen(m)
			})
		}
	}
}

// TestSpecGrowsBeforeCreation: a machine whose spec grows between its placement and its creation gets no more than its
// host has room for.
func TestSpecGrowsBeforeCreation(t *testing.T) {
	w := newWorld(t, nil, "a")
	m := w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { infra.Spec.CPUs = 512 })
	m.Scheduler.Observe(w.infra())
	w.Expect(m.reservedCPUs()).To(BeEquivalentTo(2), "the reservation doesn't grow")
	w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.NoHostFitsReason)).To(HaveSuffix("a: no room (CPUs: 512 needed, 16 free)"))
	w.Expect(w.inventory()).To(BeEmpty())
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { infra.Spec.CPUs = 3 })
	w.until(m, w.isProvisioned)
	w.Expect(w.domain().CPUs).To(BeEquivalentTo(3))
	w.Expect(m.reservedCPUs()).To(BeEquivalentTo(3))
}

// TestUpdateStartedByHand: a user who writes the annotation of a started update, or increases the spec after the start,
// gets no more than the host and the quota allow. The guest continues to run.
func TestUpdateStartedByHand(t *testing.T) {
	started := func(infra *infrav1.LibvirtMachine) {
		infra.Annotations = map[string]string{infrav1.UpdateStartedAnnotation: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
	}
	huge := func(infra *infrav1.LibvirtMachine) { infra.Spec.CPUs = 512 }
	for name, tc := range map[string]struct {
		prepare func(w *world, m *manager)
		write   func(*infrav1.LibvirtMachine)
		asks    bool
	}{
		"no room": {write: func(infra *infrav1.LibvirtMachine) { huge(infra); started(infra) }},
		"no room, with the annotation": {asks: true, write: func(infra *infrav1.LibvirtMachine) {
			huge(infra)
			started(infra)
			infra.Annotations[clusterv1.UpdateInProgressAnnotation] = ""
		}},
		"the quota": {write: func(infra *infrav1.LibvirtMachine) { larger(infra); started(infra) }, prepare: func(w *world, _ *manager) {
			w.restrict("a")
			w.setTenant("blue")
			identity := &infrav1.LibvirtClusterIdentity{}
			w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Name: "key-of-blue"}, identity)).To(Succeed())
			identity.Spec.NamespaceQuota = &infrav1.NamespaceQuota{CPUs: ptr.To[int32](3)}
			w.Expect(w.api.Update(w.t.Context(), identity)).To(Succeed())
		}},
		"its host isn't allowed any more": {write: func(infra *infrav1.LibvirtMachine) { larger(infra); started(infra) }, prepare: func(w *world, _ *manager) {
			w.restrict("a")
		}},
		"the spec grows after the start": {write: huge, asks: true, prepare: func(w *world, m *manager) {
			w.hosts["a"].IgnoreShutdown(w.uuid(), true)
			w.requestUpdate(larger)
			w.until(m, w.hasCondition(infrav1.UpdatedInPlaceCondition, infrav1.RestartingReason))
		}},
		"it is shut off": {write: func(infra *infrav1.LibvirtMachine) { huge(infra); started(infra) }, prepare: func(w *world, _ *manager) {
			w.onHost("a", func(connection hypervisor.Hypervisor) error { return connection.StopDomain(w.t.Context(), w.uuid()) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorldWithNode(t, nil)
			if tc.prepare != nil {
				tc.prepare(w, m)
			}
			change(w, &infrav1.LibvirtMachine{}, key.Name, tc.write)
			w.until(m, func() bool { _, started := isChanging(w.infra()); return !started })
			if tc.asks {
				w.until(m, w.hasCondition(infrav1.UpdatedInPlaceCondition, infrav1.NoRoomReason))
			}
			w.Expect(w.domain()).To(And(HaveField("CPUs", BeEquivalentTo(2)), HaveField("State", hypervisor.StateRunning)))
			w.until(m, func() bool { return m.reservedCPUs() == 2 })
		})
	}
}

// TestForgedStatus: a user who may write the status of LibvirtMachines and Machines learns nothing about hosts that the
// namespace may not use, and causes no changes there.
func TestForgedStatus(t *testing.T) {
	w := newStranger(t)
	w.volume("hidden-host", uuidOfOthers)
	w.domainOf("hidden-host", uuidOfOthers, hypervisor.Owner{Cluster: "green", Namespace: "secret-team", Name: "secret-machine"})
	change(w, &clusterv1.Machine{}, key.Name, func(machine *clusterv1.Machine) { machine.Spec.ProviderID = infrav1.ProviderIDPrefix + uuidOfOthers })
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
		infra.Status.FailureDomain, infra.Status.Initialization.Provisioned = "rack-of-mine", ptr.To(true)
	})
	before := w.inventory()
	m := w.newManager(0)
	w.notAllowed(m)
	w.Expect(w.infra().Status.FailureDomain).To(Equal("rack-of-mine"))
	w.hosts["hidden-host"].SetReachable(false)
	w.delete()
	w.until(m, w.hasCondition(infrav1.ReadyCondition, infrav1.DeletingReason))
	w.Expect(conditions.GetMessage(w.infra(), infrav1.ReadyCondition)).ToNot(Or(ContainSubstring("connect"), ContainSubstring("reach")))
	w.hosts["hidden-host"].SetReachable(true)
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(Equal(before))
	for len(w.events.Events) > 0 {
		w.Expect(<-w.events.Events).ToNot(Or(ContainSubstring("secret"), ContainSubstring("A domain on host")))
	}
}

// TestMACAddressesAreNotOccupied: a machine without a host doesn't reserve a MAC address. The MAC addresses of placed
// machines are reserved, also during creation and while they are shut off. Messages don't name the owner in another
// namespace.
func TestMACAddressesAreNotOccupied(t *testing.T) {
	others := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "secret-team", Name: "secret-machine", UID: "others"}, Spec: newSpec()}
	bindTo("a")(others)
	derived := domainxml.MACAddress(uuidOfOthers, 0)
	const explicit = "52:54:00:00:00:01"
	for name, tc := range map[string]struct {
		mac, foreign string
		placed       bool
	}{
		"a spec that names a host":        {mac: explicit, foreign: explicit},
		"a placed machine":                {mac: explicit, foreign: explicit, placed: true},
		"a placed machine, from its UUID": {mac: derived, placed: true},
		"from the UUID in a spec":         {mac: derived},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.Interfaces[0].MACAddress = tc.mac }, "a")
			other := others.DeepCopy()
			other.Spec.Interfaces[0].MACAddress = tc.foreign
			w.Expect(w.api.Create(t.Context(), other)).To(Succeed())
			w.mac = tc.mac
			m := w.newManager(0)
			if tc.placed {
				m.Scheduler.See(placement.Machine{UID: other.UID, Host: other.Spec.HostName})
				w.Expect(w.message(m, infrav1.HostBoundCondition, infrav1.MACAddressTakenReason)).To(
					Equal("spec.interfaces[0].macAddress: " + tc.mac + " is in use outside of namespace team: choose another address"))
				m.Scheduler.Gone(other.UID)
			}
			w.until(m, w.isProvisioned)
		})
	}
}
