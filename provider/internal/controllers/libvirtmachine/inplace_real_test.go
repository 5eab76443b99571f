package libvirtmachine

import (
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// updateOnARealHost updates a machine in place with a real libvirt and QEMU. The guest has no operating system and
// can't shut down, so that it is powered off. The memory isn't a whole number of MiB, and QEMU rounds it up.
func (w *world) updateOnARealHost(m *manager, connection hypervisor.Hypervisor) {
	w.t.Helper()
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) { infra.Status.Initialization.Provisioned = ptr.To(true) })
	w.joinNode()
	before, err := connection.Domain(w.t.Context(), w.uuid())
	w.Expect(err).ToNot(HaveOccurred())
	m.InPlaceUpdates = true
	w.growOnARealHost(m, connection, before)
	memory := resource.MustParse("393217Ki")
	w.requestUpdate(func(infra *infrav1.LibvirtMachine) {
		infra.Spec.CPUs, infra.Spec.Memory, infra.Spec.RootDisk.Size = 1, memory, resource.MustParse("4Gi")
		for i := range infra.Spec.ExtraDisks {
			infra.Spec.ExtraDisks[i].Size = resource.MustParse("30Gi")
		}
	})
	w.until(m, w.hasCondition(infrav1.UpdatedInPlaceCondition, infrav1.RestartingReason))
	change(w, &infrav1.LibvirtMachine{}, key.Name, func(infra *infrav1.LibvirtMachine) {
		infra.Annotations[infrav1.UpdateStartedAnnotation] = time.Now().Add(-shutdownGrace).UTC().Format(time.RFC3339)
	})
	w.until(m, w.isUpdated)

	after, err := connection.Domain(w.t.Context(), w.uuid())
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(after.State).To(Equal(hypervisor.StateRunning))
	w.Expect(after.CPUs).To(BeEquivalentTo(1)) // more CPUs than the host's would need overcommitment
	w.Expect(after.MemoryBytes).To(And(BeNumerically(">=", memory.Value()), BeNumerically("<", memory.Value()+otherRounding)))
	w.Expect(after.Name).To(Equal(before.Name))
	w.Expect(after.Owner).To(Equal(before.Owner))
	w.Expect(after.ConsoleLog).To(And(Equal(before.ConsoleLog), BeAnExistingFile()))
	for _, ref := range before.Disks {
		name, own := hypervisor.DiskName(w.volumeName(""), ref)
		if !own {
			w.Expect(after.Disks).ToNot(ContainElement(ref), "it starts without its seed")
			continue
		}
		w.Expect(after.Disks).To(ContainElement(ref))
		volume, err := connection.Volume(w.t.Context(), ref)
		w.Expect(err).ToNot(HaveOccurred())
		wanted := diskSizes(&w.infra().Spec)[name]
		w.Expect(volume.CapacityBytes).To(Equal(wanted.Value()), ref.String())
	}
	_, err = m.reconcile()
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(w.isUpdated()).To(BeTrue(), "the update isn't repeated")
}

// growOnARealHost grows disks while the domain runs. The guest would never shut down, so the machine isn't updated by a
// restart.
func (w *world) growOnARealHost(m *manager, connection hypervisor.Hypervisor, before hypervisor.Domain) {
	w.t.Helper()
	w.requestUpdate(func(infra *infrav1.LibvirtMachine) {
		infra.Spec.CPUs = before.CPUs
		infra.Spec.RootDisk.Size = resource.MustParse("3584Mi")
		for i := range infra.Spec.ExtraDisks {
			infra.Spec.ExtraDisks[i].Size = resource.MustParse("25Gi")
		}
	})
	w.until(m, w.isUpdated)
	after, err := connection.Domain(w.t.Context(), w.uuid())
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(after).To(Equal(before))
	for _, ref := range after.Disks {
		if name, own := hypervisor.DiskName(w.volumeName(""), ref); own {
			volume, err := connection.Volume(w.t.Context(), ref)
			w.Expect(err).ToNot(HaveOccurred())
			w.Expect(volume.CapacityBytes).To(Equal(diskSizes(&w.infra().Spec)[name].Value()), ref.String())
		}
	}
}
