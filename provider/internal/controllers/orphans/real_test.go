package orphans

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// TestOnARealHost finds and deletes the objects of a missing machine on a real libvirt, while its domain runs. Another
// machine on the host continues to run.
func TestOnARealHost(t *testing.T) {
	libvirtd.Need(t)
	daemon, err := libvirtd.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Stop()
		NewWithT(t).Eventually(daemon.Guests).WithTimeout(time.Minute).Should(BeEmpty(), "guests end with their daemon")
	})
	w := newWorld(t, collecting)
	connection, err := libvirt.Connect(t.Context(), daemon.URI(), libvirt.Credentials{})
	w.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { _ = connection.Close() })
	for uuid, name := range map[string]string{lost: "lost", alive: "alive"} {
		root := hypervisor.VolumeRef{Pool: "default", Name: uuid + "-root"}
		for _, ref := range []hypervisor.VolumeRef{root, {Pool: "default", Name: uuid + "-seed"}} {
			_, err := connection.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})
			w.Expect(err).ToNot(HaveOccurred())
		}
		metadata, err := hypervisor.Owner{Cluster: "blue", Namespace: "team", Name: name}.Metadata()
		w.Expect(err).ToNot(HaveOccurred())
		w.Expect(connection.DefineDomain(t.Context(), hypervisor.Definition{UUID: uuid, Name: "team." + name, XML: fmt.Sprintf(
			"<domain type='qemu'><name>team.%s</name><uuid>%s</uuid><metadata>%s</metadata><memory unit='MiB'>32</memory><vcpu>1</vcpu>"+
				"<os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='volume' device='disk'><driver name='qemu' type='raw'/>"+
				"<source pool='default' volume='%s'/><target dev='vda' bus='virtio'/></disk></devices></domain>", name, uuid, metadata, root.Name)})).To(Succeed())
		w.Expect(connection.StartDomain(t.Context(), uuid)).To(Succeed())
	}
	w.hosts.connection = connection
	findOrphans := func() int {
		snapshot := snapshotOf(connection)
		w.Expect(snapshot.Err).ToNot(HaveOccurred())
		w.hosts.old = &snapshot
		return len(w.findOrphans().Status.Orphans)
	}
	w.Expect(findOrphans()).To(Equal(1))
	w.clock = start.Add(2 * time.Hour)
	w.Expect(findOrphans()).To(Equal(0))
	w.Expect(findOrphans()).To(Equal(0))

	domains, err := connection.ListDomains(t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(domains).To(HaveExactElements(And(HaveField("UUID", alive), HaveField("State", hypervisor.StateRunning))))
	files, err := os.ReadDir(daemon.PoolFolder())
	w.Expect(err).ToNot(HaveOccurred())
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	w.Expect(names).To(ConsistOf(alive+"-root", alive+"-seed", markerPrefix+"here"))
	marker, err := os.Stat(filepath.Join(daemon.PoolFolder(), markerPrefix+"here"))
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(marker.Size()).To(BeEquivalentTo(markerBytes))
}
