package libvirtmachine

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestDaemonStoppedWhileItStartsADomain: a daemon that is stopped during the start of a domain finds the domain's
// process afterwards, shows it as paused, and ends it. The machine isn't provisioned before its domain has started.
func TestDaemonStoppedWhileItStartsADomain(t *testing.T) {
	w := newWorld(t, nil, "a")
	host := w.hosts["a"]
	host.Inject(fake.Fault{Operation: fake.StartDomain, Times: 1, Effect: fake.Fail, Reason: hypervisor.ErrOther})
	failed := w.hasCondition(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason)
	m := w.until(w.newManager(0), failed)
	host.SetState(w.uuid(), hypervisor.StateStarting)
	for range 5 {
		_, err := m.reconcileObject(key)
		w.Expect(err).To(MatchError(hypervisor.ErrBusy))
		w.Expect(failed()).To(BeTrue())
		w.Expect(w.isProvisioned()).To(BeFalse())
		w.Expect(w.infra().Status.InstanceState).To(BeElementOf(infrav1.InstancePaused, infrav1.InstanceShutOff), "the state in the API server")
	}
	host.SetState(w.uuid(), hypervisor.StateShutOff)
	w.until(m, w.isProvisioned)
	w.Expect(w.inventory()).To(ContainElement("a: domain Running"))
}
