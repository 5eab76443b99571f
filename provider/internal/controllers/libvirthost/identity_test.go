package libvirthost

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestAnotherHypervisorAnswers: the UUID of a host's hypervisor is recorded at the first contact, survives a move, and
// is changed only by a user with the annotation.
func TestAnotherHypervisorAnswers(t *testing.T) {
	f := newFixture(t, nil, boundMachine("a"))
	first, other := f.host, fake.NewHost()
	f.eventuallyReady()
	f.Expect(f.get().Annotations).To(HaveKeyWithValue(infrav1.HypervisorUUIDAnnotation, first.UUID()))

	// clusterctl drops the status, and the manager of the target is another one.
	moved := f.get()
	moved.Status = infrav1.LibvirtHostStatus{}
	f.Expect(f.client.Status().Update(t.Context(), moved)).To(Succeed())
	f.lock.Lock()
	f.host = other
	f.lock.Unlock()
	f.restart()
	f.Expect(f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.OtherHypervisorReason)).To(Equal(
		"another hypervisor answers: its UUID is " + other.UUID() + " and not " + first.UUID() + ". Correct spec.uri, or where its name and address lead. " +
			"If the hypervisor was replaced, and all that ran on it is gone, set the annotation libvirt.infrastructure.cluster.x-k8s.io/hypervisor-uuid: " + other.UUID()))
	f.Expect(conditions.IsFalse(f.get(), infrav1.ReadyCondition)).To(BeTrue())
	_, err := f.Fleet.Hypervisor(key.Name)
	f.Expect(err).To(MatchError(hypervisor.ErrUnreachable), "its machines don't count as deleted")

	// Tools that replace objects remove annotations.
	replaced := f.get()
	replaced.Annotations = nil
	f.Expect(f.client.Update(t.Context(), replaced)).To(Succeed())
	f.Eventually(func() string {
		f.reconcile()
		return f.get().Annotations[infrav1.HypervisorUUIDAnnotation]
	}).WithTimeout(soon).Should(Equal(first.UUID()))
	f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.OtherHypervisorReason)

	accepted := f.get()
	accepted.Annotations[infrav1.HypervisorUUIDAnnotation] = other.UUID()
	f.Expect(f.client.Update(t.Context(), accepted)).To(Succeed())
	f.eventuallyReady()
}

// TestNothingIsPlacedBeforeTheRecord: the UUID of the hypervisor is written before the host is Ready.
func TestNothingIsPlacedBeforeTheRecord(t *testing.T) {
	f := newFixture(t, nil)
	f.Eventually(func() map[string]string {
		f.Expect(conditions.Has(f.get(), infrav1.ReadyCondition) && conditions.IsTrue(f.get(), infrav1.ReadyCondition)).To(BeFalse())
		f.reconcile()
		return f.get().Annotations
	}).WithTimeout(soon).Should(HaveKey(infrav1.HypervisorUUIDAnnotation))
	f.eventuallyReady()
}

// TestOneHypervisorTwice: a hypervisor can have one LibvirtHost only, whatever its URI. The later LibvirtHost is
// refused as long as the other one exists.
func TestOneHypervisorTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		// recorded is true if this host's annotation was copied, or written at the same time.
		recorded bool
		age      time.Duration
		refused  bool
	}{
		"added later":                            {refused: true},
		"added later, with a copied annotation":  {recorded: true, age: -time.Hour, refused: true},
		"added first, and the other is a copy":   {recorded: true, age: time.Hour},
		"added at the same time, later by name":  {recorded: true, refused: true},
		"created first, and contacted afterward": {age: time.Hour, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now().Truncate(time.Second)
			twin := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "a-twin", CreationTimestamp: metav1.NewTime(began),
				Annotations: map[string]string{}}, Spec: infrav1.LibvirtHostSpec{URI: "qemu+ssh://root@host/system"}}
			f := newFixture(t, func(host *infrav1.LibvirtHost) {
				host.CreationTimestamp = metav1.NewTime(began.Add(-tc.age))
			}, twin, boundMachine("a"))
			change := func(name string, change func(*infrav1.LibvirtHost)) {
				host := &infrav1.LibvirtHost{}
				f.Expect(f.client.Get(t.Context(), client.ObjectKey{Name: name}, host)).To(Succeed())
				change(host)
				f.Expect(f.client.Update(t.Context(), host)).To(Succeed())
			}
			record := func(host *infrav1.LibvirtHost) {
				host.Annotations = map[string]string{infrav1.HypervisorUUIDAnnotation: f.host.UUID()}
			}
			change(twin.Name, record)
			if tc.recorded {
				change(key.Name, record)
			}
			if !tc.refused {
				f.eventuallyReady()
				return
			}
			f.Expect(f.eventually(infrav1.ReachableCondition, metav1.ConditionFalse, infrav1.DuplicateHypervisorReason)).To(HavePrefix(
				"the hypervisor with the UUID " + f.host.UUID() + " belongs to LibvirtHost a-twin, which was added first. Delete one of the two"))
			f.Expect(conditions.IsFalse(f.get(), infrav1.ReadyCondition)).To(BeTrue())
			_, err := f.Fleet.Hypervisor(key.Name)
			f.Expect(err).ToNot(HaveOccurred(), "existing machines can still be deleted")

			f.Expect(f.client.Get(t.Context(), client.ObjectKeyFromObject(twin), twin)).To(Succeed())
			f.Expect(f.twins(t.Context(), twin)).To(ConsistOf(ctrl.Request{NamespacedName: key}), "its deletion triggers a reconcile")
			f.Expect(f.client.Delete(t.Context(), twin)).To(Succeed())
			f.eventuallyReady()
			f.Expect(f.get().Annotations).To(HaveKeyWithValue(infrav1.HypervisorUUIDAnnotation, f.host.UUID()))
		})
	}
}
