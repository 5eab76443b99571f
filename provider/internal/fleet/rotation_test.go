package fleet_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
)

// TestRotatedCredentials checks that the old connection stays until the new credentials have opened one.
func TestRotatedCredentials(t *testing.T) {
	f := newFixture(t, quick, "a")
	rotated := func(key string) fleet.Target {
		to := target("a")
		to.Credentials = libvirt.Credentials{Key: []byte(key)}
		return to
	}
	f.Expect(f.direct("a").DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
	f.setConnect(func(ctx context.Context, to fleet.Target) (hypervisor.Hypervisor, error) {
		if string(to.Credentials.Key) == "bad" {
			return nil, &hypervisor.Error{Operation: "connecting", Reason: hypervisor.ErrDenied}
		}
		return f.hosts["a"].Connect(ctx)
	})
	f.Ensure("a", rotated("first"))
	f.snapshot("a", reachable)
	f.Eventually(f.reachability.of("/a")).WithTimeout(soon).Should(Equal(1))
	first, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())
	works := func(connection hypervisor.Hypervisor) error { _, err := connection.Facts(t.Context()); return err }

	// Invalid credentials: the old connection stays, and Rotation returns the error.
	f.Ensure("a", rotated("bad"))
	f.Ensure("a", rotated("bad"))
	f.Eventually(func() error { return f.Rotation("a") }).WithTimeout(soon).Should(MatchError(hypervisor.ErrDenied))
	now, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())
	f.Expect(now).To(BeIdenticalTo(first))
	f.Expect(works(now)).To(Succeed())
	f.Expect(f.IsOpen("a", rotated("bad"))).To(BeTrue())

	// The valid credentials again.
	f.Ensure("a", rotated("first"))
	f.Expect(f.Rotation("a")).To(Succeed())
	now, _ = f.Hypervisor("a")
	f.Expect(now).To(BeIdenticalTo(first))

	// Valid new credentials replace the connection, and the host never becomes unreachable.
	f.Ensure("a", rotated("second"))
	f.Eventually(func() error { return works(first) }).WithTimeout(soon).Should(MatchError(hypervisor.ErrUnreachable))
	now, err = f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred(), "the new connection opens before the old one is closed")
	f.Eventually(func() error { now, err = f.Hypervisor("a"); return works(now) }).WithTimeout(soon).Should(Succeed())
	f.Expect(f.Rotation("a")).To(Succeed())
	f.Expect(f.snapshot("a", reachable).Domains).To(HaveKey(uuid))
	f.Expect(f.reachability.of("/a")()).To(Equal(1))

	// Invalid credentials, and then the connection is lost: the old credentials aren't used again.
	f.Ensure("a", rotated("bad"))
	f.Eventually(func() error { return f.Rotation("a") }).WithTimeout(soon).Should(MatchError(hypervisor.ErrDenied))
	f.hosts["a"].SetReachable(false)
	f.hosts["a"].SetReachable(true)
	lost := f.snapshot("a", func(g Gomega, snapshot fleet.Snapshot) {
		g.Expect(snapshot.Reachable).To(BeFalse())
		g.Expect(snapshot.Err).To(MatchError(hypervisor.ErrDenied))
	})
	f.Expect(lost.Domains).To(HaveKey(uuid), "the last state stays")
	f.Expect(f.IsOpen("a", rotated("bad"))).To(BeFalse())
	f.Ensure("a", rotated("third"))
	f.snapshot("a", reachable)

	f.Ensure("a", rotated("bad"))
	f.Forget("a")
	f.Expect(f.Rotation("a")).To(Succeed())
}
