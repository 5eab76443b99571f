package libvirtmachine

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// attacker is a LibvirtMachine in another namespace.
var attacker = client.ObjectKey{Namespace: "mallory", Name: "blue-1"}

// addAttacker creates the attacker, whose namespace has a cluster like the victim's.
func (w *world) addAttacker(change func(*infrav1.LibvirtMachineSpec)) {
	w.t.Helper()
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: attacker.Namespace}},
	}
	for _, like := range []client.Object{
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}, &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Name: "blue"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "blue-1"}}, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: key.Name}},
	} {
		w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: like.GetName()}, like)).To(Succeed())
		like.SetNamespace(attacker.Namespace)
		like.SetUID("")
		like.SetResourceVersion("")
		objects = append(objects, like)
	}
	victim := w.infra()
	infra := &infrav1.LibvirtMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: attacker.Namespace, Name: attacker.Name, UID: "attacker", Labels: victim.Labels, OwnerReferences: victim.OwnerReferences},
		Spec:       *victim.Spec.DeepCopy(),
	}
	infra.Spec.HostName, infra.Spec.ProviderID = "", ""
	change(&infra.Spec)
	for _, object := range append(objects, infra) {
		cluster, isCluster := object.(*clusterv1.Cluster)
		status := clusterv1.ClusterStatus{}
		if isCluster {
			status = cluster.Status
		}
		w.Expect(w.api.Create(w.t.Context(), object)).To(Succeed())
		if isCluster {
			cluster.Status = status
			w.Expect(w.api.Status().Update(w.t.Context(), cluster)).To(Succeed())
		}
	}
}

// TestAttacksOnARealHost: on a host that two namespaces share, a machine of one namespace doesn't get or change objects
// of the other one on a real libvirt, neither while both exist nor when the attacker's machine is deleted.
func TestAttacksOnARealHost(t *testing.T) {
	libvirtd.Need(t)
	daemon, err := libvirtd.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(daemon.Stop)
	for _, tc := range []struct {
		name   string
		attack func(s *infrav1.LibvirtMachineSpec, victim *world)
		// condition of the attacker's machine with the reason and a part of the message.
		condition, reason, message string
	}{
		{name: "the seed as an image", condition: infrav1.HostBoundCondition, reason: infrav1.NoHostFitsReason, message: "a: lacks image volume",
			attack: func(s *infrav1.LibvirtMachineSpec, victim *world) {
				s.Image = infrav1.ImageSpec{Volume: victim.volumeName("seed"), Format: infrav1.ImageFormatRaw}
				s.RootDisk.Clone = infrav1.CloneFull
			}},
		{name: "the root disk as an image", condition: infrav1.HostBoundCondition, reason: infrav1.NoHostFitsReason, message: "a: lacks image volume",
			attack: func(s *infrav1.LibvirtMachineSpec, victim *world) {
				s.Image = infrav1.ImageSpec{Volume: victim.volumeName("root"), Format: infrav1.ImageFormatQCOW2}
			}},
		{name: "the UUID and the host", condition: infrav1.InstanceReadyCondition, reason: infrav1.DomainNameTakenReason,
			attack: func(s *infrav1.LibvirtMachineSpec, victim *world) {
				s.HostName, s.ProviderID = victim.infra().Spec.HostName, victim.infra().Spec.ProviderID
			}},
		{name: "more than the host has", condition: infrav1.HostBoundCondition, reason: infrav1.NoHostFitsReason, message: "memory: 16384Gi needed",
			attack: func(s *infrav1.LibvirtMachineSpec, victim *world) {
				s.HostName, s.ProviderID = victim.infra().Spec.HostName, infrav1.ProviderIDPrefix+uuidOfOthers
				s.Memory = resource.MustParse("16Ti")
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, m, connection := newRealWorld(t, daemon, nil)
			w.until(m, w.hasCondition(infrav1.InstanceReadyCondition, infrav1.InstanceRunningReason))
			seed := filepath.Join(daemon.PoolFolder(), w.volumeName("seed"))
			before := w.seenOn(connection, seed)

			w.addAttacker(func(s *infrav1.LibvirtMachineSpec) { tc.attack(s, w) })
			var infra infrav1.LibvirtMachine
			w.Eventually(func() string {
				_, _ = m.reconcileObject(attacker)
				w.Expect(w.api.Get(t.Context(), attacker, &infra)).To(Succeed())
				return conditions.GetReason(&infra, tc.condition)
			}).WithTimeout(patience).Should(Equal(tc.reason))
			w.Expect(conditions.GetMessage(&infra, tc.condition)).To(And(ContainSubstring(tc.message), Not(ContainSubstring(key.Namespace+"/"))))
			w.Expect(w.seenOn(connection, seed)).To(Equal(before))

			w.Expect(w.api.Delete(t.Context(), &infra)).To(Succeed())
			w.Eventually(func() error {
				_, _ = m.reconcileObject(attacker)
				return w.api.Get(t.Context(), attacker, &infra)
			}).WithTimeout(patience).ShouldNot(Succeed())
			w.Expect(w.seenOn(connection, seed)).To(Equal(before))
			w.delete()
			w.until(m, w.isDeleted)
		})
	}
}

// seenOn lists the volumes and the domains of a host, with the content of the seed and whether the victim runs.
func (w *world) seenOn(connection hypervisor.Hypervisor, seed string) []string {
	w.t.Helper()
	volumes, err := connection.PoolVolumes(w.t.Context(), "default")
	w.Expect(err).ToNot(HaveOccurred())
	var seen []string
	for _, volume := range volumes {
		seen = append(seen, fmt.Sprintf("%s %d %s", volume.Name, volume.CapacityBytes, volume.BackingPath))
	}
	domains, err := connection.ListDomains(w.t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	for i := range domains {
		seen = append(seen, fmt.Sprintf("%s %s %v", domains[i].Name, domains[i].UUID, domains[i].State))
	}
	content, err := os.ReadFile(seed)
	w.Expect(err).ToNot(HaveOccurred())
	slices.Sort(seen)
	return append(seen, fmt.Sprintf("%x", sha256.Sum256(content)))
}
