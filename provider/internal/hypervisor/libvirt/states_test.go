package libvirt

import (
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestStates checks that a domain that libvirt has paused because it is starting differs from one that a user has
// paused.
func TestStates(t *testing.T) {
	for _, tc := range []struct {
		number  golibvirt.DomainState
		reason  int32
		want    hypervisor.DomainState
		started bool
	}{
		{golibvirt.DomainRunning, int32(golibvirt.DomainRunningBooted), hypervisor.StateRunning, true},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedUser), hypervisor.StatePaused, true},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedIoerror), hypervisor.StatePaused, true},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedStartingUp), hypervisor.StateStarting, false},
		{golibvirt.DomainShutdown, int32(golibvirt.DomainPausedStartingUp), hypervisor.StateShuttingDown, true},
		{golibvirt.DomainShutoff, 0, hypervisor.StateShutOff, false},
		{golibvirt.DomainCrashed, 0, hypervisor.StateCrashed, false},
		{99, 0, hypervisor.StateUnknown, true},
	} {
		g := NewWithT(t)
		got := stateFrom(tc.number, tc.reason)
		g.Expect(got).To(Equal(tc.want), "%d, %d", tc.number, tc.reason)
		g.Expect(got.Started()).To(Equal(tc.started), string(got))
	}
}
