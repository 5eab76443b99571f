package libvirthost_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(testbed.PrepareGuest, m.Run))
}

const domain = `<domain type='qemu'><name>%s</name><uuid>%s</uuid><memory unit='MiB'>192</memory><vcpu>1</vcpu>
<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type><firmware><feature enabled='no' name='enrolled-keys'/></firmware></os><features><acpi/><apic/></features>
<devices>
<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/><source pool='default' volume='root-%[1]s'/><target dev='vda' bus='virtio'/><boot order='1'/></disk>
<interface type='network'><source network='default'/><model type='virtio'/></interface>
<console type='pty'/>
<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
</devices></domain>`

// TestHosts starts guests on concurrent hosts. The guests get addresses, send reports and react to their power button,
// and a restarted daemon finds its guest, its pool and its network.
func TestHosts(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	network, err := sandbox.NewNetwork("hosts", netip.MustParsePrefix("10.88.0.0/24"))
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { g.Expect(network.Remove()).To(Succeed()) })
	ca, err := authority.New("hosts")
	g.Expect(err).ToNot(HaveOccurred())
	var hosts [2]*libvirthost.Host
	uuid := func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i) }
	for i := range hosts {
		name := fmt.Sprintf("host%d", i)
		hosts[i], err = libvirthost.Start(ctx, libvirthost.Options{
			Name: name, Dir: filepath.Join(t.TempDir(), name), Network: network, CA: ca,
			Guests: netip.MustParsePrefix(fmt.Sprintf("10.90.%d.0/24", i)),
		})
		g.Expect(err).ToNot(HaveOccurred())
		t.Cleanup(hosts[i].Stop)
		start(g, hosts[i], "guest", uuid(i))
	}
	hosts[0].KillDaemon()
	g.Expect(hosts[0].StartDaemon(ctx)).To(Succeed())

	for i, host := range hosts {
		got := waitForReport(ctx, g, host)
		g.Expect(got.SystemUUID).To(Equal(uuid(i)))
		g.Expect(got.MetaData).To(BeZero())
		g.Expect(got.Address).To(HavePrefix(fmt.Sprintf("10.90.%d.", i)))
		g.Expect(got.Addresses).To(ConsistOf(got.Address + "/24"))
		g.Expect(got.From).To(Equal(got.Address))
		first, last := host.Static()
		g.Expect([]string{first.String(), last.String()}).To(Equal([]string{fmt.Sprintf("10.90.%d.192", i), fmt.Sprintf("10.90.%d.254", i)}))
		g.Expect(netip.MustParseAddr(got.Address).Less(first)).To(BeTrue())
		// The guest may report before libvirt's file has its lease.
		g.Eventually(host.Leases).WithTimeout(time.Minute).Should(And(HaveLen(1), HaveKey(got.MACAddress)))
		g.Expect(host.Left()).To(ConsistOf("domain guest", "volume root-guest", "firmware variables guest_VARS.fd"))
		g.Expect(host.Forgets(got.MACAddress, time.Now())).To(Succeed())
		g.Expect(host.Forgets(got.MACAddress, time.Now().Add(-time.Hour))).To(MatchError(ContainSubstring("keeps the address of " + got.MACAddress)))

		client, err := host.Connect()
		g.Expect(err).ToNot(HaveOccurred())
		found, err := client.DomainLookupByName("guest")
		g.Expect(err).ToNot(HaveOccurred())
		state, _, err := client.DomainGetState(found, 0)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(state).To(Equal(int32(golibvirt.DomainRunning)))
		addresses, err := client.DomainInterfaceAddresses(found, uint32(golibvirt.DomainInterfaceAddressesSrcLease), 0)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(addresses).To(HaveLen(1))
		g.Expect(addresses[0].Addrs).To(ConsistOf(HaveField("Addr", got.Address)))
		g.Expect(got.Size).To(And(HaveField("CPUs", 1), HaveField("RootDiskBytes", BeEquivalentTo(48<<20)),
			HaveField("MemoryBytes", And(BeNumerically(">", 96<<20), BeNumerically("<", 192<<20)))))
		g.Expect(client.DomainShutdownFlags(found, golibvirt.DomainShutdownAcpiPowerBtn)).To(Succeed())
		g.Eventually(func() (int32, error) {
			state, _, err := client.DomainGetState(found, 0)
			return state, err
		}).WithTimeout(time.Minute).Should(BeEquivalentTo(golibvirt.DomainShutoff), "the guest reacts to the power button")
		g.Expect(host.Ends("guest")).To(Equal([]string{"shutdown"}))
		g.Expect(client.Disconnect()).To(Succeed())
	}
}

// start defines and starts a guest from the guest image.
func start(g *WithT, host *libvirthost.Host, name, uuid string) {
	client, err := host.Connect()
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = client.Disconnect() }()
	pool, err := client.StoragePoolLookupByName(libvirthost.Pool)
	g.Expect(err).ToNot(HaveOccurred())
	image, err := os.Open(testbed.GuestImage())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = image.Close() }()
	info, err := image.Stat()
	g.Expect(err).ToNot(HaveOccurred())
	volume, err := client.StorageVolCreateXML(pool, fmt.Sprintf("<volume><name>root-%s</name><capacity>%d</capacity><target><format type='raw'/></target></volume>", name, info.Size()), 0)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(client.StorageVolUpload(volume, image, 0, 0, 0)).To(Succeed())
	defined, err := client.DomainDefineXML(fmt.Sprintf(domain, name, uuid))
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(client.DomainCreate(defined)).To(Succeed())
}

func waitForReport(ctx context.Context, g *WithT, host *libvirthost.Host) report.Report {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		reports, more := host.Reports()
		if len(reports) > 0 {
			return reports[0]
		}
		select {
		case <-more:
		case <-ctx.Done():
			g.Expect(ctx.Err()).ToNot(HaveOccurred(), "no guest has reported")
		}
	}
}
