package libvirt

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// TestDaemonKilledWhileItStartsADomain checks that a daemon that is killed while it starts a domain, and started again,
// reports the domain as starting, and ends it soon after. Starting the domain again succeeds. The test tries several
// times for the kill: at first the domain has no process yet, and at last it runs.
func TestDaemonKilledWhileItStartsADomain(t *testing.T) {
	libvirtd.Need(t)
	g := NewWithT(t)
	daemon, err := libvirtd.New()
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(daemon.Stop)
	const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b22"
	const seenEnough, tries = 2, 240
	seen := 0
	for try := range tries {
		connection, err := Connect(t.Context(), daemon.URI(), Credentials{})
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(connection.DefineDomain(t.Context(), define(uuid, "killed", nil))).To(Succeed())
		started := make(chan error, 1)
		go func() { started <- connection.StartDomain(t.Context(), uuid) }()
		time.Sleep(time.Duration(try%60)*15*time.Millisecond + time.Duration(try/60)*4*time.Millisecond) // smaller steps in each round
		daemon.Kill()
		startErr := <-started
		_ = connection.Close()
		g.Expect(daemon.Start()).To(Succeed())

		connection, err = Connect(t.Context(), daemon.URI(), Credentials{})
		g.Expect(err).ToNot(HaveOccurred())
		domain, err := connection.Domain(t.Context(), uuid)
		g.Expect(err).ToNot(HaveOccurred())
		if startErr != nil && domain.State != hypervisor.StateShutOff {
			g.Expect(domain.State).To(Or(Equal(hypervisor.StateStarting), Equal(hypervisor.StateRunning)))
		}
		if domain.State == hypervisor.StateStarting {
			seen++
			g.Expect(domain.State.Started()).To(BeFalse())
			g.Eventually(func(g Gomega) {
				g.Expect(connection.StartDomain(t.Context(), uuid)).To(Succeed())
				domain, err := connection.Domain(t.Context(), uuid)
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(domain.State).To(Equal(hypervisor.StateRunning))
			}).WithTimeout(daemonTimeout).Should(Succeed())
		}
		g.Expect(connection.StopDomain(t.Context(), uuid)).To(Succeed())
		g.Expect(connection.UndefineDomain(t.Context(), uuid)).To(Succeed())
		_ = connection.Close()
		if seen == seenEnough {
			return
		}
	}
	t.Fatalf("killed %d times, and only %d times while it started the domain", tries, seen)
}
