package libvirtmachine

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// defineFails makes all definitions of domains fail.
var defineFails = fake.Fault{Operation: fake.DefineDomain, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrOther}

const uuidOfOthers = "11111111-1111-4111-8111-111111111111"

// newStranger returns a world with a machine whose spec was written by a user: the namespace may not use its host, and
// its UUID belongs to another machine.
func newStranger(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, func(infra *infrav1.LibvirtMachine) {
		infra.Spec.HostName, infra.Spec.ProviderID = "hidden-host", infrav1.ProviderIDPrefix+uuidOfOthers
	}, "hidden-host")
	w.restrict("hidden-host")
	return w
}

// onHost calls a function with the connection to a host.
func (w *world) onHost(name string, what func(hypervisor.Hypervisor) error) {
	w.t.Helper()
	connection, err := w.hosts[name].Connect(w.t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()
	w.Expect(what(connection)).To(Succeed())
}

// volume creates a volume with a UUID that has no domain.
func (w *world) volume(host, uuid string) {
	w.t.Helper()
	w.onHost(host, func(connection hypervisor.Hypervisor) error {
		_, err := connection.CreateVolume(w.t.Context(), hypervisor.VolumeSpec{
			VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: uuid + "-root"}, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
		return err
	})
}

// domainOf defines a domain with an owner in its metadata.
func (w *world) domainOf(host, uuid string, owner hypervisor.Owner) {
	w.t.Helper()
	metadata, err := owner.Metadata()
	w.Expect(err).ToNot(HaveOccurred())
	name := owner.Namespace + "." + owner.Name
	w.onHost(host, func(connection hypervisor.Hypervisor) error {
		return connection.DefineDomain(w.t.Context(), hypervisor.Definition{UUID: uuid, Name: name,
			XML: "<domain><name>" + name + "</name><uuid>" + uuid + "</uuid><memory unit='GiB'>4</memory><vcpu>2</vcpu><metadata>" + metadata + "</metadata></domain>"})
	})
}

// TestDeleteDoesNotTouchForeignObjects: the deletion doesn't delete foreign objects, and no answer of the host is
// shown.
func TestDeleteDoesNotTouchForeignObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(w *world)
		left    []string
	}{
		"no objects": {},
		"volumes of a machine during its creation": {prepare: func(w *world) { w.volume("hidden-host", uuidOfOthers) },
			left: []string{"hidden-host: volume uuid-root"}},
		"a domain of another namespace": {left: []string{"hidden-host: domain ShutOff", "hidden-host: volume uuid-root"}, prepare: func(w *world) {
			w.volume("hidden-host", uuidOfOthers)
			w.domainOf("hidden-host", uuidOfOthers, hypervisor.Owner{Cluster: "green", Namespace: "secret-team", Name: "secret-machine"})
		}},
		"a domain with our name and no owner": {left: []string{"hidden-host: domain ShutOff", "hidden-host: volume uuid-root"}, prepare: func(w *world) {
			w.volume("hidden-host", uuidOfOthers)
			name := (&scope{infra: w.infra(), uuid: uuidOfOthers}).domainName()
			w.onHost("hidden-host", func(connection hypervisor.Hypervisor) error {
				return connection.DefineDomain(w.t.Context(), hypervisor.Definition{UUID: uuidOfOthers, Name: name,
					XML: "<domain><name>" + name + "</name><uuid>" + uuidOfOthers + "</uuid><memory>1</memory></domain>"})
			})
		}},
		"its Machine has the provider ID": {left: []string{"hidden-host: volume uuid-root"}, prepare: func(w *world) {
			w.volume("hidden-host", uuidOfOthers)
			change(w, &clusterv1.Machine{}, key.Name, func(machine *clusterv1.Machine) { machine.Spec.ProviderID = infrav1.ProviderIDPrefix + uuidOfOthers })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStranger(t)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			m := w.newManager(0)
			w.notAllowed(m)
			w.Expect(w.infra().Status.FailureDomain).To(BeEmpty())
			w.delete()
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(Equal(tc.left))
			for len(w.events.Events) > 0 {
				w.Expect(<-w.events.Events).ToNot(Or(ContainSubstring("secret"), ContainSubstring("hidden-host")))
			}
		})
	}
}

// TestErrorOfAHostOfOthers: the deletion waits for an unreachable host, because the machine may have left objects there
// before a move. The error of the host isn't shown.
func TestErrorOfAHostOfOthers(t *testing.T) {
	w := newStranger(t)
	m := w.newManager(0)
	w.notAllowed(m)
	w.hosts["hidden-host"].SetReachable(false)
	w.delete()
	w.until(m, w.hasCondition(infrav1.ReadyCondition, infrav1.DeletingReason))
	w.Expect(conditions.GetMessage(w.infra(), infrav1.ReadyCondition)).To(And(HavePrefix("Waiting for the host. LibvirtHosts exist, but namespace team may not use them"),
		ContainSubstring(infrav1.HostLostAnnotation+": hidden-host"), Not(ContainSubstring("connect")), Not(ContainSubstring("reach"))))
	w.hosts["hidden-host"].SetReachable(true)
	w.until(m, w.isDeleted)
}

// TestHostIsClosedLater: if a namespace loses access to a host after a machine was placed there, the objects of the
// machine are deleted with it, also if it is incomplete or was moved to another management cluster.
func TestHostIsClosedLater(t *testing.T) {
	hasRoot := func(w *world) bool { return strings.Contains(strings.Join(w.inventory(), " "), "uuid-root") }
	for name, tc := range map[string]struct {
		until func(w *world) bool
		// half makes the definition of its domain fail, and moved drops its status.
		half, moved bool
	}{
		"incomplete":            {until: hasRoot, half: true},
		"provisioned":           {until: (*world).isProvisioned},
		"provisioned and moved": {until: (*world).isProvisioned, moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "hidden-host")
			w.restrict("hidden-host")
			w.setTenant("blue")
			if tc.half {
				w.hosts["hidden-host"].Inject(defineFails)
			}
			m := w.until(w.newManager(0), func() bool { return tc.until(w) })
			w.setTenant("green")
			if tc.moved {
				change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { infra.Status = infrav1.LibvirtMachineStatus{} })
			}
			w.delete()
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(BeEmpty())
		})
	}
}

// TestMovedToAClosedHost: a provisioned machine continues after a move if its domain exists on the host. The status of
// its Machine alone isn't enough.
func TestMovedToAClosedHost(t *testing.T) {
	w := newWorld(t, nil, "hidden-host")
	w.restrict("hidden-host")
	w.setTenant("blue")
	m := w.until(w.newManager(0), w.isProvisioned)
	w.setTenant("green")
	change(w, &clusterv1.Machine{}, key.Name, func(machine *clusterv1.Machine) { machine.Spec.ProviderID = infrav1.ProviderIDPrefix + w.uuid() })
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { infra.Status = infrav1.LibvirtMachineStatus{} })
	w.until(m, w.isProvisioned)
	w.Expect(conditions.IsTrue(w.infra(), infrav1.ReadyCondition)).To(BeTrue())
}

// TestVolumesOfAnEarlierMachine: of two LibvirtMachines with one provider ID, the volumes belong to the first one as
// long as no domain shows the owner.
func TestVolumesOfAnEarlierMachine(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.hosts["a"].Inject(defineFails)
	m := w.until(w.newManager(0), func() bool { return strings.Contains(strings.Join(w.inventory(), " "), "uuid-seed") })
	before := w.inventory()
	original := w.infra()
	copied := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "copy", UID: "uid-3", Labels: original.Labels,
		CreationTimestamp: metav1.NewTime(original.CreationTimestamp.AddDate(0, 0, 1)),
		OwnerReferences:   original.OwnerReferences, Finalizers: original.Finalizers}, Spec: original.Spec}
	w.Expect(w.api.Create(t.Context(), copied)).To(Succeed())
	w.Expect(w.api.Delete(t.Context(), copied)).To(Succeed())
	_, err := m.reconcileObject(client.ObjectKeyFromObject(copied))
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(client.IgnoreNotFound(w.api.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))).To(Succeed())
	w.Expect(w.inventory()).To(Equal(before))
	w.delete()
	w.until(m, w.isDeleted)
	w.Expect(w.inventory()).To(BeEmpty())
}
